#include "tinyengine/engine/sglang_front.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace weighlock::tiny {
namespace {

constexpr Milliseconds kFlushPoll{20};

const std::set<std::string_view> kLoadFormats = {"auto",          "pt",      "safetensors", "npcache",
                                                 "sharded_state", "layered", "mistral"};

bool is_adapter_route(std::string_view path) {
  return path == "/load_lora_adapter" || path == "/unload_lora_adapter";
}

bool has_method(std::string_view methods, std::string_view method) {
  const std::size_t at = methods.find(method);
  return at != std::string_view::npos && !method.empty();
}

json::object update_answer(bool success, std::string message) {
  return {{"success", success}, {"message", std::move(message)}, {"num_paused_requests", 0}};
}

}  // namespace

std::shared_ptr<Front> make_sglang_front(FrontContext context) {
  return std::make_shared<SglangFront>(std::move(context));
}

json::object adapter_answer(const std::string& error, const json::value& loaded) {
  return {{"rid", nullptr},
          {"http_worker_ipc", nullptr},
          {"success", error.empty()},
          {"error_message", error},
          {"loaded_adapters", loaded}};
}

HttpResponse sglang_error(const std::string& message) {
  return json_response(
      400, json::object{
               {"object", "error"}, {"message", message}, {"type", "Bad Request"}, {"param", nullptr}, {"code", 400}});
}

SglangFront::SglangFront(FrontContext context)
    : context_(std::move(context)),
      adapters_(std::make_shared<SglangAdapters>(context_.loop, context_.core, context_.settings.adapters)) {
  directory_ = context_.settings.model_directory;
  served_name_ = context_.settings.served_model_name.empty() ? directory_ : context_.settings.served_model_name;
}

const std::vector<SglangFront::Route>& SglangFront::routes() {
  using F = SglangFront;
  static const std::vector<Route> kRoutes = {
      {"/pause_generation", "POST", Access::control, true, &F::pause},
      {"/continue_generation", "POST", Access::control, true, &F::resume},
      {"/update_weights_from_disk", "POST", Access::control, true, &F::update_from_disk},
      {"/update_weight_version", "POST", Access::control, true, &F::update_label},
      {"/flush_cache", "GET POST", Access::control, false, &F::flush},
      {"/abort_request", "POST", Access::control, true, &F::abort_request},
      {"/load_lora_adapter", "POST", Access::control, true, &F::load_lora},
      {"/unload_lora_adapter", "POST", Access::control, true, &F::unload_lora},
      {"/get_weights_by_name", "GET POST", Access::control, true, &F::weights_by_name},
      {"/weights_checker", "GET POST", Access::control, false, &F::weights_checker},
      {"/health", "GET", Access::open, false, &F::health},
      {"/health_generate", "GET", Access::open, false, &F::health},
      {"/ready", "GET", Access::open, false, &F::ready},
      {"/model_info", "GET", Access::normal, false, &F::model_info},
      {"/get_model_info", "GET", Access::normal, false, &F::model_info},
      {"/server_info", "GET", Access::normal, false, &F::server_info},
      {"/get_server_info", "GET", Access::normal, false, &F::server_info},
      {"/v1/models", "GET", Access::normal, false, &F::models},
      {"/v1/loads", "GET", Access::normal, false, &F::loads},
      {"/generate", "POST", Access::normal, true, &F::generate},
      {"/v1/completions", "POST", Access::normal, true, &F::completions},
  };
  return kRoutes;
}

bool SglangFront::allowed(const Call& call, Access access) const {
  const std::string& key = context_.settings.api_key;
  const std::string& admin = context_.settings.admin_api_key;
  if (access == Access::open) return true;
  if (access == Access::control && !admin.empty()) return has_bearer(call.request, admin);
  return key.empty() || has_bearer(call.request, key);
}

