// Letting one worker serve again, or fencing it (protocol.md sections 1, 2, 5, 7).
//
// READY is entered only after a read that began when the resume had answered. A worker whose weights aren't known to be
// whole never gets here but through `quarantine`.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/check.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

constexpr Milliseconds kRetry = 1s;
constexpr int kChecksPaused =
    3;  // reads that still say "paused" after a resume that was answered; then another has paused it

void send_resume(Context& context, Update& update, Target& target) {
  Operation operation;
  operation.kind = OperationKind::resume;
  operation.brief = may_read_briefly(update, target, context.worker_of(target));
  target.resume_sent = true;
  context.call(update, target, Step::resuming, std::move(operation));
}

void send_check(Context& context, Update& update, Target& target) {
  Operation operation;
  operation.kind = OperationKind::read_state;
  operation.brief = may_read_briefly(update, target, context.worker_of(target));
  context.call(update, target, Step::checking, std::move(operation));
}

// The caller continues it by itself, later: there is no resume of ours whose effect a read could show, and the answer
// to the load is all the evidence that was asked for. What comes after that answer is the watch's.
bool needs_no_check(const Update& update, const Target& target, const Worker& worker) {
  return update.policy.pause == PauseOwner::caller && trusts_answers(update) && update.kind == UpdateKind::update &&
         target.verdict == Verdict::verified && target.load_took && !target.recovered && !target.pause_sent &&
         !worker.paused_by_us && worker.earlier.empty();
}

void send_flush(Context& context, Update& update, Target& target) {
  Operation operation;
  operation.kind = OperationKind::flush;
  operation.pause_mode = update.policy.pause_mode;
  context.call(update, target, Step::flushing_after, std::move(operation));
}

void wait_and_retry(Context& context, Update& update, Target& target) {
  target.step = Step::resume_waiting;
  start_retry(context, update, target, kRetry);
}

void mark_ready(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  const bool to_committed = update.committed.value_or(false) || update.kind == UpdateKind::join;
  const bool holds_it = to_committed && target.verdict == Verdict::verified;
  const bool has_old_prefixes = holds_it && worker.owes_flush;
  const bool is_told = has_old_prefixes && target.cause && target.cause->code == CauseCode::flush_failed;
  if ((holds_it && !is_told) || (target.cause && target.cause->code == CauseCode::resume_failed))
    target.cause.reset();  // it came back
  if (has_old_prefixes && !is_told) target.cause = context.cause(CauseCode::flush_failed, owed_flush_text(""));
  target.step = Step::done;
  for (auto& [version, workers] : context.pair_of(update).spoiled) workers.erase(worker.url);
  context.set_worker(worker, WorkerState::ready);
}

void after_check(Context& context, Update& update, Target& target) {
  const bool loaded = target.verdict == Verdict::verified;
  if (loaded && context.worker_of(target).owes_flush && !target.flushed_after) {
    target.flushed_after = true;
    return send_flush(context, update, target);
  }
  if (loaded && update.policy.evidence == Evidence::probe && !target.was_paused) {
    Operation operation;
    operation.kind = OperationKind::probe;
    return context.call(update, target, Step::probing, std::move(operation));
  }
  mark_ready(context, update, target);
}

void on_checked(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  if (outcome.kind == OutcomeKind::not_sent)
    return quarantine(context, update, target,
                      context.cause(CauseCode::unreachable, fmt::format("read after resume: {}", outcome.text)));
  if (!outcome.ok() || !outcome.reading) {
    if (!target.cause)
      target.cause = context.cause(CauseCode::resume_failed, fmt::format("read after resume: {}", outcome.text));
    return wait_and_retry(context, update, target);
  }
  if (may_read_briefly(update, target, worker) && !label_is_ours(worker, outcome.reading->label)) {
    target.read_whole = true;
    return send_check(context, update, target);
  }
  if (observe(context, worker, *outcome.reading)) {
    take_new_process(target, worker, *outcome.reading);
    target.verdict = Verdict::unknown;
    if (target.load_sent) note_death(context, update, target, target.goal.value_or(update.version));
    return quarantine(context, update, target,
                      context.cause(CauseCode::restarted, "after the resume a new process answers"));
  }
  if (!label_is_ours(worker, outcome.reading->label)) {
    target.step = Step::done;
    target.cause =
        context.cause(CauseCode::foreign,
                      fmt::format("its label became '{}', which this gateway did not write", outcome.reading->label));
    return context.set_worker(worker, WorkerState::foreign, target.cause);
  }
  // Written by a heal that a process before this one had begun: what told that it was whole told an older label.
  if (says_loading(outcome.reading->label)) {
    target.paused = outcome.reading->paused;
    target.verdict = Verdict::torn;
    return quarantine(context, update, target,
                      context.cause(CauseCode::load_unknown,
                                    fmt::format("after the resume its label '{}' says that a load did not end",
                                                outcome.reading->label)));
  }
  const bool still_paused = outcome.reading->paused && !target.was_paused && update.policy.pause == PauseOwner::gateway;
  if (still_paused && ++target.tries < kChecksPaused) return wait_and_retry(context, update, target);
  after_check(context, update, target);
}

