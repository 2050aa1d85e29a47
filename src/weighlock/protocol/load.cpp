// LOADING and VERIFYING: one pipeline per worker (protocol.md 1, 3, 4). What follows from their verdicts is
// load_decision.cpp's.
//
//   labelling -> loading -> [labelling_version] -> [flushing] -> verifying -> judged
//
// Workers don't wait for each other inside a batch: each is verified as soon as it has loaded.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/loading.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

constexpr int kDirectoryTries = 5;  // a lagging mount: 0.5 + 1 + 2 + 4 s
constexpr int kFlushTries = 4;      // an engine that isn't idle yet refuses
constexpr int kReadTries = 3;
constexpr int kRepausesMax = 2;  // someone keeps continuing it: not ours to win
constexpr Milliseconds kRetryFirst = 500ms;

// In mode `keep` requests hold their blocks over the switch: what may be flushed is flushed after the resume.
bool flushes_after_load(const Update& update, const DialectTraits& traits) {
  return (update.transfer || !traits.load_flushes) && update.policy.pause_mode != PauseMode::keep;
}

void send_load_now(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  target.load_sent = true;
  target.load_started = context.now();
  context.set_worker(worker, WorkerState::loading, worker.cause);
  context.call(update, target, Step::loading, load_operation(update));
}

void send_load(Context& context, Update& update, Target& target) {
  if (update.transfer) return assemble(context, update, target);
  if (!target.label_changed || !may_be_another(context, target)) return send_load_now(context, update, target);
  context.call(update, target, Step::asking, next_reading(context, context.worker_of(target)));
}

// Most verdicts only count down. All targets are looked at when one decides something: once for each of a thousand
// would be a million looks.
void count_verified(Context& context, Update& update, const Target& target) {
  Update::Countdown& left = update.countdown;
  --left.unjudged;
  if (target.role == Role::member && left.until_quorum > 0) --left.until_quorum;
  if (left.unjudged == 0 || left.until_quorum == 0 || update.policy.load_window > 0) evaluate_verdicts(context, update);
}

void judge_verified(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  target.step = Step::judged;
  target.intended.clear();
  target.verdict = Verdict::verified;
  target.evidence = outcome.evidence;
  target.vacuous = outcome.vacuous;
  target.switched_at = context.now();
  target.cause.reset();
  worker.version = update.version;
  worker.evidence = outcome.evidence;
  context.set_worker(worker, WorkerState::verified);
  count_verified(context, update, target);
}

void send_verify(Context& context, Update& update, Target& target) {
  if (before_verify(target.step)) --update.countdown.unloaded;
  if (trusts_answers(update)) {
    Outcome acknowledged;
    acknowledged.kind = OutcomeKind::ok;
    acknowledged.evidence = Evidence::acknowledged;
    return judge_verified(context, update, target, acknowledged);
  }
  const Worker& worker = context.worker_of(target);
  const Evidence best = context.traits_of(worker).evidence_best;
  Operation operation;
  operation.kind = OperationKind::verify;
  operation.directory = update.version.directory;
  operation.label = update.version.label;
  const Evidence asked = update.policy.evidence.value_or(best);
  operation.evidence = update.sealed && update.sealed->blind ? Evidence::label : std::min(asked, best);
  context.call(update, target, Step::verifying, std::move(operation));
  enter_verifying(context, update, update.countdown.unloaded);
}

void send_flush(Context& context, Update& update, Target& target) {
  if (!before_verify(target.step)) ++update.countdown.unloaded;  // after a foreign continue
  context.call(update, target, Step::flushing, flush_operation(update));
}

void after_label(Context& context, Update& update, Target& target) {
  target.tries = 0;
  if (flushes_after_load(update, context.traits_of(context.worker_of(target))))
    return send_flush(context, update, target);
  send_verify(context, update, target);
}