void SglangFront::handle(Call call, Reply reply) {
  const auto route =
      std::find_if(routes().begin(), routes().end(), [&](const Route& r) { return r.path == call.path; });
  if (route == routes().end()) {
    reply.send_json(404, json::object{{"detail", "Not Found"}});
    return;
  }
  if (!allowed(call, route->access)) {
    reply.send_json(401, json::object{{"error", "Unauthorized"}});
    return;
  }
  if (!has_method(route->methods, call.request.method)) {
    reply.send_json(405, json::object{{"detail", "Method Not Allowed"}});
    return;
  }
  json::value body = json::object{};
  if (!call.request.body.empty()) {
    auto parsed = parse_json(call.request.body, "request body");
    if (!parsed || !parsed->is_object()) {
      reply.send(sglang_error(
          "1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error'}"));
      return;
    }
    body = *std::move(parsed);
  } else if (route->body_required) {
    reply.send(sglang_error(
        "1 validation error:\n  {'type': 'missing', 'loc': ('body',), 'msg': 'Field required', 'input': None}"));
    return;
  }
  (this->*route->member)(call, body, reply);
}

HttpResponse SglangFront::failure(std::string_view path, int status, const std::string& message) const {
  if (path == "/update_weights_from_disk") return json_response(status, update_answer(false, message));
  if (is_adapter_route(path)) return json_response(status, adapter_answer(message, nullptr));
  if (status == 400) return sglang_error(message);
  return json_response(status, json::object{{"error", json::object{{"message", message}}}});
}

HttpResponse SglangFront::refusal(std::string_view path, const std::string& message) const {
  if (path == "/update_weights_from_disk") return json_response(200, update_answer(false, message));
  if (is_adapter_route(path)) return json_response(200, adapter_answer(message, nullptr));
  return json_response(200, json::object{{"success", false}, {"message", message}});
}

void SglangFront::ask_core(const Reply& reply, std::function<void()> work) {
  context_.core->submit_quick(std::move(work), [front = self(), reply] { front->hold(reply); });
}

void SglangFront::pause(const Call&, const json::value& body, const Reply& reply) {
  const auto mode = find(body, "mode") ? find_string(body, "mode") : std::optional<std::string_view>("abort");
  if (!mode || (*mode != "abort" && *mode != "retract" && *mode != "in_place")) {
    reply.send(
        sglang_error("1 validation error:\n  {'type': 'literal_error', 'loc': ('body', 'mode'), 'msg': \"Input should "
                     "be 'abort', 'retract' or 'in_place'\"}"));
    return;
  }
  paused_ = true;
  if (*mode == "abort") {
    await_idle(resumes_, reply);
    return;
  }
  // Told to the scheduler, not asked: the answer doesn't wait.
  context_.core->submit_quick([core = context_.core.get(), retract = *mode == "retract"] {
    core->set_hold(Hold::all);
    if (retract) core->retract_all();
  });
  reply.send_json(200, json::object{{"message", "Generation paused successfully."}, {"status", "ok"}});
}

// Whether the caller still listens or not. It ends with the next continue: what runs after that is not its business.
void SglangFront::await_idle(std::uint64_t pause, const Reply& reply) {
  if (readers_ == 0 || pause != resumes_) {
    reply.send_json(200, json::object{{"message", "Generation paused successfully."}, {"status", "ok"}});
    return;
  }
  abort_soon();
  context_.loop.after(context_.settings.timings.pause_poll, [front = weak_from_this(), pause, reply] {
    if (const auto alive = front.lock()) alive->await_idle(pause, reply);
  });
}

void SglangFront::abort_soon() {
  abort_limit_ = context_.core->arrivals();
  if (std::exchange(abort_pending_, true)) return;
  context_.loop.after(context_.settings.timings.pause_poll / 2, [weak = weak_from_this()] {
    const auto alive = weak.lock();
    if (!alive) return;
    alive->context_.core->when_thawed([weak] {
      const auto front = weak.lock();
      if (!front || front->context_.core->dead()) return;
      front->abort_pending_ = false;
      front->context_.core->submit_quick(
          [core = front->context_.core.get(), limit = front->abort_limit_] { core->abort_arrived(limit); });
      for (const auto& then : std::exchange(front->after_abort_, {})) front->when_abort_is_done(then);
    });
  });
}

