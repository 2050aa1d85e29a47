#include "tinyengine/engine/vllm_front.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weighlock::tiny {
namespace {

constexpr std::string_view kDead = "EngineCore encountered an issue. See stack trace (above) for the root cause.";

std::string_view type_of(int status) {
  return status == 400 ? "Bad Request" : status == 404 ? "NotFoundError" : "InternalServerError";
}

}  // namespace

std::shared_ptr<Front> make_vllm_front(FrontContext context) {
  return std::make_shared<VllmFront>(std::move(context));
}

HttpResponse vllm_error(int status, const std::string& message, std::string_view type, const json::value& param) {
  json::object error;
  error["message"] = message;
  error["type"] = json::string(type.empty() ? type_of(status) : type);
  error["param"] = param;
  error["code"] = status;
  return json_response(status, json::object{{"error", std::move(error)}});
}

VllmFront::VllmFront(FrontContext context)
    : context_(std::move(context)), last_directory_(context_.settings.model_directory) {}

const std::vector<VllmFront::Route>& VllmFront::routes() {
  using F = VllmFront;
  static const std::vector<Route> kRoutes = {
      {"/health", "GET", &F::health},
      {"/version", "GET", &F::version},
      {"/weight_info", "GET", &F::weight_info},
      {"/is_paused", "GET", &F::is_paused},
      {"/is_sleeping", "GET", &F::is_sleeping},
      {"/metrics", "GET", &F::metrics},
      {"/get_world_size", "GET", &F::world_size},
      {"/load", "GET", &F::load_count},
      {"/server_info", "GET", &F::server_info},
      {"/v1/models", "GET", &F::models},
      {"/pause", "POST", &F::pause},
      {"/resume", "POST", &F::resume},
      {"/collective_rpc", "POST", &F::collective_rpc},
      {"/update_weight_version", "POST", &F::update_label},
      {"/reset_prefix_cache", "POST", &F::reset_prefix_cache},
      {"/abort_requests", "POST", &F::abort_requests},
      {"/weight_checker", "POST", &F::weight_checker},
      {"/v1/completions", "POST", &F::completions},
      {"/v1/load_lora_adapter", "POST", &F::load_lora},
      {"/v1/unload_lora_adapter", "POST", &F::unload_lora},
  };
  return kRoutes;
}

void VllmFront::handle(Call call, Reply reply) {
  // Keys guard /v1 only: every control route is open.
  const std::string& key = context_.settings.api_key;
  if (call.path.starts_with("/v1") && !key.empty() && !has_bearer(call.request, key)) {
    reply.send_json(401, json::object{{"error", "Unauthorized"}});
    return;
  }
  const auto route =
      std::find_if(routes().begin(), routes().end(), [&](const Route& r) { return r.path == call.path; });
  if (route == routes().end()) {
    reply.send_json(404, json::object{{"detail", "Not Found"}});
  } else if (route->method != call.request.method) {
    reply.send_json(405, json::object{{"detail", "Method Not Allowed"}});
  } else {
    (this->*route->member)(call, reply);
  }
}

HttpResponse VllmFront::failure(std::string_view path, int status, const std::string& message) const {
  if (path == "/pause" || path == "/resume" || path == "/is_paused") {
    return json_response(status,
                         json::object{{"error", fmt::format("Failed to {} generation: {}", path.substr(1), message)}});
  }
  return vllm_error(status, path == "/collective_rpc" ? "Call to collective_rpc method failed: " + message : message);
}

HttpResponse VllmFront::refusal(std::string_view, const std::string& message) const {
  return json_response(200, json::object{{"success", false}, {"message", message}});
}

HttpResponse VllmFront::dead_answer(std::string_view failed_to) const {
  if (failed_to.empty()) return vllm_error(500, std::string(kDead));
  return json_response(500, json::object{{"error", fmt::format("Failed to {}: {}", failed_to, kDead)}});
}

void VllmFront::ask_core(const Reply& reply, std::function<void()> work, std::string_view failed_to) {
  context_.core->submit_quick(std::move(work), [front = self(), reply, failed_to = std::string(failed_to)] {
    reply.send(front->dead_answer(failed_to));
    front->notice_death();
  });
}

void VllmFront::notice_death() {
  if (death_noticed_ || !context_.core->dead()) return;
  death_noticed_ = true;
  context_.die(context_.settings.timings.vllm_death);
}

void VllmFront::core_killed() {
  context_.core->die();
  notice_death();
}

const std::string& VllmFront::model_name() const {
  return context_.settings.served_model_name.empty() ? context_.settings.model_directory
                                                     : context_.settings.served_model_name;
}

void VllmFront::health(const Call&, const Reply& reply) {
  reply.send_empty(context_.core->dead() ? 503 : 200);
}

void VllmFront::version(const Call&, const Reply& reply) {
  reply.send_json(200, json::object{{"version", "0.32.0"}});
}

void VllmFront::weight_info(const Call&, const Reply& reply) {
  ask_core(reply, [front = self(), reply] {
    reply.send_json(200, json::object{{"weight_version", front->context_.core->label()}});
  });
}

