#include "weighlock/protocol/awex_blame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace weighlock::protocol {
namespace {

// In lower case. As torch 2.9's gloo and TCP store say it (tests/awex), and NCCL's and its watchdog's words.
constexpr std::array<std::string_view, 11> kOfPeers = {
    "another worker failed",  // ours, of a colocated transfer that was not begun

    "timed out waiting",             // gloo, TCP store
    "timed out after",               // TCP store: "Timed out after 7 seconds waiting for clients"
    "connection closed by peer",     // gloo
    "connection reset by peer",      // gloo, TCP store
    "broken pipe",                   // TCP store
    "socket timeout",                // TCP store
    "collective operation timeout",  // NCCL's watchdog
    "remote process exited",         // NCCL: ncclRemoteError
    "failed to recv, got 0 bytes",   // TCP store
    "wait timeout",                  // TCP store
};

// The order in which members are named.
int place_of(const MemberEnd& end) {
  if (end.silent) return 1;
  return tells_of_a_peer(end.words) ? 2 : 0;
}

}  // namespace

bool tells_of_a_peer(std::string_view words) {
  std::string low(words);
  std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(kOfPeers.begin(), kOfPeers.end(),
                     [&](std::string_view peer) { return low.find(peer) != std::string::npos; });
}

std::string blame_text(std::vector<MemberEnd> ends) {
  std::stable_sort(ends.begin(), ends.end(),
                   [](const MemberEnd& a, const MemberEnd& b) { return place_of(a) < place_of(b); });
  std::string text;
  for (const MemberEnd& end : ends) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", end.who, end.words);
  return text;
}

}  // namespace weighlock::protocol
