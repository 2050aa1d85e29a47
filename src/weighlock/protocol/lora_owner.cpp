// A LoRA pair that changes hands (protocol.md sections 9 and 10). A name is the same whoever loads it, so whatever this
// gateway knew is doubted: it is unloaded and loaded anew before it is said to be served. And what the former owner had
// sent may still wait in the engine. An unload that is sent twice is the barrier behind it (docs/adr/0001): the new
// owner begins with one at each worker.
#include <utility>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {

void doubt_adapters(Pair& pair, const Cause& why) {
  if (mutant(Mutant::adapters_outlive_owner)) return;
  for (auto& [url, known] : pair.adapters) {
    for (auto& [name, adapter] : known.names) {
      adapter.certain = false;
      adapter.attempt = 0;
    }
    known.taken_over = true;
    known.to_retire.clear();
    known.missing.clear();
    known.lacking.clear();
    known.version.reset();
    known.cause = why;
  }
}

WorkerAdapters new_to_pair(const Pair& pair) {
  WorkerAdapters out;
  out.taken_over = pair.ownership.epoch > 1;  // somebody else had the pair before
  return out;
}

bool is_for_adapters_only(const State& state, const Worker& worker) {
  if (worker.pair.empty()) return true;
  const auto model = state.pairs.find(worker.pair);
  return model != state.pairs.end() && is_superseded(model->second) && is_shared(state, worker.url);
}

bool can_serve_adapters(const State& state, const Worker& worker) {
  return worker.state == WorkerState::ready || is_for_adapters_only(state, worker);
}

void adapters_go_on(Context& context, const std::string& name) {
  const auto pair = context.state().pairs.find(name);
  if (pair == context.state().pairs.end()) return;
  Ownership& own = pair->second.ownership;
  const std::map<std::string, std::string> joins = std::exchange(own.joins_wait, {});
  if (std::exchange(own.unloads_wait, false)) start_retirements(context);
  for (const auto& [url, incarnation] : joins) {
    const auto worker = context.state().workers.find(url);
    if (worker != context.state().workers.end()) begin_adapter_join(context, worker->second, incarnation);
  }
}

}  // namespace weighlock::protocol