void VllmFront::is_paused(const Call&, const Reply& reply) {
  ask_core(
      reply,
      [front = self(), reply] {
        reply.send_json(200, json::object{{"is_paused", front->paused()}});
      },
      "check pause status");
}

void VllmFront::is_sleeping(const Call&, const Reply& reply) {  // true when merely paused, too
  ask_core(reply, [front = self(), reply] { reply.send_json(200, json::object{{"is_sleeping", front->paused()}}); });
}

void VllmFront::metrics(const Call&, const Reply& reply) {
  const std::string text = fmt::format(
      "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n"
      "# TYPE process_start_time_seconds gauge\n"
      "process_start_time_seconds {:.11e}\n",
      context_.start_time);
  reply.send({200, {{"Content-Type", "text/plain; version=1.0.0; charset=utf-8"}, {"Server", "uvicorn"}}, text});
}

void VllmFront::world_size(const Call&, const Reply& reply) {
  reply.send_json(200, json::object{{"world_size", context_.settings.world_size}});
}

void VllmFront::load_count(const Call&, const Reply& reply) {
  reply.send_json(200, json::object{{"server_load", 0}});
}

void VllmFront::server_info(const Call&, const Reply& reply) {
  context_.loop.after(context_.settings.timings.server_info, [weak = weak_from_this(), reply] {
    const auto front = weak.lock();
    if (!front) return;
    json::object config{{"model", front->context_.settings.model_directory},
                        {"served_model_name", front->model_name()}};
    reply.send_json(200, json::object{{"vllm_config", std::move(config)}, {"system_env", std::string(19'000, ' ')}});
  });
}

void VllmFront::pause(const Call& call, const Reply& reply) {
  const std::string mode = query_value(call.query, "mode").value_or("abort");
  if (mode != "abort" && mode != "wait" && mode != "keep") {
    reply.send(vllm_error(400,
                          "1 validation error:\n  {'type': 'literal_error', 'loc': 'query.mode', 'msg': \"Input should "
                          "be 'abort', 'wait' or 'keep'\"}",
                          "", "query.mode"));
    return;
  }
  const bool clear = query_flag(call.query, "clear_cache", true);
  ask_core(
      reply,
      [front = self(), mode, clear, arrived = context_.core->arrivals(), reply] {
        front->pause_now(mode, clear, arrived, reply);
      },
      "pause generation");
}

void VllmFront::pause_now(const std::string& mode, bool clear, std::uint64_t arrived, const Reply& reply) {
  Core& core = *context_.core;
  const auto answer = [front = self(), clear, reply] {
    if (clear) {
      // Requests that go on lose their cache, too, and are computed anew after the resume.
      front->context_.core->retract_all();
      front->context_.core->clear_prefixes();
    }
    reply.send_json(200, json::object{{"status", "paused"}});
  };
  if (mode == "abort") core.abort_arrived(arrived);
  core.set_hold(mode == "keep" ? Hold::all : Hold::fresh);
  if (mode == "wait") {
    core.when_drained(answer);
  } else {
    answer();
  }
}

void VllmFront::resume(const Call&, const Reply& reply) {
  ask_core(
      reply,
      [front = self(), reply] {
        front->context_.core->set_hold(Hold::none);
        reply.send_json(200, json::object{{"status", "resumed"}});
      },
      "resume generation");
}

void VllmFront::update_label(const Call& call, const Reply& reply) {
  const std::string_view type = header(call.request.headers, "Content-Type");
  auto body = parse_json(call.request.body, "request body");
  if (type.find("json") == std::string_view::npos || !body || !find_string(*body, "new_version")) {
    reply.send(vllm_error(400,
                          "1 validation error:\n  {'type': 'string_type', 'loc': 'body.new_version', 'msg': 'Input "
                          "should be a valid string'}"));
    return;
  }
  ask_core(reply, [front = self(), label = std::string(*find_string(*body, "new_version")), reply] {
    front->context_.core->set_label(label);
    reply.send_json(200, json::object{{"success", true}, {"new_version", label}});
  });
}

void VllmFront::reset_prefix_cache(const Call& call, const Reply& reply) {
  const bool running_too = query_flag(call.query, "reset_running_requests", false);
  ask_core(reply, [front = self(), running_too, reply] {
    Core& core = *front->context_.core;
    if (running_too) core.retract_all();
    const bool success = core.running() == 0;
    if (success) core.clear_prefixes();
    reply.send_json(200, json::object{{"success", success}});
  });
}

void VllmFront::abort_requests(const Call& call, const Reply& reply) {
  if (auto body = parse_json(call.request.body, "request body"); !body) {
    reply.send(vllm_error(400, "Invalid JSON format"));
    return;
  }
  ask_core(reply, [front = self(), arrived = context_.core->arrivals(), reply] {
    const std::size_t aborted = front->context_.core->abort_arrived(arrived);
    reply.send_json(200, json::object{{"status", "aborted"}, {"aborted", aborted}});
  });
}

}  // namespace weighlock::tiny
