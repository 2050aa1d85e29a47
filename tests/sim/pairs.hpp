// Which (state, event) pairs of the machine the runs have reached, and the table of those that can't be.
//
// Three kinds of pairs, counted just before each step:
//   answer STEP OUTCOME     a call of a target in this step ends so. Also for steps: `watch` (a look between updates),
//                           `late` (a call that was given up), `retire` (the unload of an adapter that left its window)
//                           and `gone` (nobody knows the call any more)
//   event STATE EVENT       anything else but timers; STATE is that of the update it is about, or of its pair's active
//                           one; `none` without one
//   timer STATE PURPOSE, timer STEP retry, timer watch, timer gone
#pragma once

#include <string>

#include "sim/coverage.hpp"
#include "weighlock/protocol/event.hpp"
#include "weighlock/protocol/state.hpp"

namespace weighlock::sim {

void note_pair(Coverage& coverage, const protocol::State& state, const protocol::Event& event);

// `table`: a file with a line for each set of pairs that can't be reached: KIND ROW[,ROW] COLUMN[,COLUMN] : reason.
// `*` stands for all. A line that begins with `with-epochs` or `without-epochs` holds for such runs only. False, and
// told on stdout: a listed pair that was reached, a line that names none, or (as `missing` says) a pair that is neither
// listed nor reached.
enum class MissingPairs { ignored, told, fail };
bool check_pairs(const Coverage& coverage, const std::string& table, MissingPairs missing, bool keeps_epochs);

}  // namespace weighlock::sim
