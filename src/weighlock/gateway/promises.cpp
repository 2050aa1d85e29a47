#include "weighlock/gateway/promises.hpp"

namespace weighlock {

using protocol::PauseOwner;

json::array not_promised(const protocol::Policy& policy) {
  json::array out;
  if (policy.pause == PauseOwner::caller) {
    out.push_back(
        "pause=caller: the gateway neither pauses nor continues an engine. That none is left merely paused, that a "
        "torn "
        "or unknown one doesn't generate, and that each paused one comes back, is the caller's");
  }
  if (policy.pause == PauseOwner::never) {
    out.push_back(
        "pause=never: engines answer requests while they load, so an answer may come from two versions; only an engine "
        "that may not serve is paused");
  }
  return out;
}

}  // namespace weighlock
