// Names in engines, and calls about them.
#include "weighlock/protocol/lora.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/check.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

void record_call(Context& context, const AdapterCall& call, CallId id, const Outcome& outcome) {
  if (!changes_something(call.kind) && outcome.ok()) return;
  json::object body{{"operation", std::string(name(call.kind))},
                    {"call", id},
                    {"adapter", call.adapter},
                    {"result", std::string(name(outcome.kind))}};
  if (!outcome.ok()) body["code"] = std::string(info(outcome.code).type);
  if (!outcome.text.empty()) body["text"] = outcome.text;
  context.record(RecordKind::outcome, call.pair, call.update, call.worker, std::move(body));
}

void route(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome) {
  switch (target.step) {
    case Step::surveying:
      return on_adapter_survey_call(context, update, target, kind, outcome);
    case Step::adapter_unloading:
    case Step::adapter_loading:
    case Step::adapter_listing:
      return on_adapter_loading_call(context, update, target, outcome);
    case Step::adapter_undoing:
      return on_adapter_undone(context, update, target, outcome);
    default:
      WEIGHLOCK_CHECK(false, "a step of a LoRA update waits for the call");
  }
}

// An unload that was given up may take effect later; a load too.
void note_doubt(WorkerAdapters& known, const std::string& name) {
  known.names[name].certain = false;
}

}  // namespace

bool is_lora(Context& context, const Update& update) {
  return context.pair_of(update).spec.lora.has_value();
}

WorkerAdapters& adapters_of(Context& context, const Update& update, const Target& target) {
  return context.pair_of(update).adapters[target.worker];
}

std::string new_name(Context& context, const Update& update) {
  return adapter_name(*context.pair_of(update).spec.lora, update.version.version);
}

void call_adapter(Context& context, Update& update, Target& target, Step step, Operation operation) {
  WEIGHLOCK_CHECK(!target.call, "a target waits for one call");
  State& state = context.state();
  const Worker& worker = context.worker_of(target);
  const CallId id = state.next_id++;
  target.step = step;
  target.call = id;
  ++update.waiting;
  state.adapter_calls[id] = AdapterCall{update.pair, target.worker, update.id, operation.kind, operation.adapter};
  if (changes_something(operation.kind)) {
    WEIGHLOCK_CHECK(worker.locked_by == update.id, "an engine's adapters are changed under its lock");
    json::object body{{"operation", std::string(name(operation.kind))},
                      {"call", id},
                      {"attempt", update.attempt},
                      {"adapter", operation.adapter},
                      {"dialect", worker.dialect ? std::string(name(*worker.dialect)) : std::string()},
                      {"incarnation", adapters_of(context, update, target).incarnation}};
    if (!operation.directory.empty()) body["directory"] = operation.directory;
    context.record(RecordKind::intent, update, target.worker, std::move(body));
  }
  context.emit(Call{id, target.worker, worker.dialect, std::move(operation), update.id});
}

void give_up_adapter_call(Context& context, Target& target) {
  const auto node = context.state().adapter_calls.extract(*target.call);
  WEIGHLOCK_CHECK(!node.empty(), "the target's call is about adapters");
  const AdapterCall& call = node.mapped();
  context.emit(Cancel{node.key()});
  target.call.reset();
  if (Update* update = context.find_update(call.update)) --update->waiting;
  const auto pair = context.state().pairs.find(call.pair);
  if (pair != context.state().pairs.end() && changes_something(call.kind))
    note_doubt(pair->second.adapters[call.worker], call.adapter);
}

bool on_adapter_call_ended(Context& context, const CallEnded& event) {
  State& state = context.state();
  const auto node = state.adapter_calls.extract(event.call);
  if (node.empty()) return false;
  const AdapterCall& call = node.mapped();
  record_call(context, call, event.call, event.outcome);
  const auto worker = state.workers.find(call.worker);
  if (worker != state.workers.end() && event.outcome.dialect) worker->second.dialect = event.outcome.dialect;
  const auto pair = state.pairs.find(call.pair);
  if (pair == state.pairs.end()) return true;
  const auto known = pair->second.adapters.find(call.worker);
  if (known != pair->second.adapters.end() && known->second.retire_call == event.call) {
    on_retired(context, pair->second, call, event.outcome);
    return true;
  }
  Update* update = context.find_update(call.update);
  if (!update) return true;
  const auto target = update->targets.find(call.worker);
  if (target == update->targets.end() || target->second.call != event.call) return true;
  target->second.call.reset();
  --update->waiting;
  route(context, *update, target->second, call.kind, event.outcome);
  return true;
}

bool observe_adapters(Context& context, WorkerAdapters& known, const StateReading& reading) {
  const bool is_new =
      !known.incarnation.empty() && !reading.incarnation.empty() && reading.incarnation != known.incarnation;
  if (!reading.incarnation.empty()) known.incarnation = reading.incarnation;
  known.model_path = reading.model_path;
  known.rank_max = reading.adapter_rank_max;
  if (!is_new) return false;
  known.names.clear();
  known.to_retire.clear();
  known.version.reset();
  known.missing.clear();
  known.cause = context.cause(CauseCode::restarted, "a new process answers; it holds none of the adapters");
  return true;
}

bool may_read(const Pair& pair, const std::string& directory) {
  return std::any_of(pair.adapters.begin(), pair.adapters.end(), [&](const auto& worker) {
    const auto& names = worker.second.names;
    return std::any_of(names.begin(), names.end(), [&](const auto& e) { return e.second.directory == directory; });
  });
}

bool says_gone(const Outcome& outcome) {
  return outcome.ok() || (outcome.kind == OutcomeKind::untouched && outcome.code == ErrorCode::adapter_missing);
}

}  // namespace weighlock::protocol
