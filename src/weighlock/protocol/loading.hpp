// Internal to LOADING and VERIFYING: how the pipeline of a worker (load.cpp) and the decision that follows from all
// verdicts (load_decision.cpp) call each other. The machine's rules hold: pure, one thread, nothing owned, no errors;
// a call that may end the update says so.
#pragma once

#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {

// Between the first call of the pipeline and the verdict.
constexpr bool in_pipeline(Step step) {
  return step >= Step::labelling && step <= Step::repausing;
}
// The weights, the label or the caches aren't what is to be verified yet.
constexpr bool before_verify(Step step) {
  return step >= Step::labelling && step <= Step::adapter_loading;
}

// load.cpp
// The first call of a worker whose turn has come; its step is `paused`.
void launch_pipeline(Context& context, Update& update, Target& target);

// load_decision.cpp
// Looks at all targets, and sends the update on: more loads, the next batch, the commit or RESTORING. May end the
// update.
void evaluate_verdicts(Context& context, Update& update);
// Where `unloaded`, the targets that haven't loaded yet, is 0: from here on it is the time to verify that counts.
void enter_verifying(Context& context, Update& update, int unloaded);

}  // namespace weighlock::protocol
