// PREPARING of a LoRA update, after the save: what each worker serves, who counts, what the seal must know.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

constexpr int kReadTries = 3;

Error about(const Update& update, ErrorCode code, std::string_view text) {
  return Error{code, fmt::format("pair '{}': v{}: {}", update.pair, update.version.version, text), nullptr};
}

void list(Context& context, Update& update, Target& target) {
  Operation operation;
  const bool must_ask = must_be_identified(context.worker_of(target));
  operation.kind = must_ask ? OperationKind::identify : OperationKind::list_adapters;
  call_adapter(context, update, target, Step::surveying, std::move(operation));
}

void survey_ended(Context& context, Update& update) {
  for (const auto& [url, target] : update.targets) {
    if (target.step == Step::surveying) return;
  }
  context.cancel_timer(update, "survey");
  adapter_survey_done(context, update);
}

// Another pair's update has it: an engine that loads may be silent for minutes, which says nothing against it. It is
// listed when its lock was taken.
bool in_other_hands(const Update& update, const Worker& worker) {
  return worker.dialect && !worker.locked_by.empty() && worker.locked_by != update.id;
}

// The registry may know a reason to send it nothing; LoRA has none of its own.
std::optional<Cause> held_back(Context& context, const Worker& worker) {
  if (!worker.earlier.empty()) return context.cause(CauseCode::outstanding, "an earlier call may still run in it");
  if (worker.state != WorkerState::quarantined || !worker.cause) return std::nullopt;
  const CauseCode code = worker.cause->code;
  if (code == CauseCode::operator_hold || code == CauseCode::needs_restart) return worker.cause;
  return std::nullopt;
}

void fix_members(Context& context, Update& update) {
  const bool any_ready = std::any_of(update.targets.begin(), update.targets.end(), [&](const auto& e) {
    return e.second.included && can_serve_adapters(context.state(), context.state().workers.at(e.first));
  });
  for (auto& [url, target] : update.targets) {
    const Worker& worker = context.state().workers.at(url);
    target.former_state = worker.state;
    target.former_version = adapters_of(context, update, target).version;
    target.role = can_serve_adapters(context.state(), worker) || !any_ready ? Role::member : Role::extra;
    target.step = target.included ? Step::paused : Step::done;  // "paused" is where load.cpp takes up a target
    target.counted_lost = !target.included;
  }
  update.members_fixed = true;
}

std::string adapter_base(Context& context, const Update& update, std::string& reason) {
  const Pair& pair = context.pair_of(update);
  std::set<std::string> bases;
  for (const auto& [url, known] : pair.adapters) {
    const auto worker = context.state().workers.find(url);
    if (worker == context.state().workers.end()) continue;
    const auto owner = context.state().pairs.find(worker->second.pair);
    const bool has_committed = owner != context.state().pairs.end() && owner->second.committed.has_value();
    const std::string base = has_committed ? owner->second.committed->directory : known.model_path;
    if (!base.empty()) bases.insert(base);
  }
  reason = bases.empty() ? "no worker told its model's path" : "the workers serve different base models";
  if (bases.size() != 1) return "";
  reason = fmt::format("the base model '{}' is not a path", *bases.begin());
  return bases.begin()->starts_with('/') ? *bases.begin() : "";
}

}  // namespace

std::optional<Error> refuse_adapter_policy(const Update& update) {
  if (!update.policy.evidence || *update.policy.evidence <= Evidence::label) return std::nullopt;
  return about(
      update, ErrorCode::not_supported,
      fmt::format("evidence '{}' can't be had of an adapter; the best is 'label'", name(*update.policy.evidence)));
}

void begin_adapter_survey(Context& context, Update& update) {
  update.targets.clear();
  for (const auto& [url, known] : context.pair_of(update).adapters) {
    Target& target = update.targets[url];
    target.worker = url;
    target.adapter.emplace();
  }
  context.start_timer(update, "survey", update.policy.deadlines.pause);
  for (auto& [url, target] : update.targets) {
    const Worker& worker = context.worker_of(target);
    if (in_other_hands(update, worker)) {
      target.step = Step::surveyed;
    } else if (auto cause = held_back(context, worker)) {
      target.cause = std::move(cause);
      target.step = Step::surveyed;
    } else {
      list(context, update, target);
    }
  }
  survey_ended(context, update);
}

