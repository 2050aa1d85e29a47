// Bringing one worker to a version, step by step: the catch-up after a commit, and restoring (protocol.md sections 2,
// 5).
//
//   heal_reading -> [heal_pausing] -> heal_labelling -> heal_loading [-> heal_emptying -> heal_reloading] ->
//   [heal_labelling_version]
//   -> [heal_flushing] -> heal_verifying -> resume
//
// A load that comes behind an answer that took long waits for one more heal_reading, whether it is still that process.
#include <fmt/format.h>

#include <utility>

#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/worker_calls.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

constexpr int kTries = 3;
constexpr Milliseconds kRetry = 500ms;
constexpr int kRepausesMax = 2;

std::string goal_label(Context& context, const Update& update, const Target& target) {
  if (target.goal->lineage != 0) return target.goal->label;
  return start_model_label(context.pair_of(update).spec.policy.label_format, context.worker_of(target));
}

std::string goal_name(const VersionRef& goal) {
  return goal.lineage == 0 ? "the start model" : fmt::format("v{}", goal.version);
}

void send_label(Context& context, Update& update, Target& target, Step step, std::string label) {
  Operation operation;
  operation.kind = OperationKind::set_label;
  operation.label = std::move(label);
  target.label_changed = true;
  context.call(update, target, step, std::move(operation));
}

// What ran on torn weights is worth nothing, so a heal flushes everything. But in mode keep an engine may hold requests
// since before anything was torn, and refuses while it does to flush, within a load too. There the flush is a step of
// its own, that may be owed.
PauseMode heal_mode(const Update& update) {
  return update.policy.pause_mode == PauseMode::keep ? PauseMode::keep : PauseMode::abort;
}

bool flushes_by_itself(Context& context, const Update& update, const Target& target) {
  return !context.traits_of(context.worker_of(target)).load_flushes || heal_mode(update) == PauseMode::keep;
}

void send_load_now(Context& context, Update& update, Target& target, Step step) {
  Operation operation;
  operation.kind = step == Step::heal_emptying ? OperationKind::load_empty : OperationKind::load;
  if (operation.kind == OperationKind::load) {
    operation.directory = target.goal->directory;
    operation.label = goal_label(context, update, target);
  }
  operation.pause_mode = heal_mode(update);
  target.load_sent = true;
  context.call(update, target, step, std::move(operation));
}

void send_read(Context& context, Update& update, Target& target) {
  Operation operation;
  operation.kind = OperationKind::read_state;
  const Worker& worker = context.worker_of(target);
  operation.doubt_pause = may_be_probed(context, worker) && !worker.paused_by_us && !target.was_paused;
  context.call(update, target, Step::heal_reading, std::move(operation));
}

void send_load(Context& context, Update& update, Target& target, Step step) {
  if (!may_be_another(context, target)) return send_load_now(context, update, target, step);
  target.waiting_load = step;
  target.tries = 0;
  send_read(context, update, target);
}

void send_flush(Context& context, Update& update, Target& target) {
  Operation operation;
  operation.kind = OperationKind::flush;
  operation.pause_mode = heal_mode(update);
  context.call(update, target, Step::heal_flushing, std::move(operation));
}

void send_verify(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  const Evidence best = context.traits_of(worker).evidence_best;
  Operation operation;
  operation.kind = OperationKind::verify;
  operation.directory = target.goal->directory;
  operation.label = goal_label(context, update, target);
  operation.evidence = std::min(update.policy.evidence.value_or(best), best);
  context.call(update, target, Step::heal_verifying, std::move(operation));
}

void fail_heal(Context& context, Update& update, Target& target, CauseCode code, std::string_view step,
               const Outcome& outcome) {
  const std::string before = target.cause ? target.cause->message + "; " : "";
  const bool known = !outcome.text.empty() && before.find(outcome.text) != std::string::npos;
  const std::string_view words = known ? std::string_view("the same again") : std::string_view(outcome.text);
  if (outcome.needs_restart) code = CauseCode::needs_restart;
  if (outcome.kind == OutcomeKind::not_sent) code = CauseCode::unreachable;
  if (outcome.kind == OutcomeKind::unknown && code != CauseCode::needs_restart) code = CauseCode::load_unknown;
  if (target.verdict != Verdict::unknown)
    target.verdict = outcome.kind == OutcomeKind::unknown ? Verdict::unknown : Verdict::torn;
  quarantine(context, update, target,
             context.cause(code, fmt::format("{}heal to {}: {}: {}", before, goal_name(*target.goal), step, words)));
}

void after_load(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  target.tries = 0;
  if (!context.traits_of(worker).load_sets_label)
    return send_label(context, update, target, Step::heal_labelling_version, goal_label(context, update, target));
  if (flushes_by_itself(context, update, target)) return send_flush(context, update, target);
  send_verify(context, update, target);
}

