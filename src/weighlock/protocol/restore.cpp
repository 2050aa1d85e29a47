// RESTORING: the compensation (protocol.md section 1). Untouched workers get their label back and are resumed; touched
// ones are healed to last good; whoever can't be is quarantined with its cause. Leaving workers get the same, once.
#include <fmt/format.h>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

// Nothing was asked of it yet: what it was, it is.
bool nothing_done(const Target& target) {
  return !target.pause_sent && !target.label_changed && !target.load_sent;
}

void restore_target(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  if (target.step == Step::done) return;
  if (nothing_done(target) && !target.cause && worker.earlier.empty() && has_its_memory(worker)) {
    target.step = Step::done;
    return context.set_worker(worker, target.former_state, target.former_cause);
  }
  if (mutant(Mutant::barrier_skipped) && !target.load_sent) worker.earlier.clear();
  if (!worker.earlier.empty()) return start_barrier(context, update, target);
  const bool gone =
      target.cause && (target.cause->code == CauseCode::unreachable || target.cause->code == CauseCode::restarted);
  if (gone) return quarantine(context, update, target, *target.cause);
  if (target.verdict == Verdict::untouched) return start_former_label(context, update, target);
  heal_or_quarantine(context, update, target);
}

void resume_everyone(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    if (target.step != Step::done && target.pause_sent && context.worker_of(target).earlier.empty()) {
      start_resume(context, update, target);
    } else {
      target.step = Step::done;
    }
  }
}

}  // namespace

void begin_restoring(Context& context, Update& update, Error error) {
  if (hands_memory_back(context, update, "", &error)) return;
  context.cancel_all_timers(update);
  update.error = std::move(error);
  if (update.transfer) transfer_undone(context, update);
  context.set_state(update, UpdateState::restoring);
  context.start_timer(update, "restore", update.policy.deadlines.restore_or_default());
  for (auto& [url, target] : update.targets) context.give_up(target);
  if (!update.members_fixed) {  // only read so far
    update.targets.clear();
    update.error->message += hold_without_memory(context, update);
  }
  if (is_lora(context, update)) return begin_adapter_restoring(context, update);
  if (mutant(Mutant::no_resume_on_error)) return end_update(context, update, UpdateState::failed, update.error);
  if (mutant(Mutant::resume_everyone)) {
    resume_everyone(context, update);
    return finish_if_done(context, update);
  }
  for (auto& [url, target] : update.targets) restore_target(context, update, target);
  finish_if_done(context, update);
}

void start_leave(Context& context, const std::string& name, const std::vector<std::string>& workers, bool takes_over) {
  Pair& pair = context.state().pairs.at(name);
  Update update;
  update.number = context.state().next_update++;
  update.id = fmt::format("{}-{}", context.state().boot, update.number);
  update.kind = UpdateKind::leave;
  update.takes_over = takes_over;
  update.pair = name;
  update.policy = pair.spec.policy;
  update.version = pair.committed.value_or(VersionRef{});
  update.requested_at = context.now();
  for (const std::string& url : workers) update.targets[url].worker = url;
  const UpdateId id = update.id;
  pair.active = id;
  begin_leave(context, context.state().updates.emplace(id, std::move(update)).first->second);
}

void begin_leave(Context& context, Update& update) {
  std::set<std::string> workers;
  for (const auto& [url, target] : update.targets) workers.insert(url);
  if (!take_locks(context, update, std::move(workers))) return;
  context.set_state(update, UpdateState::restoring);
  context.start_timer(update, "restore", update.policy.deadlines.restore_or_default());
  for (auto& [url, target] : update.targets) {
    Worker& worker = context.worker_of(target);
    target.former_state = worker.state;
    target.former_cause = worker.cause;
  }
  json::object body = describe_targets(update);
  body["kind"] = update.takes_over ? "takeover" : "leave";
  context.record(RecordKind::targets, update, "", std::move(body));
  if (!update.takes_over) context.start_timer(update, "silent_survey", limits::kSilentSurvey);
  for (auto& [url, target] : update.targets) read_worker(context, update, target);
}

void on_leave_surveyed(Context& context, Update& update, Target& target) {
  const Worker& worker = context.worker_of(target);
  const bool curable = target.reached && !(worker.cause && worker.cause->code == CauseCode::needs_restart);
  const std::optional<VersionRef> goal = heal_goal(context, update, target);
  if (curable && goal) {
    target.pause_sent = worker.paused_by_us;
    start_heal(context, update, target, *goal);
  } else {
    target.step = Step::done;
  }
  finish_if_done(context, update);
}

void on_restore_timer(Context& context, Update& update) {
  if (is_lora(context, update) && update.kind == UpdateKind::join) {
    for (auto& [url, target] : update.targets) {
      context.give_up(target);
      judge_adapter(context, target, Verdict::unknown, CauseCode::adapter_failed,
                    "not done within the load's deadline");
    }
    return adapter_join_judged(context, update);
  }
  if (is_lora(context, update)) return on_adapter_restore_timer(context, update);
  for (auto& [url, target] : update.targets) {
    if (target.step == Step::done) continue;
    context.give_up(target);
    const Worker& worker = context.worker_of(target);
    const std::string before = target.cause ? target.cause->message + "; " : "";
    const CauseCode code = worker.earlier.empty() ? CauseCode::heal_failed : CauseCode::outstanding;
    quarantine(context, update, target,
               context.cause(code, fmt::format("{}not brought back within {} ms", before,
                                               update.policy.deadlines.restore_or_default().count())));
  }
  finish_if_done(context, update);
}

}  // namespace weighlock::protocol