void on_resumed(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  if (!outcome.ok()) {
    if (!target.cause) target.cause = context.cause(CauseCode::resume_failed, fmt::format("resume: {}", outcome.text));
    return wait_and_retry(context, update, target);
  }
  worker.paused_by_us = false;
  target.paused = false;
  target.resumed_at = context.now();
  if (target.cause && target.cause->code == CauseCode::resume_failed) target.cause.reset();  // why it was healed stays
  target.tries = 0;
  if (outcome.reading) return on_checked(context, update, target, outcome);
  send_check(context, update, target);
}

// Mode keep: an engine refuses to flush while the requests that it kept still run. It is asked once: who runs now runs
// for seconds or without end, and each further try would only hold the update's answer up. The worker serves all the
// same, for its weights are whole; that the flush is owed is told with its verdict, and the watch sees to it.
void on_flushed_after(Context& context, Update& update, Target& target, const Outcome& outcome) {
  // Nothing goes out behind a flush that may still run.
  if (!context.worker_of(target).earlier.empty()) return start_barrier(context, update, target);
  if (!outcome.ok()) target.cause = context.cause(CauseCode::flush_failed, owed_flush_text(outcome.text));
  after_check(context, update, target);
}

// The earlier call has ended, and this is what it left.
void on_barrier(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  if (outcome.kind == OutcomeKind::not_sent) {
    if (target.load_sent) note_death(context, update, target, target.goal.value_or(update.version));
    return quarantine(context, update, target,
                      context.cause(CauseCode::unreachable, fmt::format("barrier: {}", outcome.text)));
  }
  if (!outcome.ok() || !outcome.reading) return wait_and_retry(context, update, target);
  worker.earlier.clear();
  target.paused = outcome.reading->paused;
  if (observe(context, worker, *outcome.reading)) {
    if (target.load_sent) note_death(context, update, target, target.goal.value_or(update.version));
    target.verdict = Verdict::unknown;
    return quarantine(context, update, target,
                      context.cause(CauseCode::restarted, "a new process answers; it holds its start model"));
  }
  if (target.recovered) return on_recovered_reading(context, update, target, *outcome.reading);
  const bool whole = target.verdict == Verdict::verified;
  if (target.resume_sent && (whole || !target.load_sent)) {
    if (target.paused) return send_resume(context, update, target);
    worker.paused_by_us = false;
    target.resumed_at = context.now();
    target.tries = 0;
    return send_check(context, update, target);
  }
  if (target.load_sent) return heal_or_quarantine(context, update, target);
  target.verdict = Verdict::untouched;
  start_former_label(context, update, target);
}

}  // namespace

void start_retry(Context& context, Update& update, Target& target, Milliseconds after) {
  context.start_timer(update, target.worker, after);
}

void start_barrier(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  Operation operation;
  if (must_be_identified(worker)) {
    operation.kind = OperationKind::identify;
    return context.call(update, target, Step::barrier, std::move(operation));
  }
  if (!can_barrier_all(context.traits_of(worker), worker)) {
    const std::string before = target.cause ? target.cause->message + "; " : "";
    return quarantine(context, update, target,
                      context.cause(CauseCode::outstanding,
                                    before + "an earlier call may still run, and only a restart ends the doubt"));
  }
  context.reset_earlier(worker);
  operation.kind = OperationKind::barrier;
  context.call(update, target, Step::barrier, std::move(operation));
}

