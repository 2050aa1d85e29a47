// Deliberate mistakes, compiled in by tests only (WEIGHLOCK_MUTANT=1..5), that the simulator must catch: a check of the
// checker.
#pragma once

namespace weighlock::protocol {

enum class Mutant {
  none = 0,
  no_resume_on_error = 1,       // what half of the field does: no error path around the pause
  resume_everyone = 2,          // what the other half does: resume in a `finally`, torn workers too
  pause_failure_strands = 3,    // a pause that fails for one leaves the others paused
  acknowledged_is_success = 4,  // a status 200 is taken for success
  watch_is_blind = 5            // what others continue behind our back stays running
};

#ifndef WEIGHLOCK_MUTANT
#define WEIGHLOCK_MUTANT 0
#endif

constexpr bool mutant(Mutant which) {
  return static_cast<int>(which) == WEIGHLOCK_MUTANT;
}

}  // namespace weighlock::protocol
