#include "weighlock/gateway/doorkeeper.hpp"

#include <fmt/format.h>

#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/api/answer.hpp"

namespace weighlock {
namespace {

// In the style of the route that was asked.
HttpResponse not_yet(const HttpRequest& request, const Error& held) {
  const std::string text = fmt::format("the gateway waits for its state directory: {}", held.text());
  HttpResponse out = request.target.starts_with("/v1/")
                         ? problem_answer(Error{ErrorCode::shutting_down, text}, request.target)
                         : error_answer(503, text);
  out.headers.push_back({"Connection", "close"});  // the next one asks the gateway itself
  return out;
}

}  // namespace

Doorkeeper::Doorkeeper(Loop& loop, GatewaySettings settings, Error held)
    : loop_(loop),
      settings_(std::move(settings)),
      held_(std::move(held)),
      server_(loop, [this](const HttpRequest& request, const Responder& responder) {
        responder.respond(not_yet(request, held_));
      }) {}

Doorkeeper::~Doorkeeper() {
  loop_.cancel(timer_);
}

Status Doorkeeper::listen() {
  HttpServer::Settings settings;
  settings.host = settings_.host;
  settings.port = settings_.port;
  settings.socket = settings_.socket;
  return server_.listen(settings);
}

void Doorkeeper::wait(Milliseconds at_most, Done done) {
  give_up_at_ = loop_.now() + at_most;
  done_ = std::move(done);
  look();
}

void Doorkeeper::look() {
  settings_.port = port();  // the one that clients know by now
  Result<std::unique_ptr<Gateway>> made = Gateway::make(loop_, settings_);
  const bool held = !made && made.error().code == ErrorCode::conflict;
  if (held && loop_.now() < give_up_at_) {
    held_ = made.error();
    timer_ = loop_.after(limits::kStateLockRetry, [this] { look(); });
    return;
  }
  server_.close();
  std::exchange(done_, nullptr)(std::move(made));
}

}  // namespace weighlock
