// The window of a LoRA pair: its last `keep` committed versions stay loaded. What has left it is unloaded after the
// update has ended and its client was answered: best effort, one call at a time per worker, each with a short limit. An
// update that takes the worker comes first.
#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

auto first_of_window(const Pair& pair) {
  const auto keep = static_cast<std::size_t>(pair.spec.lora->keep);
  const std::size_t first = keep == 0 || pair.window.size() <= keep ? 0 : pair.window.size() - keep;
  return pair.window.begin() + static_cast<std::ptrdiff_t>(first);
}

bool in_window(const Pair& pair, const std::string& name) {
  return std::any_of(first_of_window(pair), pair.window.end(), [&](const AdapterVersion& v) { return v.name == name; });
}

void end_round(WorkerAdapters& known) {
  known.to_retire.clear();
  known.retire_call.reset();
}

// The unload may take effect later: whatever is listed until then, the name is unloaded before it is used again.
void doubt(WorkerAdapters& known, const std::string& name) {
  known.names[name].certain = false;
  known.names[name].attempt = 0;
}

void stop_call(Context& context, WorkerAdapters& known) {
  const auto node = context.state().adapter_calls.extract(*known.retire_call);
  context.state().retire_timers.erase(known.retire_timer);
  context.emit(CancelTimer{known.retire_timer});
  context.emit(Cancel{*known.retire_call});
  known.retire_call.reset();
  doubt(known, node.mapped().adapter);
}

void send(Context& context, Pair& pair, const std::string& url, WorkerAdapters& known, bool again) {
  const std::string name = known.to_retire.front();
  State& state = context.state();
  const CallId id = state.next_id++;
  known.retire_call = id;
  known.retire_again = again;
  known.retire_timer = state.next_id++;
  note_unloading(context, pair, known, name);
  const UpdateId update = pair.history.empty() ? UpdateId() : pair.history.back();
  state.adapter_calls[id] = AdapterCall{pair.spec.name, url, update, OperationKind::unload_adapter, name};
  state.retire_timers[known.retire_timer] = {pair.spec.name, url};
  context.record(RecordKind::intent, pair.spec.name, update, url,
                 {{"operation", std::string(weighlock::name(OperationKind::unload_adapter))},
                  {"call", id},
                  {"adapter", name},
                  {"incarnation", known.incarnation}});
  Operation operation;
  operation.kind = OperationKind::unload_adapter;
  operation.adapter = name;
  context.emit(StartTimer{known.retire_timer, limits::kAdapterUnloadTimeout});
  context.emit(Call{id, url, state.workers.at(url).dialect, std::move(operation), update});
}

// What is planned still: the pair may keep more than when that was decided.
bool has_to_retire(const Pair& pair, WorkerAdapters& known) {
  std::erase_if(known.to_retire, [&](const std::string& name) { return in_window(pair, name); });
  return !known.to_retire.empty();
}

// An unload waits for the requests that use the adapter, and blocks loads meanwhile: never on a worker that is held
// paused or in an update's hand.
bool may_retire(const State& state, const std::string& url) {
  const auto worker = state.workers.find(url);
  return worker != state.workers.end() && worker->second.locked_by.empty() && worker->second.dialect &&
         can_serve_adapters(state, worker->second);
}

}  // namespace

std::vector<AdapterVersion> older_of_window(const Pair& pair, const std::string& new_name) {
  std::vector<AdapterVersion> older;
  for (const AdapterVersion& version : pair.window) {
    if (version.name != new_name) older.push_back(version);
  }
  // With `keep` 0 all stay; what a new process gets is the version that was served until now.
  const std::int64_t keep = pair.spec.lora->keep;
  const std::size_t wanted = keep == 0 ? 1 : static_cast<std::size_t>(keep - 1);
  if (older.size() > wanted) older.erase(older.begin(), older.end() - static_cast<std::ptrdiff_t>(wanted));
  return older;
}

bool is_in_window(const Pair& pair, const std::string& directory) {
  return std::any_of(first_of_window(pair), pair.window.end(),
                     [&](const AdapterVersion& v) { return v.version.directory == directory; });
}

bool may_be_reused(const Update& update) {
  return !update.path.empty() || !update.sealed || update.sealed->blind;
}

