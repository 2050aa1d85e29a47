// Whether a list of workers shows one that an update or a join has in hand: its state is of that moment.
#pragma once

#include <string>
#include <string_view>

namespace weighlock::fault {

inline bool shows_one_in_hand(std::string_view workers) {
  for (const char* state : {"pausing", "paused", "loading", "loaded", "verified", "resuming"}) {
    if (workers.find("\"state\":\"" + std::string(state) + "\"") != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace weighlock::fault