void start_former_label(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  if (target.former_state != WorkerState::ready) {
    const Cause before = target.former_cause.value_or(
        context.cause(CauseCode::restarted, "it did not hold the committed version before"));
    return quarantine(context, update, target, before);
  }
  if (!target.label_changed) return start_resume(context, update, target);
  context.set_worker(worker, WorkerState::paused);
  Operation operation;
  operation.kind = OperationKind::set_label;
  operation.label = target.former_label;
  context.call(update, target, Step::former_label, std::move(operation));
}

void start_resume(Context& context, Update& update, Target& target) {
  const bool whole = target.verdict == Verdict::verified || target.verdict == Verdict::untouched;
  WEIGHLOCK_CHECK(whole || mutant(Mutant::resume_everyone), "only whole weights are resumed");
  Worker& worker = context.worker_of(target);
  if (!has_its_memory(worker))
    return quarantine(context, update, target, target.cause.value_or(context.cause(CauseCode::load_unknown, "")));
  context.set_worker(worker, WorkerState::resuming);
  target.tries = 0;
  const bool ours = target.pause_sent && !target.was_paused;
  if (ours && (target.paused || worker.paused_by_us)) return send_resume(context, update, target);
  if (needs_no_check(update, target, worker)) return after_check(context, update, target);
  send_check(context, update, target);
}

void on_resume_call(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome) {
  switch (target.step) {
    case Step::barrier:
      if (kind == OperationKind::identify && outcome.ok()) {
        start_barrier(context, update, target);
      } else {
        on_barrier(context, update, target, outcome);
      }
      break;
    case Step::former_label:
      if (outcome.ok()) {
        target.label_changed = false;
        start_resume(context, update, target);
      } else if (const auto goal = heal_goal(context, update, target);
                 goal && context.worker_of(target).earlier.empty()) {
        target.cause = context.cause(CauseCode::label_failed,
                                     fmt::format("its former label could not be written back: {}", outcome.text));
        start_heal(context, update, target, *goal);
      } else {
        quarantine(context, update, target,
                   context.cause(CauseCode::label_failed, fmt::format("former label: {}", outcome.text)));
      }
      break;
    case Step::resuming:
      on_resumed(context, update, target, outcome);
      break;
    case Step::checking:
      on_checked(context, update, target, outcome);
      break;
    case Step::flushing_after:
      on_flushed_after(context, update, target, outcome);
      break;
    case Step::probing:
      if (outcome.ok()) {
        target.evidence = Evidence::probe;
        context.worker_of(target).evidence = Evidence::probe;
        mark_ready(context, update, target);
      } else {
        quarantine(context, update, target,
                   context.cause(CauseCode::probe_failed, fmt::format("probe: {}", outcome.text)));
      }
      break;
    case Step::fencing:
      target.step = Step::done;
      break;
    default:
      break;
  }
  finish_if_done(context, update);
}

void on_resume_retry(Context& context, Update& update, Target& target) {
  const Worker& worker = context.worker_of(target);
  if (!worker.earlier.empty() || target.recovered) {
    start_barrier(context, update, target);
  } else if (target.resume_sent && worker.paused_by_us) {
    send_resume(context, update, target);
  } else {
    send_check(context, update, target);
  }
  finish_if_done(context, update);
}

void quarantine(Context& context, Update& update, Target& target, Cause cause) {
  Worker& worker = context.worker_of(target);
  context.cancel_timer(update, target.worker);
  cause = with_missing_memory(worker, std::move(cause));
  target.cause = cause;
  context.set_worker(worker, WorkerState::quarantined, cause);
  const bool again = update.kind == UpdateKind::join && target.former_state == WorkerState::quarantined;
  if (!again) context.emit(Fence{worker.url, worker.pair, std::move(cause)});
  const bool reachable = target.cause->code != CauseCode::unreachable && target.cause->code != CauseCode::credentials;
  const bool may_call = worker.earlier.empty() && worker.dialect && !worker.in_flight && reachable;
  const bool deadline_left =
      std::any_of(update.timers.begin(), update.timers.end(), [](const auto& e) { return e.second == "restore"; });
  if (!may_call || !deadline_left || target.paused || target.was_paused || update.policy.pause == PauseOwner::caller) {
    target.step = Step::done;
    return;
  }
  Operation operation;  // it may not serve: held paused
  operation.kind = OperationKind::pause;
  operation.pause_mode = PauseMode::abort;
  context.call(update, target, Step::fencing, std::move(operation));
}

}  // namespace weighlock::protocol
