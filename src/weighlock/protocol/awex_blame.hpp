// The order in which the members of a collective that failed are named: when one fails, others fail by it.
//
// Pure. Whose words tell of another member is the edge's reading (awex/failure_words.hpp); nothing but the order of a
// text depends on it, so it isn't on record.
#pragma once

#include <string>
#include <vector>

namespace weighlock::protocol {

struct MemberEnd {
  std::string who;    // "trainer http://10.0.0.4:8003"
  std::string words;  // what it said, or what is said of it
  bool silent = false;
  bool blames_a_peer = false;
};

// "who: words; who: words": who failed by itself, then the silent ones, then those that tell of others.
std::string blame_text(std::vector<MemberEnd> ends);

}  // namespace weighlock::protocol