void on_heal_loaded(Context& context, Update& update, Target& target, const Outcome& outcome) {
  if (outcome.ok()) return after_load(context, update, target);
  const bool first = target.step == Step::heal_loading;
  const bool curable = outcome.kind == OutcomeKind::touched && !outcome.needs_restart;
  if (first && curable && context.traits_of(context.worker_of(target)).heal_needs_empty_load)
    return send_load(context, update, target, Step::heal_emptying);
  fail_heal(context, update, target, CauseCode::heal_failed, "load", outcome);
}

void on_heal_verified(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  const bool is_new = outcome.reading && observe(context, worker, *outcome.reading);
  if (is_new) {
    note_death(context, update, target, *target.goal);
    target.verdict = Verdict::unknown;
    target.paused = outcome.reading->paused;
    return quarantine(context, update, target,
                      context.cause(CauseCode::restarted, "heal: a new process answers; the one that loaded is gone"));
  }
  if (outcome.ok() && outcome.reading) {
    const bool held = target.paused || target.was_paused;
    if (!outcome.reading->paused && held && target.repauses < kRepausesMax) {
      ++target.repauses;
      target.paused = false;
      target.was_paused = false;
      return start_heal(context, update, target, *target.goal);  // it ran while it was being healed: once more, paused
    }
    target.verdict = Verdict::verified;
    target.evidence = outcome.evidence;
    target.vacuous = outcome.vacuous;
    target.switched_at = context.now();
    worker.version = *target.goal;
    worker.version->label = goal_label(context, update, target);
    worker.evidence = outcome.evidence;
    context.set_worker(worker, WorkerState::verified);
    const Pair& pair = context.pair_of(update);
    const bool leaves = update.kind == UpdateKind::leave && (!pair.removing.empty() || pair.reconnect);
    if (pair.committed && !leaves && !within_lag(*pair.committed, *target.goal, update.policy.max_lag))
      return quarantine(context, update, target,
                        context.cause(CauseCode::lagging,
                                      fmt::format("it was brought to {}, since the files of v{}, which is committed, "
                                                  "can't be trusted; publish a higher version",
                                                  goal_name(*target.goal), pair.committed->version)));
    return start_resume(context, update, target);
  }
  if (outcome.kind == OutcomeKind::unknown && ++target.tries < kTries)
    return start_retry(context, update, target, kRetry);
  fail_heal(context, update, target, CauseCode::heal_failed, "verify", outcome);
}

void on_heal_read(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  if (!outcome.ok() || !outcome.reading) {
    if (outcome.kind == OutcomeKind::unknown && ++target.tries < kTries)
      return start_retry(context, update, target, kRetry);
    return fail_heal(context, update, target, CauseCode::heal_failed, "read", outcome);
  }
  const std::optional<Step> waiting = std::exchange(target.waiting_load, std::nullopt);
  const bool is_new = observe(context, worker, *outcome.reading);
  if (is_new) {
    if (target.load_sent) note_death(context, update, target, update.version);
    target.needs_restart = false;  // it had one
  }
  target.tries = 0;
  target.incarnation = worker.incarnation;
  target.paused = outcome.reading->paused;
  target.was_paused = target.was_paused && target.paused && !worker.paused_by_us;
  target.pause_sent = target.pause_sent || worker.paused_by_us;
  context.set_worker(worker, WorkerState::healing, worker.cause);
  const bool is_held = update.policy.pause == PauseOwner::caller || target.paused;
  if (waiting && !is_new && is_held) return send_load_now(context, update, target, *waiting);
  if (is_held) return send_label(context, update, target, Step::heal_labelling, "loading:" + update.id);
  target.pause_sent = true;
  Operation operation;
  operation.kind = OperationKind::pause;
  operation.pause_mode = PauseMode::abort;
  context.call(update, target, Step::heal_pausing, std::move(operation));
}

void on_heal_paused(Context& context, Update& update, Target& target, const Outcome& outcome) {
  if (!outcome.ok()) return fail_heal(context, update, target, CauseCode::pause_failed, "pause", outcome);
  target.paused = true;
  if (!target.paused_at) target.paused_at = context.now();
  send_label(context, update, target, Step::heal_labelling, "loading:" + update.id);
}

}  // namespace

bool within_lag(const VersionRef& committed, const VersionRef& version, int max_lag) {
  if (version.same_version(committed)) return true;
  const std::int64_t behind = committed.version - version.version;
  return version.lineage == committed.lineage && behind >= 0 && behind <= max_lag;
}

std::optional<VersionRef> heal_goal(Context& context, const Update& update, const Target& target) {
  if (update.kind == UpdateKind::join) return join_goal(context.pair_of(update), context.worker_of(target));
  const std::optional<VersionRef> good = context.pair_of(update).last_good;
  if (good && good->lineage == 0 && context.worker_of(target).start_path != good->directory) return std::nullopt;
  return good;
}

