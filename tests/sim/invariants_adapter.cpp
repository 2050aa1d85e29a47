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

bool Invariants::is_lora(const Update& update) const {
  return w_.scenario.pairs[w_.scenario.pair_of(update.pair)].lora.has_value();
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
  if (kind == OperationKind::load_adapter) {
    if (!active) throw Violation{0, fmt::format("{} is loaded outside of any update", call.operation.adapter)};
    if (sealed_.count(call.operation.directory) == 0)
      throw Violation{12, fmt::format("{} is told '{}' before it is sealed", call.worker, call.operation.directory)};
    if (discarded_.count(call.operation.directory) > 0)
      throw Violation{12, fmt::format("{} is told '{}', which was discarded", call.worker, call.operation.directory)};
    if (call.operation.directory == update->second.version.directory) {
      check_canary(call, update->second);
      loads_.emplace(call.update, call.worker);
    }
  }
  adapter_calls_[call.call] = call;
}

// One who changes at a time, whichever pairs share the worker.
void Invariants::check_adapter_lock(const protocol::Call& call, bool active) {
  const auto worker = state().workers.find(call.worker);
  if (worker == state().workers.end()) throw Violation{0, "a call to a worker that isn't registered: " + call.worker};
  const std::string& holder = worker->second.locked_by;
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
  return true;
}

// What the machine says that a worker serves, it serves.
void Invariants::check_adapters(const Pair& pair) {
  for (const auto& [url, known] : pair.adapters) {
    const EngineTruth& real = truth(url);
    if (!real.alive || real.incarnation != known.incarnation || adapters_excused(url)) continue;
    for (const auto& [name, adapter] : known.names) {
      if (!adapter.certain || in_hand(url, name)) continue;
      const auto served = real.adapters.find(name);
      if (served == real.adapters.end() || served->second.content != content_of(adapter.directory))
        throw Violation{13, fmt::format("{} is said to serve {} from '{}' ({}), and serves {}", url, name,
                                        adapter.directory, content_of(adapter.directory),
                                        served == real.adapters.end() ? -1 : served->second.content)};
    }
  }
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
  if (pair == nullptr) return;
  const auto served = real.adapters.find(protocol::adapter_name(*pair->spec.lora, update.version.version));
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

// Where nothing fails: the last `keep` versions, and no other.
std::string Invariants::unsettled_window(const Pair& pair) const {
  const protocol::LoraSpec& lora = *pair.spec.lora;
  const std::vector<protocol::VersionRef>& commits = pairs_.at(pair.spec.name).commits;
  const std::size_t count =
      lora.keep == 0 ? commits.size() : std::min(commits.size(), static_cast<std::size_t>(lora.keep));
  std::map<std::string, std::int64_t> wanted;
  for (std::size_t i = commits.size() - count; i < commits.size(); ++i)
    wanted[protocol::adapter_name(lora, commits[i].version)] = content_of(commits[i].directory);
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

}  // namespace weighlock::sim
