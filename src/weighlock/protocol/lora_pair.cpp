// Connecting and removing a LoRA pair. Neither calls an engine: as with the Python gateway, names stay loaded when a
// pair leaves; a pair that comes back lists them.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

bool lists(const PairSpec& spec, const std::string& url) {
  return std::any_of(spec.workers.begin(), spec.workers.end(), [&](const WorkerSpec& w) { return w.url == url; });
}

void let_go(Context& context, Pair& pair, const std::string& url) {
  preempt_retirement(context, url);
  const auto it = pair.adapters.find(url);
  if (it == pair.adapters.end()) return;
  leave_directories(pair, it->second);
  pair.adapters.erase(it);
  const auto worker = context.state().workers.find(url);
  if (worker != context.state().workers.end() && worker->second.pair.empty() && !is_shared(context.state(), url))
    forget_worker(context, url);
}

}  // namespace

std::optional<Error> refuse_lora(Context& context, const PairSpec& spec) {
  const auto refuse = [&](ErrorCode code, std::string text) {
    return Error{code, fmt::format("pair '{}': {}", spec.name, text), nullptr};
  };
  const auto known = context.state().pairs.find(spec.name);
  if (known != context.state().pairs.end() && known->second.spec.lora.has_value() != spec.lora.has_value())
    return refuse(ErrorCode::conflict, fmt::format("lora: it is connected {} now; disconnect it first",
                                                   spec.lora ? "for full models" : "for an adapter"));
  if (!spec.lora) return std::nullopt;
  if (spec.lora->name.empty()) return refuse(ErrorCode::invalid_argument, "lora.name: must not be empty");
  if (spec.lora->keep < 0 || spec.lora->keep > limits::kAdapterWindowMax)
    return refuse(ErrorCode::invalid_argument,
                  fmt::format("lora.keep: {} is not within 0..{}", spec.lora->keep, limits::kAdapterWindowMax));
  for (const auto& [name, other] : context.state().pairs) {
    if (name == spec.name || !other.spec.lora || other.spec.lora->name != spec.lora->name) continue;
    for (const WorkerSpec& worker : spec.workers) {
      if (lists(other.spec, worker.url))
        return refuse(ErrorCode::conflict,
                      fmt::format("lora.name '{}' is used on worker {} by pair '{}'; choose another name",
                                  spec.lora->name, worker.url, name));
    }
  }
  return std::nullopt;
}

void leave_directories(Pair& pair, const WorkerAdapters& known) {
  std::erase_if(pair.stored, [&](const StoredVersion& stored) {
    return std::any_of(known.names.begin(), known.names.end(),
                       [&](const auto& e) { return e.second.directory == stored.version.directory; });
  });
}

bool is_shared(const State& state, const std::string& worker) {
  return std::any_of(state.pairs.begin(), state.pairs.end(),
                     [&](const auto& e) { return e.second.adapters.contains(worker); });
}

void watch_for_adapters(Context& context, Worker& worker) {
  const auto& pairs = context.state().pairs;
  const bool serves = std::any_of(pairs.begin(), pairs.end(), [&](const auto& entry) {
    return entry.second.committed && entry.second.adapters.contains(worker.url);
  });
  if (serves && !worker.watch.timer && !worker.watch.call) begin_watch(context, worker);
}

void apply_lora_spec(Context& context, Pair& pair, const PairSpec& before) {
  std::vector<std::string> gone;
  for (const auto& [url, known] : pair.adapters) {
    const bool renamed = before.lora && before.lora->name != pair.spec.lora->name;  // the old names stay loaded
    if (renamed || !lists(pair.spec, url)) gone.push_back(url);
    if (renamed) pair.window.clear();
  }
  for (const std::string& url : gone) let_go(context, pair, url);
  for (const WorkerSpec& spec : pair.spec.workers) {
    Worker& worker = context.state().workers[spec.url];
    worker.url = spec.url;
    if (spec.dialect && !worker.seen_as) worker.dialect = spec.dialect;
    pair.adapters.try_emplace(spec.url, new_to_pair(pair));
    watch_for_adapters(context, worker);
  }
}

void remove_lora(Context& context, Pair& pair) {
  std::vector<std::string> urls;
  for (const auto& [url, known] : pair.adapters) urls.push_back(url);
  for (const std::string& url : urls) let_go(context, pair, url);
}

}  // namespace weighlock::protocol
