// vLLM's control routes, as far as a disk update needs them, on the state of a fake engine. Included by tests only.
#pragma once

#include <atomic>
#include <string>

#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock::test {

inline HttpResponse json_reply(int status, const json::value& body) {
  return HttpResponse{status, {{"Content-Type", "application/json"}}, json::serialize(body)};
}

// What the engine holds; its owner's own members.
struct VllmState {
  std::string& path;
  std::string& label;
  double started;
  std::atomic<bool>& paused;
  std::atomic<int>& loads;
};

inline HttpResponse vllm_load(const json::value& body, VllmState engine) {
  const json::value* kwargs = find(body, "kwargs");
  ++engine.loads;
  engine.path = kwargs ? find_string(*kwargs, "weights_path").value_or("") : "";
  return json_reply(200, {{"results", json::array{nullptr}}});
}

inline HttpResponse vllm_answer(const std::string& target, const json::value& body, VllmState engine) {
  if (target == "/version") return json_reply(200, {{"version", "0.32.0"}});
  if (target == "/server_info") return json_reply(200, {{"vllm_config", "long"}});  // nothing that SGLang's has
  if (target == "/is_paused") return json_reply(200, {{"is_paused", engine.paused.load()}});
  if (target == "/weight_info") return json_reply(200, {{"weight_version", engine.label}});
  if (target == "/metrics")
    return HttpResponse{200, {}, "process_start_time_seconds " + std::to_string(engine.started) + "\n"};
  if (target == "/v1/models") {
    const json::object model{{"id", "m"}, {"root", json::string(engine.path)}, {"parent", nullptr}};
    return json_reply(200, {{"data", json::array(1, model)}});
  }
  if (target == "/pause" || target == "/resume") {
    engine.paused = target == "/pause";
    return json_reply(200, {{"status", engine.paused ? "paused" : "resumed"}});
  }
  if (target == "/update_weight_version") {
    engine.label = find_string(body, "new_version").value_or("");
    return json_reply(200, {{"success", true}, {"new_version", engine.label}});
  }
  if (target == "/get_world_size") return json_reply(200, {{"world_size", 1}});
  if (target == "/reset_prefix_cache") return json_reply(200, {{"success", true}});
  if (target == "/collective_rpc") return vllm_load(body, engine);
  return json_reply(404, {{"detail", "Not Found"}});
}

}  // namespace weighlock::test
