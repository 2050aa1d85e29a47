#include "weighlock/gateway/views.hpp"

#include <algorithm>
#include <set>

#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/ended_text.hpp"
#include "weighlock/gateway/promises.hpp"
#include "weighlock/gateway/settings.hpp"
#include "weighlock/protocol/retained.hpp"

namespace weighlock {
namespace {

using namespace protocol;

json::value cause_view(const ViewContext& context, const std::optional<Cause>& cause) {
  if (!cause) return nullptr;
  return {{"code", name(cause->code)}, {"message", cause->message}, {"since", context.clock.text(cause->since)}};
}

json::array phases_view(const ViewContext& context, const Update& update) {
  json::array out;
  for (const PhaseTime& phase : update.phases) {
    const bool running = !is_terminal(update.state) && &phase == &update.phases.back();
    const Milliseconds took = running ? context.now - phase.began : phase.took;
    out.push_back({{"name", name(phase.state)}, {"duration_ms", took.count()}});
  }
  return out;
}

// How the update left the worker, or what it is now while the update runs. Of an adapter the verdict tells.
json::value state_of_target(const State& state, const std::string& url, const Target& target) {
  if (target.adapter) return nullptr;
  if (target.ended_as) return json::value(worker_state_word(*target.ended_as));
  const auto worker = state.workers.find(url);
  return worker == state.workers.end() ? json::value(nullptr) : json::value(worker_state_word(worker->second));
}

json::array targets_view(const ViewContext& context, const Update& update) {
  json::array out;
  for (const auto& [url, target] : update.targets) {
    json::object one;
    one["id"] = worker_id(url);
    one["url"] = url;
    one["verdict"] = name(target.verdict);
    one["evidence"] = name(target.evidence);
    one["state"] = state_of_target(context.state, url, target);
    one["switched_at"] =
        target.switched_at ? json::value(context.clock.text(*target.switched_at)) : json::value(nullptr);
    one["duration_ms"] = target.load_took ? json::value(target.load_took->count()) : json::value(nullptr);
    one["cause"] = cause_view(context, target.cause);
    out.push_back(std::move(one));
  }
  return out;
}

// {"epoch", "owner"}, {"superseded_by"}, or {"none": reason}; with "trouble" when the storage said nothing of late.
json::object ownership_view(const State& state, const Pair& pair) {
  const Ownership& own = pair.ownership;
  json::object out;
  if (own.superseded_by) {
    const Epoch& by = *own.superseded_by;
    out["superseded_by"] = {{"epoch", by.number}, {"owner", by.owner}, {"host", by.host}};
  } else if (own.epoch > 0) {
    out["epoch"] = own.epoch;
    out["owner"] = state.owner;
  } else {
    out["none"] = own.none_because.empty() ? "taken at the pair's first update" : own.none_because;
  }
  for (const std::optional<Error>* trouble : {&own.look_trouble, &own.write_trouble}) {
    if (*trouble) out["trouble"] = (*trouble)->text();
  }
  return out;
}

json::value lora_view(const std::optional<LoraSpec>& lora) {
  if (!lora) return nullptr;
  return {{"name", lora->name}, {"keep", lora->keep}};
}

// The name under which the update's version is asked for at the engines.
json::value adapter_view(const ViewContext& context, const Update& update) {
  const auto pair = context.state.pairs.find(update.pair);
  if (pair == context.state.pairs.end() || !pair->second.spec.lora) return nullptr;
  return json::string(adapter_name(*pair->second.spec.lora, update.version.version));
}

// Prefixes of weights before `version` are served still, since then; null: it doesn't serve.
json::object owed_flush_view(const ViewContext& context, const Worker& worker) {
  json::object out;
  out["version"] = worker.version ? json::value(worker.version->version) : json::value(nullptr);
  out["since"] = worker.owes_flush->since ? json::value(context.clock.text(*worker.owes_flush->since)) : nullptr;
  out["tries"] = worker.owes_flush->tries;
  return out;
}

}  // namespace

std::string worker_id(std::string_view url) {
  std::string out(url.starts_with("http://") ? url.substr(7) : url);
  if (out.starts_with("https://")) out.replace(5, 3, "~");
  std::replace(out.begin(), out.end(), '/', '~');
  return out;
}

const Worker* find_worker(const State& state, const Pair& pair, std::string_view id) {
  for (const WorkerSpec& spec : pair.spec.workers) {
    if (spec.url != id && worker_id(spec.url) != id) continue;
    const auto it = state.workers.find(spec.url);
    return it == state.workers.end() ? nullptr : &it->second;
  }
  return nullptr;
}

std::string_view worker_state_word(WorkerState state) {
  switch (state) {
    case WorkerState::healing:
      return "loading";
    case WorkerState::foreign:
    case WorkerState::gone:
    case WorkerState::abandoned:
      return "quarantined";
    default:
      return name(state);
  }
}

std::string_view worker_state_word(const Worker& worker) {
  const bool is_unread = worker.state == WorkerState::ready && !is_ready(worker);
  return worker_state_word(is_unread ? WorkerState::unknown : worker.state);
}

Milliseconds pause_of(const Update& update, Instant now) {
  const Instant end = update.ended_at.value_or(now);
  Milliseconds resumed{0};
  Milliseconds held{0};
  bool any_resumed = false;
  for (const auto& [url, target] : update.targets) {
    if (!target.paused_at) continue;
    const bool over = target.resumed_at.has_value();
    Milliseconds& longest = over ? resumed : held;
    longest = std::max(longest, (over ? *target.resumed_at : end) - *target.paused_at);
    any_resumed = any_resumed || over;
  }
  // Once the update has ended, a worker that stays paused is quarantined: out of service, which isn't a pause of it.
  return update.ended_at && any_resumed ? resumed : std::max(resumed, held);
}

json::object worker_view(const ViewContext& context, const Worker& worker) {
  json::object out;
  out["id"] = worker_id(worker.url);
  out["url"] = worker.url;
  out["dialect"] = worker.dialect ? json::value(name(*worker.dialect)) : json::value("auto");
  out["state"] = worker_state_word(worker);
  out["version"] =
      worker.version && worker.version->lineage > 0 ? json::value(worker.version->version) : json::value(nullptr);
  out["incarnation"] = worker.incarnation;
  out["cause"] = cause_view(context, cause_of(worker));
  if (worker.paused_by_other) out["paused_by"] = "other";
  if (worker.joins.failures > 0) out["joins_failed"] = worker.joins.failures;
  if (worker.owes_flush) out["flush_owed"] = owed_flush_view(context, worker);
  return out;
}

json::object adapters_view(const ViewContext& context, const WorkerAdapters& adapters) {
  json::array names;
  for (const auto& [name, adapter] : adapters.names) {
    if (adapter.certain) names.push_back(json::string(name));
  }
  json::array missing;
  for (const std::string& why : adapters.missing) missing.push_back(json::string(why));
  json::object out;
  out["version"] = adapters.version ? json::value(adapters.version->version) : json::value(nullptr);
  out["names"] = std::move(names);
  out["missing"] = std::move(missing);
  out["cause"] = cause_view(context, adapters.cause);
  return out;
}

json::object update_view(const ViewContext& context, const Update& update) {
  json::object out;
  out["id"] = update.id;
  out["pair"] = update.pair;
  out["lineage"] = update.version.lineage;
  out["version"] = update.version.version;
  out["attempt"] = update.attempt;
  out["rollback"] = update.rollback;
  out["state"] = is_terminal(update.state) ? name(update.state) : std::string_view("running");
  out["phase"] =
      is_terminal(update.state) && !update.phases.empty() ? name(update.phases.back().state) : name(update.state);
  out["phases"] = phases_view(context, update);
  out["pause_ms"] = pause_of(update, context.now).count();
  out["bytes"] = update.sealed ? json::value(update.sealed->bytes) : json::value(nullptr);
  out["adapter"] = adapter_view(context, update);
  out["workers"] = targets_view(context, update);
  out["error"] = nullptr;
  if (is_terminal(update.state) && update.state != UpdateState::succeeded)
    out["error"] = {{"code", info(ended_code(update)).type}, {"message", ended_text(context.state, update)}};
  return out;
}

namespace {

json::value version_view(const std::optional<VersionRef>& version) {
  if (!version) return nullptr;
  return {{"lineage", version->lineage}, {"version", version->version}, {"directory", version->directory}};
}

std::string_view stored_state(const Pair& pair, const StoredVersion& stored) {
  if (!stored.committed) return "rolled_back";
  if (pair.committed && pair.committed->same_version(stored.version)) return "committed";
  return stored.withdrawn ? "withdrawn" : "superseded";
}

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

}  // namespace

json::object versions_view(const ViewContext& context, const Pair& pair) {
  std::set<std::string> removable;
  for (const StoredVersion& one : removable_versions(context.state, pair, true))
    removable.insert(one.version.directory);
  json::array items;
  for (auto it = pair.stored.rbegin(); it != pair.stored.rend(); ++it) {
    json::array leases;
    for (const std::string& who : leases_of(context.state, pair, it->version)) leases.push_back(json::string(who));
    items.push_back(json::object{{"lineage", it->version.lineage},
                                 {"version", it->version.version},
                                 {"directory", it->version.directory},
                                 {"state", stored_state(pair, *it)},
                                 {"handed_over", it->handed},
                                 {"digest", text_or_null(it->version.digest)},
                                 {"bytes", it->bytes == 0 ? json::value(nullptr) : json::value(it->bytes)},
                                 {"leases", std::move(leases)},
                                 {"removable", removable.contains(it->version.directory)}});
  }
  json::object out;
  out["items"] = std::move(items);
  out["next"] = nullptr;
  out["committed"] = version_view(pair.committed);
  out["last_good"] = version_view(pair.last_good);
  out["highest"] = version_view(pair.highest);
  return out;
}

namespace {

// The one that runs, else the one that ended last: what somebody who looks at a pair wants to know first.
json::value last_update_view(const ViewContext& context, const Pair& pair) {
  const UpdateId id = !pair.active.empty() ? pair.active : pair.history.empty() ? "" : pair.history.back();
  const auto found = context.state.updates.find(id);
  if (found == context.state.updates.end()) return nullptr;
  const Update& update = found->second;
  const bool ended = is_terminal(update.state);
  json::object out;
  out["id"] = update.id;
  out["version"] = update.version.version;
  out["rollback"] = update.rollback;
  out["state"] = ended ? name(update.state) : std::string_view("running");
  out["phase"] = ended ? json::value(nullptr) : json::value(name(update.state));
  out["ended_at"] = update.ended_at ? json::value(context.clock.text(*update.ended_at)) : json::value(nullptr);
  out["error"] = ended && update.state != UpdateState::succeeded ? json::value(ended_text(context.state, update))
                                                                 : json::value(nullptr);
  return out;
}

json::value transfer_view(const Pair& pair) {
  if (!pair.spec.awex) return nullptr;
  return {{"colocate", pair.spec.awex->colocate},
          {"group", pair.group ? json::value(pair.group->name) : json::value(nullptr)}};
}

}  // namespace

bool is_held_by_other(const Pair& pair, const Worker& worker) {
  return worker.state == WorkerState::ready && worker.paused_by_other &&
         pair.spec.policy.pause != protocol::PauseOwner::caller;
}

json::object pair_view(const ViewContext& context, const Pair& pair) {
  std::int64_t ready = 0;
  std::int64_t quarantined = 0;
  std::int64_t held = 0;
  for (const WorkerSpec& spec : pair.spec.workers) {
    const auto it = context.state.workers.find(spec.url);
    if (it == context.state.workers.end()) continue;
    if (is_held_by_other(pair, it->second)) ++held;
    // An adapter that isn't served says nothing of the worker, and the worker's state nothing of the adapter.
    const auto adapters = pair.adapters.find(spec.url);
    if (adapters != pair.adapters.end()) {
      if (!adapters->second.cause) ++ready;
      continue;
    }
    if (is_ready(it->second)) ++ready;
    if (worker_state_word(it->second.state) == "quarantined") ++quarantined;
  }
  json::object out;
  out["name"] = pair.spec.name;
  out["mode"] = pair.spec.awex ? "awex" : "disk";
  out["lora"] = lora_view(pair.spec.lora);
  out["lineage"] = pair.lineage;
  out["committed"] = pair.committed ? json::value(pair.committed->version) : json::value(nullptr);
  out["state"] = !pair.removing.empty()                             ? "removing"
                 : !pair.active.empty()                             ? "updating"
                 : is_dormant(pair, context.now) && !pair.spec.lora ? "dormant"
                                                                    : "idle";
  out["rollback"] = pair.last_good ? "available" : "unavailable";
  out["rollback_reason"] = pair.last_good ? json::value(nullptr) : json::value(pair.rollback_reason);
  out["ownership"] = ownership_view(context.state, pair);
  out["workers"] = {
      {"total", pair.spec.workers.size()}, {"ready", ready}, {"quarantined", quarantined}, {"paused_by_other", held}};
  out["trainers"] = text_list(pair.spec.trainer_urls);
  out["transfer"] = transfer_view(pair);
  out["last_update"] = last_update_view(context, pair);
  out["settings"] = settings_view(pair.spec.policy);
  out["not_promised"] = not_promised(pair.spec.policy);
  return out;
}

json::object verdicts_view(const ViewContext& context, const Update& update) {
  json::object out;
  for (const auto& [url, target] : update.targets) {
    out[url] = {{"verdict", name(target.verdict)},
                {"evidence", name(target.evidence)},
                {"cause", cause_view(context, target.cause)}};
  }
  return out;
}

}  // namespace weighlock