// Inside an operation, which may have come before the abort's own.
void SglangFront::when_abort_is_done(std::function<void()> then) {
  if (abort_pending_) {
    after_abort_.push_back(std::move(then));
    return;
  }
  context_.core->abort_arrived(abort_limit_);
  then();
}

void SglangFront::submit_abort() {
  Core* core = context_.core.get();
  core->submit_quick([core, limit = core->arrivals()] { core->abort_arrived(limit); });
}

void SglangFront::resume(const Call&, const json::value&, const Reply& reply) {
  paused_ = false;
  ++resumes_;
  context_.core->submit_quick([core = context_.core.get()] { core->set_hold(Hold::none); });
  admit_blocked();
  reply.send_json(200, json::object{{"message", "Generation continued successfully."}, {"status", "ok"}});
}

void SglangFront::update_from_disk(const Call& call, const json::value& body, const Reply& reply) {
  const json::value* version = find(body, "weight_version");
  if (!find_string(body, "model_path") || (version && !version->is_null() && !version->is_string())) {
    reply.send(sglang_error(
        "1 validation error:\n  {'type': 'string_type', 'loc': ('body',), 'msg': 'Input should be a valid string'}"));
    return;
  }
  context_.log.load_begins(call.log_number);
  if (find_bool(body, "abort_all_requests").value_or(false)) submit_abort();
  if (paused_) {
    load(call, body, reply, [] {});
    return;
  }
  writers_.push_back([front = weak_from_this(), call, body, reply] {
    const auto alive = front.lock();
    if (!alive) return;
    alive->load(call, body, reply, [front] {
      if (const auto later = front.lock()) {
        later->writing_ = false;
        later->run_writer();
        later->admit_blocked();
      }
    });
  });
  run_writer();
}

void SglangFront::run_writer() {
  if (writing_ || readers_ > 0 || writers_.empty()) return;
  writing_ = true;
  const auto writer = std::move(writers_.front());
  writers_.pop_front();
  writer();
}

void SglangFront::load(const Call& call, const json::value& body, const Reply& reply, std::function<void()> finished) {
  const std::string directory(*find_string(body, "model_path"));
  const std::string format(find_string(body, "load_format").value_or("auto"));
  const LoadRequest request{directory, fmt::format("{} ({})", directory, call.log_number), call.partial_load};
  auto loader = make_loader(DialectKind::sglang, request);
  if (!kLoadFormats.contains(format)) {
    loader = [format](const Llama& served, const Dirt&) {
      LoadReport report;
      report.model = Llama::make(served.shape(), served.tensors()).value();
      report.fatal = format != "dummy";
      report.text = format == "dummy" ? "Failed to get model loader: <sglang.srt.model_loader.loader.DummyModelLoader "
                                        "object at 0x7f0000000000>."
                                      : fmt::format("'{}' is not a valid LoadFormat", format);
      return report;
    };
  }
  const Milliseconds delay = context_.settings.timings.load + call.load_delay;
  context_.core->submit(
      [front = self(), delay, directory, loader, body, reply, finished](Core::Done done) {
        const auto then = [front, body, reply, finished, done](const LoadReport& report) {
          front->context_.log.load_ends();
          front->loaded(body, report, reply);
          done();
          finished();
        };
        front->when_abort_is_done(
            [front, delay, directory, loader, then] { front->context_.core->load(delay, directory, loader, then); });
      },
      [front = self(), reply] {
        front->after_abort_.clear();
        front->hold(reply);
      });
}

