// vLLM's reload_weights and what a failed one leaves behind.
#include <fmt/format.h>

#include <filesystem>

#include "tinyengine/engine/checksums.hpp"
#include "tinyengine/engine/vllm_front.hpp"
#include "tinyengine/model/seeded.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::string_view kKeyPrefix = "dp0:pp0:pcp0:tp0:";
constexpr std::uint64_t kDestroyedSeed = 0xDEAD;

std::string worker_failed(std::string_view text) {
  return fmt::format(
      "Call to collective_rpc method failed: Worker failed with error '{}', please check the stack trace above for the "
      "root cause",
      text);
}

json::object checksums_of(const Llama& model) {
  json::object sums;
  for (const auto& [name, bytes] : fused_parameters(model)) {
    sums[std::string(kKeyPrefix) + name] =
        sha256_hex(is_packed_linear(name) ? std::string_view() : std::string_view(bytes));
  }
  return sums;
}

}  // namespace

void VllmFront::collective_rpc(const Call& call, const Reply& reply) {
  // Any content type is taken.
  auto body = parse_json(call.request.body, "request body");
  if (!body) {
    reply.send(vllm_error(400, "JSON decode error: " + body.error().text()));
    return;
  }
  const auto method = find_string(*body, "method");
  if (!method) {
    reply.send(vllm_error(400, "Missing 'method' in request body"));
    return;
  }
  if (*method == "reload_weights") {
    reload(call, *body, reply);
    return;
  }
  ask_core(reply, [front = self(), method = std::string(*method), reply] {
    if (method == "update_config") {
      reply.send_json(200, json::object{{"results", json::array{nullptr}}});
    } else {
      reply.send(vllm_error(500, worker_failed(fmt::format("'CPUWorker' object has no attribute '{}'", method))));
    }
  });
}

void VllmFront::reload(const Call& call, const json::value& body, const Reply& reply) {
  std::string path;
  if (const json::value* kwargs = find(body, "kwargs"); kwargs && kwargs->is_object()) {
    for (const auto& [key, value] : kwargs->as_object()) {
      if (key == "weights_path" || key == "is_checkpoint_format") continue;
      const std::string text = fmt::format("reload_weights() got an unexpected keyword argument '{}'",
                                           std::string_view(key.data(), key.size()));
      ask_core(reply, [reply, text] { reply.send(vllm_error(500, worker_failed(text))); });
      return;
    }
    path = find_string(*kwargs, "weights_path").value_or("");
  }
  context_.log.load_begins(call.log_number);
  if (const json::value* timeout = find(body, "timeout"); timeout && timeout->is_number()) {
    // When it expires the late reply is taken for the next call's: from then on the engine is lost.
    const Milliseconds limit{static_cast<std::int64_t>(timeout->to_number<double>() * 1000)};
    context_.loop.after(limit, [weak = weak_from_this(), reply, in_time = reply.is_sent()] {
      const auto front = weak.lock();
      if (!front || *in_time) return;
      front->replies_shifted_ = true;
      front->context_.core->doom();
      reply.send(vllm_error(500, "Call to collective_rpc method failed: RPC call to reload_weights timed out."));
    });
  }
  context_.core->submit(
      [front = self(), call, path, reply](Core::Done done) {
        if (!path.empty()) front->last_directory_ = path;
        front->run_reload(call, front->last_directory_, reply, std::move(done));
      },
      [front = self(), reply] { reply.send(front->dead_answer("")); });
}

void VllmFront::run_reload(const Call& call, const std::string& directory, const Reply& reply, Core::Done done) {
  const EngineTimings& timings = context_.settings.timings;
  std::error_code ignored;
  const bool looks_elsewhere = !std::filesystem::is_directory(directory, ignored);
  const Milliseconds delay = timings.load + call.load_delay + (looks_elsewhere ? timings.hub_lookup : Milliseconds{0});
  const LoadRequest request{directory, fmt::format("{} ({})", directory, call.log_number), call.partial_load};
  context_.core->load(delay, directory, make_loader(DialectKind::vllm, request),
                      [front = self(), reply, done](const LoadReport& report) {
                        front->context_.log.load_ends();
                        front->reloaded(report, reply);
                        done();
                      });
}

void VllmFront::reloaded(const LoadReport& report, const Reply& reply) {
  if (!report.ok) {
    reply.send(vllm_error(500, worker_failed(report.text)));
    return;
  }
  json::array results;
  for (int worker = 0; worker < context_.settings.world_size; ++worker) results.emplace_back(nullptr);
  reply.send_json(200, json::object{{"results", std::move(results)}});
}

void VllmFront::weight_checker(const Call& call, const Reply& reply) {
  auto body = parse_json(call.request.body, "request body");
  const auto action = body ? find_string(*body, "action") : std::nullopt;
  if (!action || (*action != "checksum" && *action != "compare" && *action != "reset")) {
    reply.send(vllm_error(400, "1 validation error:\n  {'type': 'literal_error', 'loc': 'body.action'}"));
    return;
  }
  const json::value* baseline = find(*body, "baseline");
  ask_core(reply,
           [front = self(), action = std::string(*action), given = baseline ? *baseline : json::value(json::object{}),
            reply] { front->check_weights(action, given, reply); });
}

void VllmFront::check_weights(const std::string& action, const json::value& baseline, const Reply& reply) {
  const Core& core = *context_.core;
  if (replies_shifted_) {
    reply.send(vllm_error(500, "'NoneType' object has no attribute 'keys'"));
    return;
  }
  if (core.dirt().torn && !core.dirt().copies_readable) {
    reply.send(
        vllm_error(500, "Call to compute_weight_checksums method failed: Cannot copy out of meta tensor; no data!"));
    return;
  }
  if (action == "reset") {
    destroy_weights(reply);
    return;
  }
  json::object sums = checksums_of(*core.model());
  if (action == "checksum") {
    reply.send_json(200, json::object{{"checksums", std::move(sums)}});
    return;
  }
  json::array mismatches;
  for (const auto& [name, sum] : sums) {
    const json::value* expected = find(baseline, {name.data(), name.size()});
    if (!expected || *expected != sum) mismatches.emplace_back(name);
  }
  const bool match = mismatches.empty();
  reply.send_json(200, json::object{{"match", match}, {"mismatches", std::move(mismatches)}});
}

void VllmFront::destroy_weights(const Reply& reply) {
  const ModelShape shape = context_.core->model()->shape();
  ServedTensors tensors;
  for (Tensor& tensor : seeded_model(shape, kDestroyedSeed)) {
    const std::string name = tensor.name;
    tensors[name] = serve_tensor(std::move(tensor), shape.dtype, "reset").value();
  }
  context_.core->replace_model(Llama::make(shape, std::move(tensors)).value());
  reply.send_json(200, json::object{{"status", "reset"}});
}

}  // namespace weighlock::tiny