void heal_or_quarantine(Context& context, Update& update, Target& target) {
  if (resume_cache(context, update, target)) return;
  if (target.needs_restart)
    return quarantine(
        context, update, target,
        context.cause(CauseCode::needs_restart, target.cause ? target.cause->message : "it needs a restart"));
  if (mutant(Mutant::heal_reloads_new) && update.kind == UpdateKind::update)
    return start_heal(context, update, target, update.version);
  if (const auto goal = heal_goal(context, update, target)) return start_heal(context, update, target, *goal);
  const Pair& pair = context.pair_of(update);
  const std::string why = pair.last_good ? fmt::format("it started from '{}', and only '{}' was inspected",
                                                       context.worker_of(target).start_path, pair.last_good->directory)
                                         : pair.rollback_reason;
  const std::string before = target.cause ? target.cause->message + "; " : "";
  quarantine(context, update, target,
             context.cause(CauseCode::no_last_good, before + "nothing to heal it with: " + why));
}

// Begins with a reading: since the last one the process may have become another, and what follows would go to that one.
void start_heal(Context& context, Update& update, Target& target, VersionRef goal) {
  Worker& worker = context.worker_of(target);
  if (!has_its_memory(worker))  // a load into what is released ends it
    return quarantine(context, update, target, target.cause.value_or(context.cause(CauseCode::load_unknown, "")));
  target.goal = std::move(goal);
  target.tries = 0;
  target.waiting_load.reset();
  context.cancel_timer(update, target.worker);  // of a repetition that isn't needed any more
  context.set_worker(worker, WorkerState::healing, worker.cause);
  send_read(context, update, target);
}

void on_heal_call(Context& context, Update& update, Target& target, OperationKind /*kind*/, const Outcome& outcome) {
  if (make_way_for_update(context, update)) return;
  switch (target.step) {
    case Step::heal_reading:
      on_heal_read(context, update, target, outcome);
      break;
    case Step::heal_pausing:
      on_heal_paused(context, update, target, outcome);
      break;
    case Step::heal_labelling:
      if (outcome.ok()) {
        send_load(context, update, target, Step::heal_loading);
      } else {
        fail_heal(context, update, target, CauseCode::label_failed, "label", outcome);
      }
      break;
    case Step::heal_emptying:
      if (outcome.ok()) {
        send_load(context, update, target, Step::heal_reloading);
      } else {
        fail_heal(context, update, target, CauseCode::heal_failed, "load of no tensors", outcome);
      }
      break;
    case Step::heal_loading:
    case Step::heal_reloading:
      on_heal_loaded(context, update, target, outcome);
      break;
    case Step::heal_labelling_version:
      if (!outcome.ok()) {
        fail_heal(context, update, target, CauseCode::label_failed, "label", outcome);
      } else if (flushes_by_itself(context, update, target)) {
        send_flush(context, update, target);
      } else {
        send_verify(context, update, target);
      }
      break;
    case Step::heal_flushing:
      if (outcome.ok() || (outcome.kind == OutcomeKind::untouched && heal_mode(update) == PauseMode::keep)) {
        target.tries = 0;
        send_verify(context, update, target);
      } else if (outcome.kind == OutcomeKind::untouched && ++target.tries < kTries) {
        start_retry(context, update, target, kRetry);
      } else {
        fail_heal(context, update, target, CauseCode::flush_failed, "flush", outcome);
      }
      break;
    case Step::heal_verifying:
      on_heal_verified(context, update, target, outcome);
      break;
    default:
      break;
  }
  finish_if_done(context, update);
}

void on_heal_retry(Context& context, Update& update, Target& target) {
  if (target.call) return;
  if (target.step == Step::heal_reading) send_read(context, update, target);
  if (target.step == Step::heal_flushing) send_flush(context, update, target);
  if (target.step == Step::heal_verifying) send_verify(context, update, target);
}

void note_death(Context& context, Update& update, const Target& target, const VersionRef& version) {
  const std::string incarnation = target.worker + " " + target.incarnation;
  if (!context.pair_of(update).deaths[version_key(version)].insert(incarnation).second) return;
  context.record(RecordKind::death, update, target.worker,
                 {{"version", version_key(version)}, {"incarnation", incarnation}});
}

bool is_suspect(const Pair& pair, const VersionRef& version) {
  const auto deaths = pair.deaths.find(version_key(version));
  return deaths != pair.deaths.end() && deaths->second.size() >= kDeathsMax;
}

std::string why_suspect(const Pair& pair, const VersionRef& version) {
  constexpr std::size_t kNamed = 4;
  const auto deaths = pair.deaths.find(version_key(version));
  const std::set<std::string> all = deaths == pair.deaths.end() ? std::set<std::string>() : deaths->second;
  std::string names;
  std::size_t named = 0;
  for (const std::string& one : all) {
    if (named++ == kNamed) break;
    names += (names.empty() ? "" : ", ") + one;
  }
  if (all.size() > kNamed) names += fmt::format(" and {} more", all.size() - kNamed);
  return fmt::format("v{} was the last thing sent to {} engines that died ({})", version.version, all.size(), names);
}

}  // namespace weighlock::protocol