void on_adapter_survey_call(Context& context, Update& update, Target& target, OperationKind kind,
                            const Outcome& outcome) {
  const bool may_be_repeated = outcome.kind == OutcomeKind::unknown || is_strange(kind, outcome);
  if (may_be_repeated && kind != OperationKind::identify && ++target.tries < kReadTries)
    return list(context, update, target);
  if (outcome.ok() && kind == OperationKind::identify && context.worker_of(target).dialect)
    return list(context, update, target);
  target.step = Step::surveyed;
  if (outcome.ok() && outcome.reading) {
    WorkerAdapters& known = adapters_of(context, update, target);
    observe_adapters(context, known, *outcome.reading);
    target.reached = true;
    target.incarnation = known.incarnation;
    Worker& worker = context.worker_of(target);
    if (worker.pair.empty()) worker.incarnation = known.incarnation;  // what its own looks read seldom
    AdapterProgress& progress = *target.adapter;
    progress.tells = outcome.reading->adapters.has_value();
    progress.fresh = progress.tells;
    for (const LoadedAdapter& one : outcome.reading->adapters.value_or(std::vector<LoadedAdapter>{}))
      progress.listed[one.name] = one.directory;
    if (progress.tells) note_listed(context, context.pair_of(update), known, progress.listed);
    for (const auto& [name, directory] : progress.listed) progress.seen.insert(name);
  } else {
    const bool refused_key = outcome.code == ErrorCode::permission_denied;
    target.cause =
        context.cause(refused_key ? CauseCode::credentials : CauseCode::unreachable,
                      fmt::format("list of adapters: {}", outcome.text.empty() ? "no answer" : outcome.text));
  }
  survey_ended(context, update);
}

void adapter_survey_done(Context& context, Update& update) {
  update.survey_done = true;
  bool anyone = false;
  std::string reasons;
  for (auto& [url, target] : update.targets) {
    target.tries = 0;
    target.included = target.reached || !target.cause;  // without a reason: another pair's update had it
    anyone = anyone || target.included;
    if (!target.included) reasons += fmt::format("; worker {}: {}", url, target.cause->message);
  }
  fix_members(context, update);
  if (!anyone)
    return end_before_pause(context, update, UpdateState::rejected,
                            about(update, ErrorCode::unreachable, "no worker can be updated" + reasons));
  if (auto error = refuse_quorum(update, reasons))
    return end_before_pause(context, update, UpdateState::aborted, std::move(*error));
  seal_when_ready(context, update);
}

void describe_adapter(Context& context, const Update& update, Seal& seal) {
  const Pair& pair = context.pair_of(update);
  seal.is_adapter = true;
  // Another run may have another rank; within one run it doesn't change.
  if (pair.last_good && pair.last_good->lineage == update.version.lineage)
    seal.reference_directory = pair.last_good->directory;
  seal.adapter_base = adapter_base(context, update, seal.adapter_base_reason);
}

void adapter_sealed(Context& context, Update& update) {
  for (const auto& [url, target] : update.targets) {
    if (!target.included) continue;
    const std::string why = rank_refusal(update, adapters_of(context, update, target));
    if (why.empty()) continue;
    return end_before_pause(context, update, UpdateState::aborted,
                            about(update, ErrorCode::checkpoint_invalid, fmt::format("worker {} {}", url, why)));
  }
  begin_adapter_loading(context, update);
}

std::string rank_refusal(const Update& update, const WorkerAdapters& known) {
  const std::int64_t rank = update.sealed ? update.sealed->adapter_rank.value_or(0) : 0;
  if (!known.rank_max || rank <= *known.rank_max) return "";
  return fmt::format(
      "takes adapters up to rank {}, and this one has rank {}; start it with a higher limit (--max-lora-rank), or "
      "train "
      "with a lower rank",
      *known.rank_max, rank);
}

int serving_adapters(const Pair& pair) {
  if (!pair.committed) return 0;
  return static_cast<int>(std::count_if(pair.adapters.begin(), pair.adapters.end(), [&](const auto& e) {
    return !e.second.cause && e.second.version && e.second.version->same_version(*pair.committed);
  }));
}

}  // namespace weighlock::protocol
