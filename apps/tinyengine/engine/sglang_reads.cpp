// SGLang's routes that change nothing.
#include <algorithm>
#include <cmath>
#include <ctime>

#include "tinyengine/engine/checksums.hpp"
#include "tinyengine/engine/sglang_front.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::size_t kRowsMax = 100;  // truncate_size's default

json::array floats(const std::vector<float>& values, std::size_t begin, std::size_t count) {
  json::array list;
  for (std::size_t i = begin; i < std::min(begin + count, values.size()); ++i) {
    // JSON has no other numbers than finite ones.
    list.push_back(std::isfinite(values[i]) ? json::value(static_cast<double>(values[i])) : json::value(nullptr));
  }
  return list;
}

}  // namespace

void SglangFront::health(const Call&, const json::value&, const Reply& reply) {
  auto generation = std::make_shared<Generation>();
  generation->request.id = "HEALTH_CHECK_" + std::to_string(next_id_++);
  generation->request.prompt = {1};
  generation->request.tokens_max = 1;
  const auto answered = std::make_shared<bool>(false);
  generation->on_end = [front = weak_from_this(), answered](const Generation&, Finish finish) {
    if (finish != Finish::died) *answered = true;
    if (const auto alive = front.lock()) alive->leave();
  };
  enter({std::move(generation), "", nullptr});
  check_health(context_.loop.now() + context_.settings.timings.health_limit, answered, reply);
}

void SglangFront::check_health(Instant deadline, const std::shared_ptr<bool>& answered, const Reply& reply) {
  context_.loop.after(context_.settings.timings.health_poll, [weak = weak_from_this(), deadline, answered, reply] {
    const auto front = weak.lock();
    if (!front) return;
    if (*answered) {
      front->unhealthy_ = false;
      reply.send_empty(200);
    } else if (front->context_.loop.now() >= deadline) {
      front->unhealthy_ = true;  // until the next /health that succeeds, also after continue
      reply.send_empty(503);
    } else {
      front->check_health(deadline, answered, reply);
    }
  });
}

void SglangFront::ready(const Call&, const json::value&, const Reply& reply) {
  reply.send_empty(paused_ || unhealthy_ ? 503 : 200);  // the HTTP process alone: it knows nothing of a dead scheduler
}

void SglangFront::model_info(const Call&, const json::value&, const Reply& reply) {
  json::object info;
  info["model_path"] = directory_;
  info["served_model_name"] = served_name_;
  info["tokenizer_path"] = context_.settings.model_directory;
  info["is_generation"] = true;
  info["preferred_sampling_params"] = nullptr;
  info["weight_version"] = label_;
  info["load_format"] = load_format_;
  info["reasoning_parser"] = nullptr;
  info["tool_call_parser"] = nullptr;
  info["disaggregation_mode"] = "null";
  info["has_image_understanding"] = false;
  info["has_audio_understanding"] = false;
  info["model_type"] = "llama";
  info["architectures"] = json::array{"LlamaForCausalLM"};
  info["embedding"] = json::object{};
  reply.send_json(200, info);
}

void SglangFront::models(const Call&, const json::value&, const Reply& reply) {
  json::object model;
  model["id"] = served_name_;
  model["object"] = "model";
  model["created"] = static_cast<std::int64_t>(std::time(nullptr));
  model["owned_by"] = "sglang";
  model["root"] = served_name_;
  model["parent"] = nullptr;
  model["max_model_len"] = context_.core->model()->shape().positions_max;
  json::array list;
  list.push_back(std::move(model));
  for (const auto& adapter : adapters_->registered()) {
    json::object entry;
    entry["id"] = adapter->name;
    entry["object"] = "model";
    entry["created"] = static_cast<std::int64_t>(std::time(nullptr));
    entry["owned_by"] = "sglang";
    entry["root"] = adapter->directory;
    entry["parent"] = served_name_;
    entry["max_model_len"] = nullptr;
    list.push_back(std::move(entry));
  }
  reply.send_json(200, json::object{{"object", "list"}, {"data", std::move(list)}});
}

