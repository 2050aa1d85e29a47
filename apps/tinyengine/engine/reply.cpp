#include "tinyengine/engine/reply.hpp"

#include <algorithm>
#include <utility>

namespace weighlock::tiny {
namespace {

constexpr Milliseconds kDripLeast{1};

}  // namespace

struct Reply::State {
  Loop& loop;
  Responder responder;
  std::optional<Fault> fault;
  std::function<void()> die;
  std::function<void(int)> ended;
  bool sent = false;

  void end(int status) {
    if (const auto then = std::exchange(ended, {})) then(status);
  }
};

HttpResponse json_response(int status, const json::value& body) {
  return {status, {{"Content-Type", "application/json"}, {"Server", "uvicorn"}}, json::serialize(body)};
}

Reply::Reply(Loop& loop, Responder responder, std::optional<Fault> fault, std::function<void()> die,
             std::function<void(int)> ended)
    : state_(std::make_shared<State>(
          State{loop, std::move(responder), std::move(fault), std::move(die), std::move(ended)})) {}

void Reply::send(HttpResponse response) const {
  if (std::exchange(state_->sent, true)) return;
  const FaultKind kind = state_->fault ? state_->fault->kind : FaultKind::status;
  if (kind == FaultKind::reset_after || kind == FaultKind::hang_after || kind == FaultKind::die_after) {
    state_->end(0);
    if (kind == FaultKind::reset_after) state_->responder.reset();
    if (kind != FaultKind::reset_after)
      state_->responder.hang();  // die_after: until the connection goes with the engine
    if (kind == FaultKind::die_after) state_->die();
    return;
  }
  if (kind == FaultKind::drip) {
    state_->end(response.status);
    state_->responder.drip(std::move(response), std::max(kDripLeast, state_->fault->delay));
    return;
  }
  const auto answer = [state = state_, response = std::move(response)] {
    state->end(response.status);
    state->responder.respond(response);
  };
  if (kind == FaultKind::slow && state_->fault->delay.count() > 0) {
    state_->loop.after(state_->fault->delay, answer);
  } else {
    answer();
  }
}

void Reply::send_json(int status, const json::value& body) const {
  send(json_response(status, body));
}

void Reply::send_text(int status, std::string body) const {
  send({status, {{"Server", "uvicorn"}}, std::move(body)});
}

void Reply::begin_stream() const {
  if (std::exchange(state_->sent, true)) return;
  state_->responder.begin_stream(
      {200, {{"Content-Type", "text/event-stream; charset=utf-8"}, {"Server", "uvicorn"}}, ""});
}

void Reply::event(std::string_view data) const {
  state_->responder.write("data: " + std::string(data) + "\n\n");
}

void Reply::end_stream() const {
  state_->end(200);
  state_->responder.end_stream();
}

void Reply::on_closed(std::function<void()> then) const {
  state_->responder.on_closed(std::move(then));
}

std::shared_ptr<const bool> Reply::is_sent() const {
  return {state_, &state_->sent};
}

}  // namespace weighlock::tiny