void judge(Context& context, Target& target, Verdict verdict, CauseCode code, std::string text) {
  if (target.adapter) return judge_adapter(context, target, verdict, code, std::move(text));
  Worker& worker = context.worker_of(target);
  target.step = Step::judged;
  target.intended.clear();
  target.verdict = verdict;
  target.cause = context.cause(code, std::move(text));
  if (verdict == Verdict::torn) context.set_worker(worker, WorkerState::torn);
  if (verdict == Verdict::unknown) context.set_worker(worker, WorkerState::unknown);
}

void lose_before_load(Context& context, Target& target, Verdict verdict, CauseCode code, std::string text) {
  judge(context, target, verdict, code, std::move(text));
  target.included = false;
  target.counted_lost = true;
}

void retry_later(Context& context, Update& update, Target& target) {
  start_retry(context, update, target, kRetryFirst * (1 << (target.tries - 1)));
}

void on_labelled(Context& context, Update& update, Target& target, const Outcome& outcome) {
  if (outcome.ok()) return send_load(context, update, target);
  const bool lost = outcome.kind == OutcomeKind::untouched || outcome.kind == OutcomeKind::not_sent;
  if (lost) target.label_changed = false;
  lose_before_load(context, target, lost ? Verdict::untouched : Verdict::unknown,
                   outcome.kind == OutcomeKind::not_sent ? CauseCode::unreachable : CauseCode::label_failed,
                   fmt::format("label: {}", outcome.text));
  if (update.transfer) return label_refused(context, update, target);
  evaluate_verdicts(context, update);
}

// The answer was lost, not the engine: once nothing of the load can still run, the engine tells what it holds. False if
// there is no way to ask.
bool ask_what_it_holds(Context& context, Update& update, Target& target, const std::string& lost) {
  Worker& worker = context.worker_of(target);
  const bool stays = update.policy.pause != PauseOwner::never && !target.asked;
  if (!stays || worker.earlier.empty() || !can_barrier_all(context.traits_of(worker), worker)) return false;
  target.asked = true;
  target.intended.clear();  // the plan ended with the answer
  target.cause = context.cause(CauseCode::load_unknown, lost);
  context.reset_earlier(worker);
  Operation operation;
  operation.kind = OperationKind::barrier;
  context.call(update, target, Step::asking, std::move(operation));
  return true;
}

// What a load without effect leaves. One that was sent before it, and whose answer was lost, may have done anything.
Verdict as_before(const Target& target) {
  return target.may_have_loaded ? Verdict::torn : Verdict::untouched;
}

// The new label isn't proof enough of what was loaded (protocol.md section 5); an old one shows that the load is due.
void on_asked(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  const std::string before = target.cause ? target.cause->message : "";
  const std::string text = fmt::format("{}; then: {}", before, outcome.text);
  if (outcome.kind == OutcomeKind::not_sent) {
    note_death(context, update, target, update.version);
    judge(context, target, Verdict::unknown, CauseCode::unreachable, text);
  } else if (!outcome.ok() || !outcome.reading) {
    judge(context, target, Verdict::unknown, CauseCode::load_unknown, text);
  } else if (observe(context, worker, *outcome.reading)) {
    worker.earlier.clear();
    note_death(context, update, target, update.version);
    take_new_process(target, worker, *outcome.reading);
    judge(context, target, Verdict::unknown, CauseCode::restarted, before + "; then a new process answered");
  } else {
    worker.earlier.clear();
    const bool new_label = outcome.reading->label == update.version.label;
    target.may_have_loaded = true;  // an old label doesn't tell: some loads fail behind the weights
    target.verdict = as_before(target);
    const bool took_it = context.traits_of(worker).load_sets_label && new_label &&
                         !trusts_answers(update);  // there an answer is the evidence
    if (!took_it) return send_load(context, update, target);
    target.verdict = Verdict::loaded;
    target.unproven = true;
    target.load_took = context.now() - target.load_started;
    context.set_worker(worker, WorkerState::loaded, worker.cause);
    return after_label(context, update, target);
  }
  evaluate_verdicts(context, update);
}