void add_to_window(Pair& pair, const Update& update) {
  const std::string name = adapter_name(*pair.spec.lora, update.version.version);
  std::erase_if(pair.window, [&](const AdapterVersion& v) { return v.name == name; });
  pair.window.push_back(AdapterVersion{name, update.attempt, update.version, may_be_reused(update)});
  while (pair.window.size() > static_cast<std::size_t>(limits::kAdapterWindowMax)) {
    // With `keep` 0 it stays loaded, and what engines may read again is never deleted.
    const std::string& oldest = pair.window.front().version.directory;
    if (pair.spec.lora->keep == 0)
      std::erase_if(pair.stored, [&](const StoredVersion& s) { return s.version.directory == oldest; });
    pair.window.pop_front();
  }
}

void forget_in_window(Pair& pair, const std::string& directory) {
  std::erase_if(pair.window, [&](const AdapterVersion& version) { return version.version.directory == directory; });
}

void plan_retirement(Pair& pair, std::int64_t version) {
  const LoraSpec& lora = *pair.spec.lora;
  for (auto& [url, known] : pair.adapters) {
    std::vector<std::pair<std::int64_t, std::string>> found;
    for (const auto& [name, adapter] : known.names) {
      if (!in_window(pair, name) && (lora.keep > 0 || !adapter.committed)) found.emplace_back(adapter.version, name);
    }
    // Also where it isn't known: the first one is often loaded when the engine starts.
    const std::string left = adapter_name(lora, version - lora.keep);
    if (lora.keep > 0 && version >= lora.keep && !in_window(pair, left) && !known.names.contains(left))
      found.emplace_back(version - lora.keep, left);
    std::sort(found.begin(), found.end());
    known.to_retire.clear();
    for (const auto& [number, name] : found) known.to_retire.push_back(name);
    // With `keep` 0 nothing committed is ever unloaded, so what has left the books need not be known.
    if (lora.keep == 0)
      std::erase_if(known.names, [&](const auto& e) { return e.second.committed && !in_window(pair, e.first); });
  }
}

void start_retirements(Context& context) {
  if (context.state().stopping) return;
  for (auto& [name, pair] : context.state().pairs) {
    if (is_superseded(pair)) continue;
    for (auto& [url, known] : pair.adapters) {
      if (known.retire_call || !has_to_retire(pair, known) || !may_retire(context.state(), url)) continue;
      if (!may_act(context, name)) {
        pair.ownership.unloads_wait = true;
        break;
      }
      send(context, pair, url, known, false);
    }
  }
}

void preempt_retirement(Context& context, const std::string& worker) {
  for (auto& [name, pair] : context.state().pairs) {
    const auto known = pair.adapters.find(worker);
    if (known != pair.adapters.end() && known->second.retire_call) stop_call(context, known->second);
  }
}

void stop_retirements(Context& context, Pair& pair) {
  for (auto& [url, known] : pair.adapters) {
    if (known.retire_call) stop_call(context, known);
    end_round(known);
  }
}

void on_retired(Context& context, Pair& pair, const AdapterCall& call, const Outcome& outcome) {
  WorkerAdapters& known = pair.adapters.at(call.worker);
  known.retire_call.reset();
  context.state().retire_timers.erase(known.retire_timer);
  context.emit(CancelTimer{known.retire_timer});
  if (is_superseded(pair)) return end_round(known);
  const auto it = known.names.find(call.adapter);
  if (says_gone(outcome)) {
    const bool doubtful = it != known.names.end() && !it->second.certain && !known.retire_again;
    if (doubtful && may_retire(context.state(), call.worker)) return send(context, pair, call.worker, known, true);
    if (!doubtful) {
      known.names.erase(call.adapter);
      collect_unleased(context, pair.spec.name);
    }
  } else {
    known.names[call.adapter];  // tried again after the next update
    if (outcome.kind == OutcomeKind::unknown) doubt(known, call.adapter);
    if (outcome.kind != OutcomeKind::untouched) return end_round(known);  // what comes behind would wait as long
  }
  if (!known.to_retire.empty() && known.to_retire.front() == call.adapter) known.to_retire.pop_front();
  if (has_to_retire(pair, known) && may_retire(context.state(), call.worker) && !context.state().stopping)
    send(context, pair, call.worker, known, false);
}

bool on_retire_timer(Context& context, TimerId timer) {
  const auto node = context.state().retire_timers.extract(timer);
  if (node.empty()) return false;
  const auto& [name, worker] = node.mapped();
  const auto pair = context.state().pairs.find(name);
  if (pair == context.state().pairs.end()) return true;
  const auto known = pair->second.adapters.find(worker);
  if (known == pair->second.adapters.end() || !known->second.retire_call) return true;
  stop_call(context, known->second);
  end_round(known->second);
  return true;
}

}  // namespace weighlock::protocol
