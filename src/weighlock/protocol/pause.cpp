// PAUSING: who takes part, and the bracket's first half (protocol.md sections 1, 3, 7).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/policy_fit.hpp"
#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {

bool may_take_part(const Pair& pair, const Update& update, const Target& target, const Worker& worker) {
  if (!target.reached) return false;
  if (!has_its_memory(worker) && !may_be_resumed(pair, update, worker)) return false;
  if (worker.state != WorkerState::quarantined || !worker.cause) return true;
  const CauseCode code = worker.cause->code;
  if (code == CauseCode::operator_hold || code == CauseCode::needs_restart) return false;
  return code != CauseCode::suspect || !worker.version || !worker.version->same_version(update.version);
}

namespace {

// What was asked explicitly and a worker can't do ends the update before anyone is paused.
std::optional<Error> refuse_policy(Context& context, const Update& update) {
  const Files files = update.sealed->blind ? Files::unseen : Files::seen;
  for (const auto& [url, target] : update.targets) {
    const Worker& worker = context.state().workers.at(url);
    if (!target.included || !worker.dialect) continue;
    const auto why = why_unfit(update.policy, context.traits_of(worker), url, files);
    if (!why) continue;
    return Error{ErrorCode::not_supported, fmt::format("pair '{}': v{}: {}", update.pair, update.version.version, *why),
                 nullptr};
  }
  return std::nullopt;
}

// A worker that the survey did not reach is out: it was sent nothing, and may not serve until it is looked at again.
void leave_out(Context& context, Target& target, Worker& worker) {
  target.included = false;
  target.step = Step::done;
  target.verdict = worker.state == WorkerState::ready ? Verdict::untouched : Verdict::unknown;
  target.counted_lost = true;
  if (!target.cause) target.cause = worker.cause;
  if (worker.state == WorkerState::ready || worker.state == WorkerState::joining ||
      worker.state == WorkerState::foreign) {
    context.set_worker(worker, WorkerState::quarantined, target.cause);
    context.emit(Fence{worker.url, worker.pair, *target.cause});
  }
}

void fix_members(Context& context, Update& update) {
  const bool any_ready = std::any_of(update.targets.begin(), update.targets.end(), [&](const auto& e) {
    return e.second.included && context.state().workers.at(e.first).state == WorkerState::ready;
  });
  for (auto& [url, target] : update.targets) {
    Worker& worker = context.state().workers.at(url);
    target.former_state = worker.state;
    target.former_cause = worker.cause;
    target.former_version = worker.version;
    target.role = worker.state == WorkerState::ready || !any_ready ? Role::member : Role::extra;
  }
  update.members_fixed = true;
}

}  // namespace

std::optional<Error> refuse_quorum(const Update& update, const std::string& reasons) {
  int members = 0;
  int lost = 0;
  for (const auto& [url, target] : update.targets) {
    if (target.role != Role::member) continue;
    ++(target.included ? members : lost);
  }
  const bool all_asked = update.policy.on_failure == OnFailure::rollback_all;
  const int needed = all_asked ? members + lost : update.policy.quorum.needed(members);
  if (members >= needed) return std::nullopt;
  return Error{ErrorCode::quorum_lost,
               fmt::format("pair '{}': v{}: {} workers are needed, and only {} of those that serve can be updated{}",
                           update.pair, update.version.version, needed, members, reasons),
               nullptr};
}

json::object describe_targets(const Update& update) {
  json::array list;
  for (const auto& [url, target] : update.targets) {
    json::object one{{"worker", url},
                     {"role", target.role == Role::member ? "member" : "extra"},
                     {"included", target.included},
                     {"incarnation", target.incarnation},
                     {"was_paused", target.was_paused},
                     {"paused", target.paused},
                     {"label", target.former_label},
                     {"state", name(target.former_state)}};
    if (target.former_cause) one["cause"] = cause_body(target.former_cause);
    if (!target.included && target.cause) one["why"] = cause_body(target.cause);
    list.push_back(std::move(one));
  }
  return {{"targets", std::move(list)}};
}

namespace {

void pause_all(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    if (!target.included) continue;
    Worker& worker = context.worker_of(target);
    const bool ours_already = target.paused && worker.paused_by_us;
    if (target.paused) context.set_worker(worker, WorkerState::paused, worker.cause);
    // One that we hold paused is paused again, which is harmless: SGLang reads as paused also while it runs unwell.
    if (update.policy.pause != PauseOwner::gateway || target.was_paused) {
      target.step = Step::paused;
      target.pause_sent = ours_already;
      continue;
    }
    target.pause_sent = true;
    context.set_worker(worker, WorkerState::pausing, worker.cause);
    Operation operation;
    operation.kind = OperationKind::pause;
    operation.pause_mode = update.policy.pause_mode;
    context.call(update, target, Step::pausing, std::move(operation));
  }
}

void pausing_ended(Context& context, Update& update) {
  if (update.waiting > 0) return;
  int members = 0;
  int lost = 0;
  bool anyone = false;
  for (const auto& [url, target] : update.targets) {
    if (target.step == Step::pausing) return;
    anyone = anyone || target.included;
    if (target.role != Role::member) continue;
    ++members;
    if (!target.included) ++lost;
  }
  context.cancel_timer(update, "pause");
  const bool all_asked = update.policy.on_failure == OnFailure::rollback_all;
  const int left = members - lost;
  if (anyone && left > 0 && !(all_asked && lost > 0) && left >= update.policy.quorum.needed(left))
    return begin_loading(context, update);
  Error error{ErrorCode::quorum_lost,
              fmt::format("pair '{}': v{}: pause: {} of {} workers could be paused", update.pair,
                          update.version.version, left, members),
              nullptr};
  if (mutant(Mutant::pause_failure_strands)) return end_update(context, update, UpdateState::failed, std::move(error));
  begin_restoring(context, update, std::move(error));
}