// Whether it is still the process that was labelled: only that one is sent the load.
void on_read_again(Context& context, Update& update, Target& target, const Outcome& outcome) {
  const bool answered = outcome.ok() && outcome.reading;
  const bool is_new = answered && observe(context, context.worker_of(target), *outcome.reading);
  if (answered && !is_new) return send_load_now(context, update, target);
  if (is_new) take_new_process(target, context.worker_of(target), *outcome.reading);
  const CauseCode code = is_new ? CauseCode::restarted : CauseCode::unreachable;
  const std::string text = is_new ? "before the load a new process answers" : "read before the load: " + outcome.text;
  if (is_new && target.load_sent) note_death(context, update, target, update.version);
  const auto lose = target.load_sent ? judge : lose_before_load;
  lose(context, target, Verdict::unknown, code, text);
  evaluate_verdicts(context, update);
}

void on_loaded(Context& context, Update& update, Target& target, const Outcome& outcome) {
  if (update.transfer) return on_transferred(context, update, target, outcome);
  const DialectTraits& traits = context.traits_of(context.worker_of(target));
  target.needs_restart = outcome.needs_restart;
  const std::string text = fmt::format("load of v{}: {}", update.version.version, outcome.text);
  switch (outcome.kind) {
    case OutcomeKind::ok:
      target.verdict = Verdict::loaded;
      target.load_took = context.now() - target.load_started;
      context.set_worker(context.worker_of(target), WorkerState::loaded, context.worker_of(target).cause);
      if (mutant(Mutant::acknowledged_is_success)) {
        --update.countdown.unloaded;
        return judge_verified(context, update, target, outcome);
      }
      if (traits.load_sets_label) return after_label(context, update, target);
      return context.call(update, target, Step::labelling_version, label_operation(update.version.label));
    case OutcomeKind::untouched:
      if (outcome.code == ErrorCode::checkpoint_missing && traits.missing_directory_harmless &&
          ++target.tries < kDirectoryTries)
        return retry_later(context, update, target);
      judge(context, target, as_before(target),
            outcome.code == ErrorCode::permission_denied ? CauseCode::credentials : CauseCode::load_failed, text);
      break;
    case OutcomeKind::not_sent:
      if (target.may_have_loaded)
        judge(context, target, Verdict::unknown, CauseCode::unreachable, text);
      else
        lose_before_load(context, target, Verdict::untouched, CauseCode::unreachable, text);
      break;
    case OutcomeKind::unknown:
      if (outcome.code == ErrorCode::connection_lost && ask_what_it_holds(context, update, target, text)) return;
      judge(context, target, Verdict::unknown, CauseCode::load_unknown, text);
      break;
    default:
      judge(context, target, Verdict::torn, target.needs_restart ? CauseCode::needs_restart : CauseCode::load_failed,
            text);
      break;
  }
  evaluate_verdicts(context, update);
}

void on_version_labelled(Context& context, Update& update, Target& target, const Outcome& outcome) {
  if (outcome.ok()) return after_label(context, update, target);
  judge(context, target, Verdict::torn, CauseCode::label_failed, fmt::format("label: {}", outcome.text));
  evaluate_verdicts(context, update);
}

void on_flushed(Context& context, Update& update, Target& target, const Outcome& outcome) {
  if (outcome.ok()) {
    target.tries = 0;
    return send_verify(context, update, target);
  }
  if (outcome.kind == OutcomeKind::untouched && ++target.tries < kFlushTries)
    return retry_later(context, update, target);
  judge(context, target, Verdict::torn, CauseCode::flush_failed, fmt::format("flush: {}", outcome.text));
  evaluate_verdicts(context, update);
}

