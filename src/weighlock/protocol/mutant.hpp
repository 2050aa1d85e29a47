// Deliberate mistakes, each one that real systems have, that the simulator must catch: a check of the checker.
//
// Only the simulator's copy of the machine has them (WEIGHLOCK_MUTABLE), and there `none` is chosen unless a run asks
// for one. Everywhere else `mutant` is false at compile time.
#pragma once

namespace weighlock::protocol {

enum class Mutant {
  none = 0,
  no_resume_on_error,       // what half of the field does: no error path around the pause
  resume_everyone,          // what the other half does: resume in a `finally`, torn workers too
  pause_failure_strands,    // a pause that fails for one leaves the others paused
  acknowledged_is_success,  // a status 200 is taken for success
  watch_is_blind,           // what others continue behind our back stays running
  save_is_retried,          // a save whose answer was lost is asked for again
  heal_reloads_new,         // a torn worker is "healed" with what tore it
  commit_before_verify,     // the pointer moves when the loads begin
  updates_interleave,       // the next update begins while one runs
  resume_before_commit,     // the workers serve before the decision is on the disk
  barrier_skipped,          // a pause that timed out is taken for one that never was
  label_is_trusted,         // recovery believes a label of ours, whatever was loaded since
  epoch_ignored,            // who was replaced goes on as if the pair were its own
  member_failure_ignored,   // a collective in which a member failed is taken for success
  adapters_outlive_owner,   // who takes a LoRA pair back believes what it knew of names before
  owed_flush_forgotten,     // mode keep: what an engine refused to flush is not asked for again
  count_
};

#ifdef WEIGHLOCK_MUTABLE
inline Mutant chosen_mutant = Mutant::none;
inline bool mutant(Mutant which) {
  return which == chosen_mutant;
}
#else
constexpr bool mutant(Mutant /*which*/) {
  return false;
}
#endif

}  // namespace weighlock::protocol
