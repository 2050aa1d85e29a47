// SGLang's routes that load and unload LoRA adapters.
#include "tinyengine/engine/sglang_front.hpp"

namespace weighlock::tiny {

void SglangFront::load_lora(const Call& call, const json::value& body, const Reply& reply) {
  const auto name = find_string(body, "lora_name"), path = find_string(body, "lora_path");
  if (!name || !path) {
    reply.send(sglang_error(
        "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'lora_path'), 'msg': 'Field required'}"));
    return;
  }
  SglangAdapters::Change change;
  change.name = *name;
  change.directory = *path;
  change.delay = call.load_delay;
  change.partial = call.partial_load;
  change.then = [weak = weak_from_this(), reply](const SglangAdapters::Outcome& outcome) {
    if (const auto front = weak.lock()) front->answer_adapter_change(outcome, reply);
  };
  change.dropped = [weak = weak_from_this(), reply] {
    if (const auto front = weak.lock()) front->hold(reply);
  };
  adapters_->load(std::move(change));
}

void SglangFront::unload_lora(const Call& call, const json::value& body, const Reply& reply) {
  const auto name = find_string(body, "lora_name");
  if (!name) {
    reply.send(sglang_error(
        "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'lora_name'), 'msg': 'Field required'}"));
    return;
  }
  SglangAdapters::Change change;
  change.name = *name;
  change.half_unload = call.half_unload;
  change.then = [weak = weak_from_this(), reply](const SglangAdapters::Outcome& outcome) {
    if (const auto front = weak.lock()) front->answer_adapter_change(outcome, reply);
  };
  change.dropped = [weak = weak_from_this(), reply] {
    if (const auto front = weak.lock()) front->hold(reply);
  };
  adapters_->unload(std::move(change));
}

void SglangFront::answer_adapter_change(const SglangAdapters::Outcome& outcome, const Reply& reply) {
  reply.send_json(outcome.error.empty() ? 200 : 400, adapter_answer(outcome.error, outcome.loaded));
}

json::object SglangFront::adapters() const {
  json::object all;
  for (const auto& adapter : adapters_->registered()) all[adapter->name] = adapter->directory;
  return all;
}

}  // namespace weighlock::tiny