// Someone continued it while it loaded: what ran meanwhile may have filled its caches. Another pause and flush, and it
// is said.
void pause_again(Context& context, Update& update, Target& target) {
  ++target.repauses;
  context.record(RecordKind::worker_state, update, target.worker,
                 {{"state", std::string(kContinuedByOther)},
                  {"message", "it was running although its load had begun; paused again"}});
  target.pause_sent = true;
  target.was_paused = false;  // whoever had paused it continued it: the pause that follows is ours to undo
  Operation operation;
  operation.kind = OperationKind::pause;
  operation.pause_mode = update.policy.pause_mode;
  context.call(update, target, Step::repausing, std::move(operation));
}

// From LOADED back to LOADING; the books of what is still to load follow.
void load_again(Context& context, Update& update, Target& target) {
  ++update.countdown.unloaded;
  target.verdict = as_before(target);
  target.tries = 0;
  send_load_now(context, update, target);
}

void on_verified(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  const bool is_new = outcome.reading && observe(context, worker, *outcome.reading);
  if (is_new) {
    note_death(context, update, target, update.version);
    take_new_process(target, worker, *outcome.reading);
    judge(context, target, Verdict::unknown, CauseCode::restarted,
          "verify: a new process answers; the one that loaded is gone");
  } else if (outcome.ok() && outcome.reading) {
    const bool running = !outcome.reading->paused && update.policy.pause == PauseOwner::gateway;
    if (running && target.repauses < kRepausesMax) return pause_again(context, update, target);
    const bool proven = outcome.evidence > Evidence::label && !outcome.vacuous;
    if (std::exchange(target.unproven, false) && !proven) return load_again(context, update, target);
    return judge_verified(context, update, target, outcome);
  } else if (outcome.kind == OutcomeKind::mismatch) {
    judge(context, target, Verdict::torn, CauseCode::verify_failed, fmt::format("verify: {}", outcome.text));
  } else if (outcome.kind == OutcomeKind::not_sent) {
    note_death(context, update, target, update.version);
    judge(context, target, Verdict::unknown, CauseCode::unreachable, fmt::format("verify: {}", outcome.text));
  } else if (++target.tries < kReadTries) {
    return retry_later(context, update, target);
  } else {
    judge(context, target, Verdict::loaded, CauseCode::verify_failed, fmt::format("verify: {}", outcome.text));
  }
  evaluate_verdicts(context, update);
}

void on_repaused(Context& context, Update& update, Target& target, const Outcome& outcome) {
  if (outcome.ok()) {
    target.tries = 0;
    if (update.policy.pause_mode != PauseMode::keep) return send_flush(context, update, target);
    return send_verify(context, update, target);
  }
  judge(context, target, outcome.kind == OutcomeKind::unknown ? Verdict::unknown : Verdict::loaded,
        CauseCode::pause_failed, fmt::format("pause (it was continued by another): {}", outcome.text));
  evaluate_verdicts(context, update);
}

}  // namespace

// A collective writes no label, so it is due there also where answers are believed.
void intend_after_load(Context& context, Update& update, Target& target) {
  const DialectTraits& traits = context.traits_of(context.worker_of(target));
  if (update.transfer || !traits.load_sets_label) context.intend(update, target, label_operation(update.version.label));
  if (flushes_after_load(update, traits)) context.intend(update, target, flush_operation(update));
}

// The steps that follow in the worker's pipeline are recorded with its first one.
void launch_pipeline(Context& context, Update& update, Target& target) {
  if (target.adapter) return launch_adapter(context, update, target);
  target.tries = 0;
  // Live traffic would show the label; and where an answer is believed nobody reads it.
  if (update.policy.pause == PauseOwner::never || trusts_answers(update)) {
    send_load(context, update, target);
  } else {
    target.label_changed = true;
    context.call(update, target, Step::labelling, label_operation("loading:" + update.id));
    if (!update.transfer) context.intend(update, target, load_operation(update));
  }
  if (!update.transfer) intend_after_load(context, update, target);
}

