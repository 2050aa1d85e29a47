// LoRA pairs (design/protocol.md section 10), against what the engines really serve.
#include <algorithm>

#include "sim/invariants.hpp"
#include "sim/violation.hpp"

namespace weighlock::sim {

using protocol::Pair;
using protocol::Update;
using protocol::UpdateState;
using protocol::WorkerAdapters;

bool changes_adapters(OperationKind kind) {
  return kind == OperationKind::load_adapter || kind == OperationKind::unload_adapter;
}

const Pair* Invariants::lora_of(const std::string& name) const {
  const auto pair = state().pairs.find(name);
  return pair != state().pairs.end() && pair->second.spec.lora ? &pair->second : nullptr;
}

bool Invariants::adapters_excused(const std::string& url) const {
  const auto book = books_.find(url);
  return book != books_.end() && book->second.adapters_excused;
}

void Invariants::adapter_disturbed(const std::string& url, const std::string& adapter) {
  disturbed_adapters_.emplace(url, adapter);
}

bool Invariants::is_disturbed(const std::string& url, const std::string& adapter) const {
  return disturbed_adapters_.count({url, adapter}) > 0;
}

// Who lost it says nothing any more that anybody must believe, and who takes it, or comes back to it, says nothing
// before its epoch is in its hands.
bool Invariants::has_adapters_of(const Pair& pair) const {
  if (!w_.scenario.has_rivals()) return true;
  return w_.owns(pair.spec.name) && pair.ownership.epoch > 0 && !pair.ownership.superseded_by;
}

bool Invariants::is_lora(const Update& update) const {
  return w_.scenario.pairs[w_.scenario.pair_of(update.pair)].lora.has_value();
}

// For an adapter nobody is fenced. One that only LoRA pairs use is when it is silent.
void Invariants::check_fence(const protocol::Fence& fence) const {
  if (lora_of(fence.pair) == nullptr) return;
  const auto worker = state().workers.find(fence.worker);
  const bool model_is_ours =
      worker != state().workers.end() && !worker->second.pair.empty() && w_.owns(worker->second.pair);
  const bool silent =
      worker != state().workers.end() && !model_is_ours && fence.cause.code == protocol::CauseCode::unreachable;
  if (!silent) throw Violation{15, fmt::format("{} is fenced for an adapter", fence.worker)};
}

// Adapters come and go beside the model: never paused for, never labelled, never fenced.
void Invariants::check_adapter_call(const protocol::Call& call) {
  const OperationKind kind = call.operation.kind;
  const bool reads = kind == OperationKind::identify || kind == OperationKind::list_adapters;
  if (!reads && !changes_adapters(kind))
    throw Violation{15, fmt::format("{} of {} for an adapter", name(kind), call.worker)};
  const auto update = state().updates.find(call.update);
  const bool active = update != state().updates.end() && !protocol::is_terminal(update->second.state);
  if (changes_adapters(kind)) {
    check_intent(call);
    check_adapter_lock(call, active);
  }
  if (kind == OperationKind::unload_adapter) check_unload(call, active);
  if (kind == OperationKind::load_adapter) {
    // Decided, and given up in the same group: that is told next.
    if (!active && state().adapter_calls.count(call.call) > 0)
      throw Violation{0, fmt::format("{} is loaded outside of any update", call.operation.adapter)};
    if (sealed_.count(call.operation.directory) == 0)
      throw Violation{12, fmt::format("{} is told '{}' before it is sealed", call.worker, call.operation.directory)};
    if (discarded_.count(call.operation.directory) > 0)
      throw Violation{12, fmt::format("{} is told '{}', which was discarded", call.worker, call.operation.directory)};
    disturbed_adapters_.erase({call.worker, call.operation.adapter});
    if (active && call.operation.directory == update->second.version.directory) {
      check_canary(call, update->second);
      loads_.emplace(call.update, call.worker);
    }
  }
  adapter_calls_[call.call] = call;
}

// What should be served is taken away by nobody, but to be loaded again where a doubt is, or for another version of the
// same name.
void Invariants::check_unload(const protocol::Call& call, bool active) {
  const std::string& name = call.operation.adapter;
  const EngineTruth& real = truth(call.worker);
  const auto served = real.adapters.find(name);
  const bool is_told = !skipped_checks.unloads && real.alive && served != real.adapters.end();
  if (!is_told || adapters_excused(call.worker)) return;
  for (const auto& [pair_name, pair] : state().pairs) {
    if (!pair.spec.lora || !name.starts_with(pair.spec.lora->name + "-v") || !has_adapters_of(pair)) continue;
    for (const protocol::VersionRef& version : window_of(pair)) {
      const bool in_use = protocol::adapter_name(*pair.spec.lora, version.version) == name &&
                          served->second.content == content_of(version.directory);
      if (!in_use) continue;
      const auto update = state().updates.find(call.update);
      // The same bytes, handed over once more, and not committed this time.
      const bool undoes = active && update->second.state == UpdateState::restoring &&
                          update->second.version.directory == version.directory &&
                          !update->second.version.same_version(version);
      const bool replaces = active && update->second.state != UpdateState::restoring &&
                            protocol::adapter_name(*pair.spec.lora, update->second.version.version) == name &&
                            !update->second.version.same_version(version);
      if (!replaces && !undoes && !(active && (is_doubtful(call.worker, name) || !is_certain(pair, call.worker, name))))
        throw Violation{
            12, fmt::format("{} is unloaded from {}, and is in the window of {}", name, call.worker, pair_name)};
    }
  }
}

// A worker that came anew to the pair, or another process, may list the right bytes under a name, and nobody can know.
bool Invariants::is_certain(const Pair& pair, const std::string& url, const std::string& adapter) {
  const auto known = pair.adapters.find(url);
  if (known == pair.adapters.end()) return false;
  const auto entry = known->second.names.find(adapter);
  return entry != known->second.names.end() && entry->second.certain;
}

void Invariants::doubt_adapter(const protocol::Call& call) {
  if (changes_adapters(call.operation.kind))
    adapter_doubts_[{call.worker, call.operation.adapter}] = truth(call.worker).incarnation;
}

bool Invariants::is_doubtful(const std::string& url, const std::string& adapter) const {
  const auto doubt = adapter_doubts_.find({url, adapter});
  return doubt != adapter_doubts_.end() && doubt->second == truth(url).incarnation;
}

// One who changes at a time, whichever pairs share the worker.
void Invariants::check_adapter_lock(const protocol::Call& call, bool active) {
  const auto worker = state().workers.find(call.worker);
  if (worker == state().workers.end()) throw Violation{0, "a call to a worker that isn't registered: " + call.worker};
  const std::string& holder = worker->second.locked_by;
  // Decided before an update took the worker over, in the same group, and given up: that is told next.
  if (!active && state().adapter_calls.count(call.call) == 0) return;
  if (active ? holder != call.update : !holder.empty())
    throw Violation{5,
                    fmt::format("{} of {} while update '{}' has it", name(call.operation.kind), call.worker, holder)};
  const auto update = state().updates.find(call.update);
  const std::string pair = update == state().updates.end() ? "" : update->second.pair;
  for (const auto& [id, open] : adapter_calls_) {
    if (open.worker != call.worker || !changes_adapters(open.operation.kind)) continue;
    const auto other = state().updates.find(open.update);
    const bool same = other != state().updates.end() && other->second.pair == pair;
    if (same || active)
      throw Violation{5, fmt::format("{} of {} while call {} about {} is open", name(call.operation.kind), call.worker,
                                     id, open.operation.adapter)};
  }
}

bool Invariants::on_adapter_call_ended(const protocol::CallEnded& event) {
  const auto node = adapter_calls_.extract(event.call);
  if (node.empty()) return false;
  const protocol::Call& call = node.mapped();
  const bool load = call.operation.kind == OperationKind::load_adapter;
  if (load && event.outcome.kind == OutcomeKind::not_sent) loads_.erase({call.update, call.worker});
  if (!event.outcome.ok()) doubt_adapter(call);
  return true;
}

// What the machine says that a worker serves, it serves.
void Invariants::check_adapters(const Pair& pair) {
  if (!has_adapters_of(pair)) return;
  for (const auto& [url, known] : pair.adapters) {
    const EngineTruth& real = truth(url);
    if (!real.alive || real.incarnation != known.incarnation || adapters_excused(url)) continue;
    for (const auto& [name, adapter] : known.names) {
      if (!adapter.certain || in_hand(url, name) || is_disturbed(url, name) || real.dropped.count(name) > 0) continue;
      const auto served = real.adapters.find(name);
      if (served == real.adapters.end() || served->second.content != content_of(adapter.directory))
        throw Violation{13, fmt::format("{} is said to serve {} from '{}' ({}), and serves {}", url, name,
                                        adapter.directory, content_of(adapter.directory),
                                        served == real.adapters.end() ? -1 : served->second.content)};
    }
    check_served(pair, url, known);
  }
}

void Invariants::check_served(const Pair& pair, const std::string& url, const WorkerAdapters& known) const {
  if (!known.version || known.cause) return;
  const EngineTruth& real = truth(url);
  const std::string name = protocol::adapter_name(*pair.spec.lora, known.version->version);
  if (in_hand(url, name) || is_disturbed(url, name) || real.dropped.count(name) > 0) return;
  const auto served = real.adapters.find(name);
  if (served == real.adapters.end() || served->second.content != content_of(known.version->directory))
    throw Violation{2, fmt::format("{} is said to serve version {} of {}, and does not", url, known.version->version,
                                   pair.spec.name)};
}

bool Invariants::in_hand(const std::string& worker, const std::string& adapter) const {
  const auto& known = state().adapter_calls;  // answered perhaps, and the machine has not seen it yet
  const bool waits = std::any_of(known.begin(), known.end(), [&](const auto& entry) {
    return entry.second.worker == worker && entry.second.adapter == adapter;
  });
  if (waits) return true;
  return std::any_of(adapter_calls_.begin(), adapter_calls_.end(), [&](const auto& entry) {
    return entry.second.worker == worker && entry.second.operation.adapter == adapter;
  });
}

void Invariants::check_adapter_verdict(const Update& update, const std::string& url, const protocol::Target& target) {
  const EngineTruth& real = truth(url);
  if (!real.alive || real.incarnation != target.incarnation || adapters_excused(url)) return;
  const Pair* pair = lora_of(update.pair);
  if (pair == nullptr || !has_adapters_of(*pair)) return;
  const std::string adapter = protocol::adapter_name(*pair->spec.lora, update.version.version);
  // By a load of another pair, whose gateway has no lock of this one.
  const bool dropped = w_.scenario.has_rivals() && real.dropped.count(adapter) > 0;
  if (dropped || is_disturbed(url, adapter)) return;
  const auto served = real.adapters.find(adapter);
  if (served == real.adapters.end() || served->second.content != content_of(update.version.directory))
    throw Violation{3, fmt::format("{} counts as verified, and does not serve v{}", url, update.version.version)};
}

// An engine may read the directory of an adapter again at any time.
void Invariants::check_adapter_directory(const std::string& directory) const {
  for (const auto& [name, pair] : state().pairs) {
    for (const auto& [url, known] : pair.adapters) {
      const EngineTruth& real = truth(url);
      if (!real.alive || adapters_excused(url)) continue;
      const bool served = std::any_of(real.adapters.begin(), real.adapters.end(),
                                      [&](const auto& entry) { return entry.second.directory == directory; });
      if (served || w_.network.adapter_pending(url, directory))
        throw Violation{12, fmt::format("'{}' is discarded, and {} may read it again", directory, url)};
    }
  }
}

// A name is in it once, for its newest version. With `keep` 0 all stay.
std::vector<protocol::VersionRef> Invariants::window_of(const Pair& pair) const {
  std::vector<protocol::VersionRef> window;
  const auto book = pairs_.find(pair.spec.name);
  if (book == pairs_.end()) return window;
  const protocol::LoraSpec& lora = *pair.spec.lora;
  const std::vector<protocol::VersionRef>& commits = book->second.commits;
  std::set<std::string> names;
  for (auto it = commits.rbegin(); it != commits.rend(); ++it) {
    if (lora.keep > 0 && window.size() == static_cast<std::size_t>(lora.keep)) break;
    if (names.insert(protocol::adapter_name(lora, it->version)).second) window.push_back(*it);
  }
  return window;
}

// Where nothing fails: the last `keep` versions, and no other.
std::string Invariants::unsettled_window(const Pair& pair) const {
  const protocol::LoraSpec& lora = *pair.spec.lora;
  std::map<std::string, std::int64_t> wanted;
  for (const protocol::VersionRef& version : window_of(pair))
    wanted[protocol::adapter_name(lora, version.version)] = content_of(version.directory);
  for (const auto& [url, known] : pair.adapters) {
    std::map<std::string, std::int64_t> served;
    for (const auto& [name, adapter] : truth(url).adapters) {
      if (name.starts_with(lora.name + "-v")) served[name] = adapter.content;
    }
    if (served != wanted)
      return fmt::format("no fault, and {} serves {} versions of {}, not its last {}", url, served.size(), lora.name,
                         wanted.size());
  }
  return "";
}

// While its pair is in use every worker that serves has the window again, or it is told what it could not get.
std::string Invariants::unsettled_adapters(const Pair& pair) const {
  const std::string& name = pair.spec.name;
  if (skipped_checks.windows || !pair.spec.lora || stopped_ || !w_.owns(name) ||
      pair.spec.policy.pair_lease == Milliseconds{0})
    return "";
  std::vector<protocol::VersionRef> window = window_of(pair);
  if (pair.spec.lora->keep == 0 && window.size() > 1) window.resize(1);  // the older ones are who keeps them
  for (const auto& [url, known] : pair.adapters) {
    const auto worker = state().workers.find(url);
    const auto book = books_.find(url);
    const EngineTruth& real = truth(url);
    // A model that is known to be another gateway's keeps its adapters from nobody.
    const auto model = worker == state().workers.end() ? state().pairs.end() : state().pairs.find(worker->second.pair);
    const bool is_lost = model != state().pairs.end() && model->second.ownership.superseded_by;
    const bool serves = worker != state().workers.end() &&
                        (worker->second.state == protocol::WorkerState::ready || is_lost) &&
                        worker->second.earlier.empty() && worker->second.dialect && real.alive && !real.paused;
    const bool few = w_.network.find(url)->places() > 0;
    if (!serves || few || adapters_excused(url) || (book != books_.end() && !book->second.unresolved.empty())) continue;
    for (const protocol::VersionRef& version : window) {
      const std::string adapter = protocol::adapter_name(*pair.spec.lora, version.version);
      const auto served = real.adapters.find(adapter);
      if (served != real.adapters.end() && served->second.content == content_of(version.directory)) continue;
      if (is_disturbed(url, adapter)) continue;
      if (discarded_.count(version.directory) > 0) continue;  // the pair kept fewer when it went
      const bool told = known.lacking.count(adapter) > 0 && (known.cause || !known.missing.empty());
      if (!told)
        return fmt::format("{} lacks {}, which is in the window of {}, and nobody is told", url, adapter, name);
    }
  }
  return "";
}

}  // namespace weighlock::sim
