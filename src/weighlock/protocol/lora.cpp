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
  if (operation.kind == OperationKind::unload_adapter)
    note_unloading(context, context.pair_of(update), adapters_of(context, update, target), operation.adapter);
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
  const auto dialect = operation.kind == OperationKind::identify ? std::nullopt : worker.dialect;
  context.emit(Call{id, target.worker, dialect, std::move(operation), update.id});
}

void give_up_adapter_call(Context& context, Target& target) {
  const auto node = context.state().adapter_calls.extract(*target.call);
  WEIGHLOCK_CHECK(!node.empty(), "the target's call is about adapters");
  const AdapterCall& call = node.mapped();
  context.emit(Cancel{node.key()});
  target.call.reset();
  if (Update* update = context.find_update(call.update)) --update->waiting;
  const auto pair = context.state().pairs.find(call.pair);
  if (pair == context.state().pairs.end() || !changes_something(call.kind)) return;
  KnownAdapter& known = pair->second.adapters[call.worker].names[call.adapter];
  known.certain = false;
  // A load that comes late brings what it was to bring; after an unload the name is gone, whatever is listed until
  // then. The name of an attempt that is being undone is that attempt's own.
  if (call.kind == OperationKind::unload_adapter && target.step != Step::adapter_undoing) known.attempt = 0;
}

bool on_adapter_call_ended(Context& context, const CallEnded& event) {
  State& state = context.state();
  const auto node = state.adapter_calls.extract(event.call);
  if (node.empty()) return false;
  const AdapterCall& call = node.mapped();
  record_call(context, call, event.call, event.outcome);
  const auto worker = state.workers.find(call.worker);
  if (worker != state.workers.end() && event.outcome.dialect)
    note_dialect(context, worker->second, *event.outcome.dialect);
  if (worker != state.workers.end()) note_reading(worker->second, call.kind, event.outcome);
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

bool is_of_new_process(const WorkerAdapters& known, const StateReading& reading) {
  return !known.incarnation.empty() && !reading.incarnation.empty() && reading.incarnation != known.incarnation;
}

bool observe_adapters(Context& context, WorkerAdapters& known, const StateReading& reading) {
  const bool is_new = is_of_new_process(known, reading);
  if (!reading.incarnation.empty()) known.incarnation = reading.incarnation;
  known.model_path = reading.model_path;
  known.rank_max = reading.adapter_rank_max;
  if (!is_new) return false;
  // What has no known end may have reached this process. Whatever it brought, its directory may be read again.
  std::erase_if(known.names, [](const auto& entry) { return entry.second.certain; });
  for (auto& [name, adapter] : known.names) adapter.attempt = 0;
  known.taken_over = false;
  known.to_retire.clear();
  known.version.reset();
  known.missing.clear();
  known.lacking.clear();
  known.cause = context.cause(CauseCode::restarted, "a new process answers; it holds none of the adapters");
  return true;
}

void note_listed(Context& context, const Pair& pair, WorkerAdapters& known,
                 const std::map<std::string, std::string>& listed) {
  for (auto& [name, adapter] : known.names) {
    if (!adapter.certain || listed.contains(name)) continue;
    adapter.certain = false;
    note_unserved(known, *pair.spec.lora, name,
                  context.cause(CauseCode::adapter_failed, name + " is not listed any more"));
  }
}

void note_unserved(WorkerAdapters& known, const LoraSpec& lora, const std::string& name, Cause why) {
  known.lacking.erase(name);
  if (!known.version || adapter_name(lora, known.version->version) != name) return;
  known.version.reset();
  known.cause = std::move(why);
}

void note_unloading(Context& context, const Pair& pair, WorkerAdapters& known, const std::string& name) {
  note_unserved(known, *pair.spec.lora, name, context.cause(CauseCode::adapter_failed, unloaded_text(name)));
}

std::string unloaded_text(const std::string& name) {
  return name + " was unloaded, and not loaded again yet";
}

bool holds(const WorkerAdapters& known, const AdapterVersion& version) {
  const auto it = known.names.find(version.name);
  return it != known.names.end() && it->second.attempt == version.attempt && it->second.certain;
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
