// One thing that goes wrong at one known place, instead of by the dice: for the loop over every place of an update and
// of a recovery (main.cpp, --nth).
//
// A place is what the machine asks of the world: a group for the journal, or an effect. They are counted in their order
// from the moment that the update under test is asked for.
#pragma once

#include <cstdint>

namespace weighlock::sim {

// What becomes of one call of ours.
enum class Mishap {
  none,
  not_sent,      // a worker: refused. A save: refused. Storage: an error
  request_lost,  // it never arrives, and the caller sees a reset
  answer_lost,   // it is done, and the caller sees a reset
  silent,        // it never arrives, and nobody tells
  count_
};

struct Plan {
  enum class What { die_before, die_after, fail };
  std::uint64_t nth = 0;  // counted from 1; 0: nothing goes wrong
  What what = What::die_before;
  Mishap mishap = Mishap::not_sent;  // of What::fail; a group that fails ends the process
  // The process also dies after this place, and what is counted are those of the next process; 0: it doesn't.
  std::uint64_t dies_first = 0;
};

}  // namespace weighlock::sim
