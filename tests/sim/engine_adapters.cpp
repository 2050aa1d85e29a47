// LoRA adapters in a simulated engine.
#include "sim/answers.hpp"
#include "sim/engine.hpp"

namespace weighlock::sim {

void Engine::forget_adapter(const std::string& name) {
  truth_.adapters.erase(name);
  std::erase(truth_.loaded_order, name);
}

Outcome Engine::load_adapter(const Operation& operation) {
  const auto refused = [](ErrorCode code, std::string text) {
    Outcome outcome = failed(OutcomeKind::untouched, std::move(text));
    outcome.code = code;
    return outcome;
  };
  if (faults_.strikes(Fault::reject)) return refused(ErrorCode::worker_failed, "refused by the engine");
  if (truth_.half_unloaded.count(operation.adapter) > 0)
    return refused(ErrorCode::adapter_half_unloaded, "has an incomplete unload");
  if (truth_.adapters.count(operation.adapter) > 0)
    return refused(ErrorCode::adapter_exists, "has already been loaded");
  if (faults_.strikes(Fault::tear)) {
    truth_.half_unloaded.insert(operation.adapter);
    return failed(OutcomeKind::touched, "failed half way");
  }
  const Directory* directory = store_.find(operation.directory);
  if (directory == nullptr || directory->discarded) return refused(ErrorCode::checkpoint_missing, "no such directory");
  if (places_ > 0 && truth_.loaded_order.size() >= places_) {
    const std::string oldest = truth_.loaded_order.front();
    trace_.line("engine {} drops {}", url_, oldest);
    truth_.dropped.insert(oldest);
    forget_adapter(oldest);
  }
  truth_.adapters[operation.adapter] = AdapterTruth{operation.directory, directory->content};
  truth_.loaded_order.push_back(operation.adapter);
  truth_.dropped.erase(operation.adapter);
  if (faults_.strikes(Fault::new_but_failed)) return failed(OutcomeKind::touched, "failed, but it is there");
  return ok();
}

Outcome Engine::unload_adapter(const Operation& operation) {
  if (faults_.strikes(Fault::reject)) return failed(OutcomeKind::untouched, "refused by the engine");
  const bool was_half = truth_.half_unloaded.erase(operation.adapter) > 0;
  const bool was_loaded = truth_.adapters.count(operation.adapter) > 0;
  forget_adapter(operation.adapter);
  if (was_half || was_loaded) return ok();
  Outcome outcome = failed(OutcomeKind::untouched, "does not exist");
  outcome.code = ErrorCode::adapter_missing;
  return outcome;
}

Outcome Engine::list_adapters() {
  Outcome outcome = ok();
  outcome.reading = reading();
  outcome.reading->adapters.emplace();
  for (const auto& [name, adapter] : truth_.adapters)
    outcome.reading->adapters->push_back(LoadedAdapter{name, kind_ == DialectKind::vllm ? "" : adapter.directory});
  return outcome;
}

}  // namespace weighlock::sim