void SglangFront::loaded(const json::value& body, const LoadReport& report, const Reply& reply) {
  if (report.fatal) {
    hold(reply);
    scheduler_died(context_.settings.timings.sglang_death);
    return;
  }
  if (!report.ok) {
    reply.send_json(400, update_answer(false, report.text));
    return;
  }
  const auto version = find_string(body, "weight_version");
  if (version) context_.core->set_label(std::string(*version));
  if (find_bool(body, "flush_cache").value_or(true)) {
    if (context_.core->running() > 0) {
      reply.send_json(
          400,
          update_answer(false,
                        "Weights were updated, but the cache was not flushed because requests are still running or "
                        "queued. Retract or finish them, then call /flush_cache."));
      return;
    }
    context_.core->clear_prefixes();
  }
  directory_ = served_name_ = *find_string(body, "model_path");
  if (version) label_ = *version;
  if (const auto format = find_string(body, "load_format")) load_format_ = json::string(*format);
  reply.send_json(
      200, update_answer(
               true, version ? fmt::format("Succeeded to update model weights. Weight version updated to {}.", *version)
                             : "Succeeded to update model weights."));
}

void SglangFront::scheduler_died(Milliseconds until_closed) {
  context_.core->die();
  context_.die(until_closed);
}

void SglangFront::core_killed() {
  scheduler_died(context_.settings.timings.sglang_killed);
}

void SglangFront::update_label(const Call&, const json::value& body, const Reply& reply) {
  const auto version = find_string(body, "new_version");
  if (!version) {
    reply.send(
        sglang_error("1 validation error:\n  {'type': 'string_type', 'loc': ('body', 'new_version'), 'msg': 'Input "
                     "should be a valid string'}"));
    return;
  }
  if (find_bool(body, "abort_all_requests").value_or(true)) submit_abort();
  ask_core(reply, [front = self(), label = std::string(*version), reply] {
    front->context_.core->set_label(label);
    front->label_ = label;
    reply.send_json(200, json::object{{"success", true},
                                      {"message", fmt::format("Weight version updated to {}", label)},
                                      {"new_version", label}});
  });
}

void SglangFront::flush(const Call& call, const json::value&, const Reply& reply) {
  const std::string given = query_value(call.query, "timeout").value_or("0");
  char* end = nullptr;
  const double seconds = std::strtod(given.c_str(), &end);
  if (given.empty() || *end != '\0' || seconds < 0) {
    reply.send(
        sglang_error("1 validation error:\n  {'type': 'greater_than_equal', 'loc': ('query', 'timeout'), 'msg': 'Input "
                     "should be greater than or equal to 0'}"));
    return;
  }
  if (flushing_) {
    reply.send_text(400, "Another flush_cache is already in progress.");
    return;
  }
  flushing_ = true;
  flush_when_idle(context_.loop.now() + Milliseconds{static_cast<std::int64_t>(seconds * 1000)}, reply);
}

void SglangFront::flush_when_idle(Instant deadline, const Reply& reply) {
  const Instant began = context_.loop.now();
  ask_core(reply, [front = self(), deadline, began, reply] {
    Core& core = *front->context_.core;
    if (core.running() == 0) {
      core.clear_prefixes();
      front->flushing_ = false;
      reply.send_text(200,
                      "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting "
                      "requests, the "
                      "operation will not be performed.)\n");
    } else if (front->context_.loop.now() < deadline) {
      front->context_.loop.after(kFlushPoll, [weak = front->weak_from_this(), deadline, reply] {
        if (const auto alive = weak.lock()) alive->flush_when_idle(deadline, reply);
      });
    } else {
      front->flushing_ = false;
      reply.send_text(400, began < deadline ? "Timed out waiting for idle state." : "Flush cache failed.\n");
    }
  });
}

void SglangFront::abort_request(const Call&, const json::value& body, const Reply& reply) {
  const std::string id(find_string(body, "rid").value_or(""));
  const bool all = find_bool(body, "abort_all").value_or(false);
  if (all || known_.contains(id)) {
    Core* core = context_.core.get();
    core->submit_quick([core, id, all, limit = core->arrivals()] {
      // The scheduler matches by prefix: "a" also ends "ab".
      core->abort([&](const Generation& generation) {
        return generation.arrival <= limit && (all || generation.request.id.starts_with(id));
      });
    });
  }
  reply.send_empty(200);
}

}  // namespace weighlock::tiny
