// The part of the replay that is about LoRA pairs: which names an engine has, or may have.
//
// Where the records leave a doubt the name stays, uncertain: the next update lists it or unloads it.
#include <utility>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/replay.hpp"
#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {
namespace {

bool has_gone(JsonMembers body) {
  const std::string_view result = text_of(body, "result");
  if (result == name(OutcomeKind::ok)) return true;
  return result == name(OutcomeKind::untouched) &&
         text_of(body, "code") == std::string_view(info(ErrorCode::adapter_missing).type);
}

// What a load of this name, sent for this update, brings: the update's own version, or one of the window.
KnownAdapter brought(const Pair& pair, const Update* update, const std::string& adapter, JsonMembers body) {
  KnownAdapter out;
  out.directory = text_of(body, "directory");
  if (update && adapter == adapter_name(*pair.spec.lora, update->version.version)) {
    out.version = update->version.version;
    out.attempt = update->attempt;
    return out;
  }
  out.committed = true;
  for (const AdapterVersion& version : pair.window) {
    if (version.name != adapter) continue;
    out.version = version.version.version;
    out.attempt = version.attempt;
  }
  return out;
}

}  // namespace

bool Replay::about_adapters(const Record& record, Instant at) {
  Pair* pair = pair_of(record);
  const json::object& body = record.body;
  const std::string adapter(text_of(body, "adapter"));
  if (adapter.empty()) return pair && pair->spec.lora;  // a list that failed
  if (!pair || !pair->spec.lora) return true;
  WorkerAdapters& known = pair->adapters[record.worker];
  const bool loads = text_of(body, "operation") == name(OperationKind::load_adapter);
  const std::string key = record.pair + " " + record.worker + " " + adapter;
  if (record.kind == RecordKind::intent) {
    state_.next_id = std::max(state_.next_id, static_cast<CallId>(number_of(body, "call")) + 1);
    if (const auto dialect = dialect_from(text_of(body, "dialect"))) state_.workers[record.worker].dialect = dialect;
    const std::string incarnation(text_of(body, "incarnation"));
    if (!known.incarnation.empty() && incarnation != known.incarnation) {
      for (auto& [name, one] : known.names) {  // which process got what was sent before isn't on record
        one.certain = false;
        one.attempt = 0;
      }
      known.version.reset();
    }
    known.incarnation = incarnation;
    if (loads) {
      known.names[adapter] = brought(*pair, update_of(record), adapter, body);
      unloads_needed_.erase(key);
      known.taken_over = false;  // nothing is loaded before the barrier
    } else if (const auto it = known.names.find(adapter); it != known.names.end()) {
      unloads_needed_.emplace(key, it->second.certain ? 1 : 2);
      it->second.certain = false;
      // Until it is known to have gone it may go at any time. Its own attempt undoes it.
      if (number_of(body, "attempt") != it->second.attempt) it->second.attempt = 0;
      note_unserved(known, *pair->spec.lora, adapter, Cause{CauseCode::adapter_failed, unloaded_text(adapter), at});
    }
  } else if (loads) {
    const auto it = known.names.find(adapter);
    if (it != known.names.end() && text_of(body, "result") == name(OutcomeKind::ok)) it->second.certain = true;
  } else if (const auto needed = unloads_needed_.find(key); needed != unloads_needed_.end() && has_gone(body)) {
    if (--needed->second > 0) return true;
    unloads_needed_.erase(needed);
    known.names.erase(adapter);
  }
  return true;
}

void Replay::adapters_connected(Pair& pair, const PairSpec& before) {
  std::map<std::string, WorkerAdapters> kept;
  const bool renamed = before.lora && before.lora->name != pair.spec.lora->name;  // the old names stay loaded
  if (renamed) pair.window.clear();
  for (const WorkerSpec& spec : pair.spec.workers) {
    Worker& worker = state_.workers[spec.url];
    worker.url = spec.url;
    if (spec.dialect && !worker.seen_as) worker.dialect = spec.dialect;
    auto node = pair.adapters.extract(spec.url);
    if (node.empty() || renamed) {
      kept.emplace(spec.url, new_to_pair(pair));
      if (!node.empty()) leave_directories(pair, node.mapped());
    } else {
      kept.insert(std::move(node));
    }
  }
  for (const auto& [url, known] : pair.adapters) leave_directories(pair, known);
  pair.adapters = std::move(kept);
  forget_unused_workers();
}

// Workers of no full-model pair go with the last LoRA pair that used them.
void Replay::forget_unused_workers() {
  std::erase_if(state_.workers,
                [&](const auto& entry) { return entry.second.pair.empty() && !is_shared(state_, entry.first); });
}

void Replay::forget_unloads(const std::string& pair) {
  std::erase_if(unloads_needed_, [&](const auto& entry) { return entry.first.starts_with(pair + " "); });
}

void Replay::adapters_committed(Pair& pair, const Update& update) {
  const std::string adapter = adapter_name(*pair.spec.lora, update.version.version);
  add_to_window(pair, update);
  for (const auto& [url, target] : update.targets) {
    if (target.verdict != Verdict::verified) continue;
    WorkerAdapters& known = pair.adapters[url];
    known.version = update.version;
    known.cause.reset();
    KnownAdapter& served = known.names[adapter];
    served.version = update.version.version;
    served.attempt = update.attempt;
    served.directory = update.version.directory;
    served.certain = served.committed = true;
  }
}

void Replay::adapters_ended(Pair& pair, const Update& update) {
  for (const auto& [url, target] : update.targets) {
    const auto known = pair.adapters.find(url);
    if (update.kind != UpdateKind::join || known == pair.adapters.end() || target.verdict != Verdict::verified)
      continue;
    known->second.version = update.version;
    known->second.cause.reset();
  }
  if (!update.committed.value_or(false)) return;
  for (const auto& [url, target] : update.targets) {
    const auto known = pair.adapters.find(url);
    if (known != pair.adapters.end() && target.verdict != Verdict::verified) known->second.cause = target.cause;
  }
}

}  // namespace weighlock::protocol