void begin_loading(Context& context, Update& update) {
  context.set_state(update, UpdateState::loading);
  if (update.policy.digest == DigestPolicy::overlap && update.sealed && !update.sealed->blind &&
      update.version.digest.empty()) {
    context.emit(ComputeDigest{update.id, update.version.directory});
  }
  assign_batches(context, update);
  if (mutant(Mutant::commit_before_verify)) context.pair_of(update).committed = update.version;
  context.start_timer(update, "load", update.policy.deadlines.load);
  if (update.transfer && !group_is_whole(context, update))
    return fail_transfer(context, update, "a worker of the group could not be paused");
  evaluate_verdicts(context, update);
}

void transfer_succeeded(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    if (target.step != Step::answered) continue;
    target.verdict = Verdict::loaded;
    target.load_took = context.now() - target.load_started;
    Worker& worker = context.worker_of(target);
    context.set_worker(worker, WorkerState::loaded, worker.cause);
    context.call(update, target, Step::labelling_version, label_operation(update.version.label));
  }
}

void on_loading_call(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome) {
  switch (target.step) {
    case Step::labelling:
      return on_labelled(context, update, target, outcome);
    case Step::loading:
      return on_loaded(context, update, target, outcome);
    case Step::asking:
      if (kind != OperationKind::barrier) return on_read_again(context, update, target, outcome);
      return on_asked(context, update, target, outcome);
    case Step::labelling_version:
      return on_version_labelled(context, update, target, outcome);
    case Step::flushing:
      return on_flushed(context, update, target, outcome);
    case Step::verifying:
      return on_verified(context, update, target, outcome);
    case Step::repausing:
      return on_repaused(context, update, target, outcome);
    default:
      return;
  }
}

void on_load_retry(Context& context, Update& update, Target& target) {
  if (target.adapter) return on_adapter_timer(context, update, target);
  if (target.call) return;
  switch (target.step) {
    case Step::loading:
      return send_load(context, update, target);
    case Step::flushing:
      return send_flush(context, update, target);
    case Step::verifying:
      return send_verify(context, update, target);
    default:
      return;
  }
}

void on_load_timer(Context& context, Update& update) {
  if (is_transferring(update))
    return fail_transfer(context, update, fmt::format("not done within {} ms", update.policy.deadlines.load.count()));
  for (auto& [url, target] : update.targets) {
    if (!target.included || target.batch != update.batch) continue;
    const std::string text = fmt::format("load of v{}: no answer within {} ms", update.version.version,
                                         update.policy.deadlines.load.count());
    if (target.step == Step::paused) {
      judge(context, target, Verdict::untouched, CauseCode::load_failed, text + " (not sent)");
    } else if (before_verify(target.step)) {
      const bool unanswered = target.call.has_value();
      context.give_up(target);
      const Verdict rest = target.verdict == Verdict::loaded ? Verdict::torn : as_before(target);
      judge(context, target, unanswered ? Verdict::unknown : rest,
            unanswered ? CauseCode::load_unknown : CauseCode::load_failed, text);
    }
  }
  evaluate_verdicts(context, update);
}

void on_verify_timer(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    if (!in_pipeline(target.step)) continue;
    const bool changing = target.call && target.step != Step::verifying &&
                          target.step != Step::adapter_listing;  // a pause or flush after a foreign continue
    context.give_up(target);
    judge(context, target, changing ? Verdict::unknown : Verdict::loaded, CauseCode::verify_failed,
          fmt::format("verify: no answer within {} ms", update.policy.deadlines.verify.count()));
  }
  evaluate_verdicts(context, update);
}

void on_straggler_timer(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    if (!in_pipeline(target.step)) continue;
    context.give_up(target);
    judge(context, target, Verdict::unknown, CauseCode::load_unknown,
          "load: much slower than the others; the fleet did not wait for it");
  }
  evaluate_verdicts(context, update);
}

}  // namespace weighlock::protocol