void SglangFront::server_info(const Call&, const json::value&, const Reply& reply) {
  ask_core(reply, [front = self(), reply] {
    const EngineSettings& settings = front->context_.settings;
    json::object info;  // the start arguments: never the updated ones
    info["model_path"] = settings.model_directory;
    info["tokenizer_path"] = settings.model_directory;
    info["host"] = settings.host;
    info["port"] = settings.port;
    info["load_format"] = "auto";
    info["weight_version"] = "default";
    info["tp_size"] = 1;
    info["dp_size"] = 1;
    info["pp_size"] = 1;
    info["tokenizer_worker_num"] = 1;
    const AdapterSettings& lora = settings.adapters;
    info["enable_lora"] = lora.rank_max > 0;
    info["max_lora_rank"] = lora.rank_max > 0 ? json::value(lora.rank_max) : json::value(nullptr);
    info["max_loaded_loras"] = lora.loaded_max > 0 ? json::value(lora.loaded_max) : json::value(nullptr);
    info["served_model_name"] =
        settings.served_model_name.empty() ? settings.model_directory : settings.served_model_name;
    info["internal_states"] = json::array{json::object{{"num_running_reqs", front->context_.core->running()}}};
    info["version"] = "0.5.23";
    info["frontend"] = "python";
    // Durations, in nanoseconds: all that is known of them is that no two starts have the same.
    info["startup_time"] = json::object{{"tokenizer_e2e", std::llround(front->context_.start_time * 1e6)}};
    reply.send_json(200, info);
  });
}

void SglangFront::loads(const Call&, const json::value&, const Reply& reply) {
  // From a snapshot, also while the scheduler is frozen: no barrier.
  const Core& core = *context_.core;
  json::object row{{"dp_rank", 0}, {"num_running_reqs", core.running()}, {"num_waiting_reqs", core.waiting()}};
  reply.send_json(200, json::object{{"loads", json::array{std::move(row)}}});
}

void SglangFront::weights_by_name(const Call&, const json::value& body, const Reply& reply) {
  const auto wanted = find_string(body, "name");
  if (!wanted) {
    reply.send(
        sglang_error("1 validation error:\n  {'type': 'missing', 'loc': ('body', 'name'), 'msg': 'Field required'}"));
    return;
  }
  const std::int64_t rows = std::max<std::int64_t>(0, find_int(body, "truncate_size").value_or(kRowsMax));
  ask_core(reply, [front = self(), name = std::string(*wanted), rows = static_cast<std::size_t>(rows), reply] {
    const ServedTensors& tensors = front->context_.core->model()->tensors();
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      reply.send_json(400, json::object{{"error", json::object{{"message", "Get parameter by name failed"}}}});
      return;
    }
    const ServedTensor& tensor = *found->second;
    if (tensor.tensor.shape.size() < 2) {
      reply.send_json(200, floats(tensor.values, 0, rows));
      return;
    }
    json::array list;
    const std::size_t columns = tensor.tensor.shape.back();
    for (std::size_t row = 0; row < std::min<std::size_t>(rows, tensor.tensor.shape[0]); ++row) {
      list.emplace_back(floats(tensor.values, row * columns, columns));
    }
    reply.send_json(200, list);
  });
}

void SglangFront::weights_checker(const Call&, const json::value& body, const Reply& reply) {
  const std::string action(find_string(body, "action").value_or("checksum"));
  ask_core(reply, [front = self(), action, reply] {
    if (action != "checksum") {
      reply.send_json(400, json::object{{"success", false}, {"message", "Unsupported action='" + action + "'"}});
      return;
    }
    json::object checksums;
    std::string all;
    for (const auto& [name, bytes] : fused_parameters(*front->context_.core->model())) {
      const std::string digest = sha256_hex(bytes);
      checksums[name] = digest.substr(0, 16);
      all += name + digest;
    }
    const std::string whole = sha256_hex(all);
    json::object rank;
    rank["checksums"] = std::move(checksums);
    rank["per_gpu_checksum"] = whole;
    rank["parallelism_info"] = json::array{json::object{{"role", "target"}, {"tp_rank", 0}, {"tp_size", 1}}};
    reply.send_json(200, json::object{{"success", true},
                                      {"message", "Success."},
                                      {"ranks", json::array{std::move(rank)}},
                                      {"per_engine_checksum", whole}});
  });
}

}  // namespace weighlock::tiny
