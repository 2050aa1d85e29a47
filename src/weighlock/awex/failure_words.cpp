#include "weighlock/awex/failure_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <span>
#include <string>

namespace weighlock::awex {
namespace {

// In lower case. As torch 2.9's gloo and TCP store say it (tests/awex), and NCCL's and its watchdog's words.
constexpr std::array<std::string_view, 10> kOfPeers = {
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

constexpr std::array<std::string_view, 2> kOfTakenPorts = {
    "eaddrinuse",              // TCP store
    "address already in use",  // the system's own
};

bool has_any(std::string_view words, std::span<const std::string_view> known) {
  std::string low(words);
  std::transform(low.begin(), low.end(), low.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::any_of(known.begin(), known.end(),
                     [&](std::string_view one) { return low.find(one) != std::string::npos; });
}

}  // namespace

bool tells_of_a_peer(std::string_view words) {
  return has_any(words, kOfPeers);
}

bool tells_of_a_taken_port(std::string_view words) {
  return has_any(words, kOfTakenPorts);
}

}  // namespace weighlock::awex