void exclude(Context& context, Target& target, Verdict verdict, CauseCode code, std::string text) {
  target.included = false;
  target.step = Step::judged;
  target.verdict = verdict;
  target.counted_lost = true;
  target.cause = context.cause(code, std::move(text));
}

// A trainer that paused all workers for the last update does so for this one: it need not be made sure of again, which
// takes as long as a token may. If only some read as paused, those may be unwell.
bool is_in_doubt(Context& context, const Update& update) {
  if (update.policy.pause != PauseOwner::gateway) return false;
  int paused = 0;
  int running = 0;
  for (const auto& [url, target] : update.targets) {
    if (target.reached) ++(target.was_paused ? paused : running);
  }
  const bool all = paused > 0 && running == 0;
  const bool believed = std::exchange(context.pair_of(update).trainer_pauses, all);
  return believed && paused > 0 && !all;
}

}  // namespace

void begin_pausing(Context& context, Update& update) {
  auto surveyed = std::exchange(update.targets, {});
  std::set<std::string> workers;
  const bool others_serve = make_room(context, context.pair_of(update));
  for (const auto& [url, worker] : context.state().workers) {
    const bool left_out = others_serve && is_joining_now(context.state(), worker);
    if (is_updated(update, worker) && !left_out) workers.insert(url);
  }
  if (!take_locks(context, update, std::move(workers))) return;
  context.set_state(update, UpdateState::pausing);
  const auto& locked = update.wanted_locks;
  const bool knows_all = std::equal(surveyed.begin(), surveyed.end(), locked.begin(), locked.end(),
                                    [](const auto& target, const std::string& url) { return target.first == url; });
  if (!knows_all) return begin_survey(context, update);
  update.targets = std::move(surveyed);  // read in this very step
  pausing_survey_done(context, update);
}

void pausing_survey_done(Context& context, Update& update) {
  if (waits_for_epoch(context, update)) return;
  if (is_in_doubt(context, update)) return begin_survey(context, update);
  bool anyone = false;
  std::string reasons;
  for (auto& [url, target] : update.targets) {
    Worker& worker = context.worker_of(target);
    target.included = may_take_part(context.pair_of(update), update, target, worker);
    if (update.transfer && target.included) leave_out_of_group(context, update, target);
    anyone = anyone || target.included;
    const Cause* why = target.cause ? &*target.cause : worker.cause ? &*worker.cause : nullptr;
    if (!target.included) reasons += fmt::format("; worker {}: {}", url, why ? why->message : "left out");
  }
  if (update.transfer && !group_is_whole(context, update)) {
    drop_group(context, update.pair, "a worker of it can't be updated");
    return end_before_pause(
        context, update, UpdateState::aborted,
        Error{ErrorCode::unreachable,
              fmt::format("pair '{}': v{}: a worker was lost after the transfer group was built{}; the next update "
                          "builds another",
                          update.pair, update.version.version, reasons),
              nullptr});
  }
  if (anyone) {
    if (auto error = refuse_policy(context, update))
      return end_before_pause(context, update, UpdateState::aborted, std::move(*error));
  }
  fix_members(context, update);
  for (auto& [url, target] : update.targets) {
    if (!target.included) leave_out(context, target, context.worker_of(target));
  }
  if (!anyone) {
    Error error{ErrorCode::unreachable,
                fmt::format("pair '{}': v{}: no worker can be updated{}", update.pair, update.version.version, reasons),
                nullptr};
    return end_before_pause(context, update, UpdateState::rejected, std::move(error));
  }
  if (auto error = refuse_quorum(update, reasons))
    return end_before_pause(context, update, UpdateState::aborted, std::move(*error));
  context.record(RecordKind::targets, update, "", describe_targets(update));
  note_released(context, update);
  context.start_timer(
      update, "pause",
      update.policy.pause_mode == PauseMode::wait ? update.policy.deadlines.load : update.policy.deadlines.pause);
  pause_all(context, update);
  pausing_ended(context, update);
}

void on_pausing_call(Context& context, Update& update, Target& target, const Outcome& outcome) {
  Worker& worker = context.worker_of(target);
  switch (outcome.kind) {
    case OutcomeKind::ok:
      target.step = Step::paused;
      target.paused = true;
      target.paused_at = context.now();
      context.set_worker(worker, WorkerState::paused, worker.cause);
      break;
    case OutcomeKind::not_sent:
      exclude(context, target, Verdict::untouched, CauseCode::unreachable, fmt::format("pause: {}", outcome.text));
      break;
    case OutcomeKind::untouched: {
      const bool key = outcome.code == ErrorCode::permission_denied;
      exclude(context, target, Verdict::untouched, key ? CauseCode::credentials : CauseCode::pause_failed,
              fmt::format("pause: {}", outcome.text));
      break;
    }
    default:
      context.set_worker(worker, WorkerState::unknown);
      exclude(context, target, Verdict::unknown, CauseCode::pause_failed, fmt::format("pause: {}", outcome.text));
      break;
  }
  pausing_ended(context, update);
}

void on_pause_timer(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    if (target.step != Step::pausing) continue;
    context.give_up(target);
    context.set_worker(context.worker_of(target), WorkerState::unknown);
    exclude(context, target, Verdict::unknown, CauseCode::pause_failed,
            fmt::format("pause: no answer within {} ms", update.policy.deadlines.pause.count()));
  }
  pausing_ended(context, update);
}

}  // namespace weighlock::protocol
