// Who failed by itself, when one member's failure makes others of a collective fail: so that this one is named first.
//
// Pure. A guess from the words that torch, gloo and NCCL have for a peer that didn't come or went away; nothing but the
// order of a text depends on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace weighlock::protocol {

struct MemberEnd {
  std::string who;    // "trainer http://10.0.0.4:8003"
  std::string words;  // what it said, or what is said of it
  bool silent = false;
};

// Whether the words tell of another member: a time-out of the group, a connection that a peer closed.
bool tells_of_a_peer(std::string_view words);

// "who: words; who: words": who failed by itself, then the silent ones, then those that tell of others.
std::string blame_text(std::vector<MemberEnd> ends);

}  // namespace weighlock::protocol
