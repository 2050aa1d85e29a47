#include "tinyengine/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

namespace weighlock::tiny {
namespace {

constexpr std::string_view kTinyPrefix = "/_tiny/";
constexpr Milliseconds kRefuseDefault{1000};
constexpr Milliseconds kReplyFirst{30};  // the answer to a /_tiny call leaves before its port is closed

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Core::Settings core_settings(const EngineSettings& settings) {
  // SGLang's radix tree finds any prefix, vLLM whole blocks of 16 tokens.
  return {settings.dialect == DialectKind::sglang ? std::size_t{1} : std::size_t{16}, settings.timings.step_least};
}

}  // namespace

Engine::Engine(Loop& loop, Pool& pool, EngineSettings settings)
    : loop_(loop), pool_(pool), settings_(std::move(settings)) {}

Engine::~Engine() {
  kill();
}

std::string Engine::url() const {
  return fmt::format("http://{}:{}", settings_.host, settings_.port);
}

Status Engine::start() {
  WEIGHLOCK_CHECK(!alive(), "an engine is started once a life");
  auto model = load_at_start(settings_.model_directory, settings_.model_directory + " (start)");
  if (!model) return std::move(model).error();
  core_ = std::make_shared<Core>(loop_, pool_, core_settings(settings_), *std::move(model), settings_.model_directory);
  start_time_ = std::max(seconds_since_1970(), start_time_ + 0.01);  // another life is another time, however fast
  ++life_;
  if (Status opened = listen(); !opened) {
    core_.reset();
    return opened;
  }
  FrontContext context{loop_, core_, settings_, start_time_, log_, [this](Milliseconds delay) { die_later(delay); }};
  front_ = settings_.dialect == DialectKind::sglang ? make_sglang_front(std::move(context))
                                                    : make_vllm_front(std::move(context));
  if (Status started = front_->start(); !started) {
    kill();
    return started;
  }
  return {};
}

Status Engine::listen() {
  server_ = std::make_unique<HttpServer>(
      loop_, [this](HttpRequest request, Responder responder) { handle(std::move(request), std::move(responder)); });
  HttpServer::Settings at;
  at.host = settings_.host;
  at.port = settings_.port;
  if (Status opened = server_->listen(at); !opened) {
    server_.reset();
    return opened;
  }
  settings_.port = server_->port();
  return {};
}

// Not destroyed here: this may run inside one of the server's own callbacks.
void Engine::close_server() {
  if (!server_) return;
  server_->close(true);
  loop_.post([old = std::shared_ptr<HttpServer>(std::move(server_))] {});
}

void Engine::kill() {
  if (core_) core_->die();
  close_server();
  front_.reset();
  core_.reset();
  log_.forget_loads();
}

Status Engine::restart() {
  kill();
  return start();
}

void Engine::die_later(Milliseconds delay) {
  loop_.after(delay, [this, token = std::weak_ptr(token_), life = life_] {
    if (!token.expired() && life == life_) kill();
  });
}

void Engine::refuse(Milliseconds how_long) {
  close_server();
  loop_.after(how_long, [this, token = std::weak_ptr(token_), life = life_] {
    if (token.expired() || life != life_ || !alive() || server_) return;
    if (Status opened = listen(); !opened) refuse(Milliseconds{10});  // somebody else's for a moment
  });
}

void Engine::add_fault(Fault fault) {
  if (fault.kind == FaultKind::refuse && fault.route == "*") {
    const Milliseconds how_long = fault.delay.count() > 0 ? fault.delay : kRefuseDefault;
    loop_.after(kReplyFirst, [this, token = std::weak_ptr(token_), how_long] {
      if (!token.expired() && alive()) refuse(how_long);
    });
    return;
  }
  faults_.add(std::move(fault));
}

void Engine::handle(HttpRequest request, Responder responder) {
  Call call;
  const std::size_t mark = std::min(request.target.find('?'), request.target.size());
  call.path = request.target.substr(0, mark);
  call.query = mark < request.target.size() ? request.target.substr(mark + 1) : "";
  if (call.path.starts_with(kTinyPrefix)) {
    handle_tiny(request, call.path, responder);
    return;
  }
  if (!front_) {
    responder.reset();
    return;
  }
  auto fault = faults_.take(call.path);
  call.log_number = log_.begin(loop_.now(), request, fault ? fault->word : "");
  call.request = std::move(request);
  if (fault && apply_fault(*fault, call, responder)) return;
  if (fault) call.half_unload = fault->kind == FaultKind::half_unload;
  if (fault && front_->is_load(call)) {
    call.partial_load = fault->kind == FaultKind::partial_load;
    if (fault->kind == FaultKind::slow) {
      call.load_delay = fault->delay;
      fault.reset();
    }
  }
  Reply reply(
      loop_, std::move(responder), std::move(fault), [this] { die_later(Milliseconds{0}); },
      [this, token = std::weak_ptr(token_), number = call.log_number](int status) {
        if (!token.expired()) log_.end(number, loop_.now(), status);
      });
  front_->handle(std::move(call), std::move(reply));
}

// True if the fault ends the request here, unapplied.
bool Engine::apply_fault(const Fault& fault, const Call& call, const Responder& responder) {
  const auto respond = [&](HttpResponse response) {
    log_.end(call.log_number, loop_.now(), response.status);
    responder.respond(std::move(response));
    return true;
  };
  switch (fault.kind) {
    case FaultKind::refuse:
    case FaultKind::reset_before:
      log_.end(call.log_number, loop_.now(), 0);
      responder.reset();
      return true;
    case FaultKind::hang:
      log_.end(call.log_number, loop_.now(), 0);
      responder.hang();
      return true;
    case FaultKind::die:
      log_.end(call.log_number, loop_.now(), 0);
      responder.hang();  // until the connection goes with the engine
      die_later(Milliseconds{0});
      return true;
    case FaultKind::status:
      return respond(front_->failure(call.path, fault.status, fault.message));
    case FaultKind::success_false:
      return respond(front_->refusal(call.path, fault.message));
    case FaultKind::garbage:
      return respond({200, {{"Content-Type", "text/html"}}, "<html><body>it works</body></html>"});
    default:
      return false;
  }
}

void Engine::post_faults(const HttpRequest& request, const Responder& responder) {
  auto body = parse_json(request.body, "fault");
  if (!body) {
    responder.respond(json_response(400, json::object{{"error", body.error().text()}}));
    return;
  }
  const json::array list = body->is_array() ? body->as_array() : json::array{*body};
  std::vector<Fault> parsed;
  for (const json::value& one : list) {
    auto fault = parse_fault(one);
    if (!fault) {
      responder.respond(json_response(400, json::object{{"error", fault.error().text()}}));
      return;
    }
    parsed.push_back(*std::move(fault));
  }
  for (Fault& fault : parsed) add_fault(std::move(fault));
  responder.respond(json_response(200, faults_.listing()));
}

void Engine::handle_tiny(const HttpRequest& request, std::string_view path, const Responder& responder) {
  const std::string_view what = path.substr(kTinyPrefix.size());
  const std::string action = request.method + " " + std::string(what);
  const auto ok = [&] { responder.respond(json_response(200, json::object{{"status", "ok"}})); };
  if (action == "POST faults") {
    post_faults(request, responder);
  } else if (action == "GET faults") {
    responder.respond(json_response(200, faults_.listing()));
  } else if (action == "DELETE faults") {
    faults_.clear();
    ok();
  } else if (action == "GET log") {
    responder.respond(json_response(200, log_.listing()));
  } else if (action == "DELETE log") {
    log_.clear();
    ok();
  } else if (action == "GET state") {
    responder.respond(json_response(200, state()));
  } else if (action == "POST freeze" && alive()) {
    core_->freeze();
    ok();
  } else if (action == "POST thaw" && alive()) {
    core_->thaw();
    ok();
  } else if (action == "POST kill_core" && alive()) {
    ok();
    front_->core_killed();
  } else if (action == "POST kill") {
    ok();
    die_later(kReplyFirst);
  } else if (action == "POST restart") {
    ok();
    loop_.after(kReplyFirst, [this, token = std::weak_ptr(token_)] {
      if (token.expired()) return;
      if (Status started = restart(); !started) kill();
    });
  } else {
    responder.respond(json_response(
        404,
        json::object{{"error", fmt::format("no route '{} {}' on this engine; is it dead?", request.method, path)}}));
  }
}

json::object Engine::state() const {
  json::object state;
  state["dialect"] = json::string(name(settings_.dialect));
  state["url"] = url();
  state["alive"] = alive();
  state["lives"] = life_;
  state["start_time"] = start_time_;
  if (!alive()) return state;
  const auto sources = core_->model()->sources();
  state["paused"] = front_->paused();
  state["frozen"] = core_->frozen();
  state["label"] = core_->label();
  state["told_label"] = front_->told_label();
  state["told_directory"] = front_->told_directory();
  state["directory"] = core_->directory();
  state["sha256"] = core_->model()->sha256();
  state["mixed"] = sources.size() > 1;
  json::array list;
  for (const std::string& source : sources) list.emplace_back(source);
  state["sources"] = std::move(list);
  state["doomed"] = core_->doomed();
  state["dead_core"] = core_->dead();
  state["running"] = core_->running();
  state["waiting"] = core_->waiting();
  state["cached_prefixes"] = core_->cached_prefixes();
  state["adapters"] = front_->adapters();
  return state;
}

}  // namespace weighlock::tiny
