#include "weighlock/gateway/api/context.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/auth.hpp"

namespace weighlock {
const protocol::Pair* ApiContext::find_pair(const std::string& name) const {
  const auto it = state().pairs.find(name);
  return it == state().pairs.end() ? nullptr : &it->second;
}

const protocol::Update* ApiContext::find_update(const protocol::UpdateId& id) const {
  const auto it = state().updates.find(id);
  return it == state().updates.end() ? nullptr : &it->second;
}

std::shared_ptr<PendingAnswer> PendingAnswer::make(ApiContext& context, Responder responder) {
  return std::shared_ptr<PendingAnswer>(new PendingAnswer(context, std::move(responder)));
}

void PendingAnswer::answer(HttpResponse response) {
  if (answered_) return;
  answered_ = true;
  if (timer_) context_.loop.cancel(*timer_);
  if (wait_) context_.waiters.forget(*wait_);
  responder_.respond(std::move(response));
}

void PendingAnswer::deadline(Milliseconds after, std::function<void()> late) {
  if (answered_) return;
  if (ends_with_client_)
    responder_.on_closed([weak = weak_from_this(), late] {
      const auto self = weak.lock();
      if (self && !self->alive_.expired() && !self->answered_) late();
    });
  timer_ = context_.loop.after(after, [self = shared_from_this(), late = std::move(late)] {
    self->timer_.reset();
    if (!self->alive_.expired() && !self->answered_) late();
  });
}

void PendingAnswer::when_ended(const protocol::UpdateId& update, std::function<void()> then) {
  if (answered_) return;
  const protocol::Update* found = context_.find_update(update);
  if (!found || protocol::is_terminal(found->state)) return then();
  wait_ = context_.waiters.on_ended(update, [self = shared_from_this(), then = std::move(then)] {
    self->wait_.reset();
    if (!self->answered_) then();
  });
}

protocol::ReplyToken PendingAnswer::when_replied(std::function<void(const protocol::Reply&)> then) {
  return context_.waiters.on_reply(
      [self = shared_from_this(), then = std::move(then)](const protocol::Reply& reply) { then(reply); });
}

std::optional<HttpResponse> refuse_key(const ApiContext& context, const RouteRequest& request) {
  const AuthOutcome outcome = check_bearer(request.http, context.settings.admin_api_key);
  if (outcome == AuthOutcome::ok) return std::nullopt;
  return problem_answer(auth_error(outcome), request.path);
}

WaitAsked read_wait(const RouteRequest& request) {
  const std::optional<std::string> text = request.query_value("wait");
  if (!text) return {};
  constexpr double kSecondsMax = std::chrono::duration<double>(limits::kWaitMax).count();
  double seconds = 0;
  const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), seconds);
  if (failure != std::errc{} || end != text->data() + text->size() || !(seconds >= 0 && seconds <= kSecondsMax)) {
    Error error{ErrorCode::invalid_argument,
                fmt::format("wait: must be seconds from 0 to {}, not '{}'", kSecondsMax, text->substr(0, 50))};
    return {std::nullopt, FieldError{"wait", std::move(error)}};
  }
  return {Milliseconds(std::llround(seconds * 1000)), std::nullopt};
}

Result<json::value> read_body(const RouteRequest& request) {
  return parse_json(request.http.body, "request body");
}

Result<json::value> read_optional_body(const RouteRequest& request) {
  return request.http.body.empty() ? Result<json::value>(json::object{}) : read_body(request);
}

void post_unless_full(ApiContext& context, protocol::ReplyToken token, std::string what, std::function<void()> post) {
  if (!context.journal.space_low()) return post();
  const auto space = std::make_shared<bool>(false);
  context.read_pool.run(
      [journal = &context.journal, space] { *space = journal->restore_space(); },
      [&context, alive = std::weak_ptr(context.alive), space, token, what = std::move(what), post = std::move(post)] {
        if (alive.expired()) return;
        if (*space) return post();
        protocol::Reply refusal;
        refusal.token = token;
        refusal.error = Error{ErrorCode::storage_full,
                              fmt::format("{}: the disk of the gateway's journal is full; make space in its state "
                                          "directory's file system, then ask again",
                                          what)};
        context.waiters.replied(refusal);
      });
}

void request_update(ApiContext& context, protocol::RequestUpdate event) {
  const protocol::Pair* pair = context.find_pair(event.pair);
  const bool known = pair && !event.key.empty() && pair->keys.contains(event.key);
  if (known) return context.driver.post(std::move(event));
  std::string what = event.rollback ? fmt::format("pair '{}': rollback", event.pair)
                                    : fmt::format("pair '{}' v{}", event.pair, event.version);
  post_event_unless_full(context, std::move(what), std::move(event));
}

void look_outside(ApiContext& context, std::vector<DoubtfulHost> doubtful, PairBody body,
                  std::function<void(std::optional<FieldError>, PairBody)> then) {
  std::vector<KeyFile> files = std::exchange(body.key_files, {});
  context.outside.look(std::move(doubtful), std::move(files),
                       [body = std::move(body), then = std::move(then)](std::optional<FieldError> failure,
                                                                        std::vector<KeyFile> keys) mutable {
                         for (KeyFile& file : keys) {
                           Credentials& of_worker = body.credentials[file.worker];
                           (file.is_admin ? of_worker.admin_key : of_worker.api_key) = std::move(file.key);
                         }
                         then(std::move(failure), std::move(body));
                       });
}

void answer_when_left(const std::shared_ptr<PendingAnswer>& pending, std::vector<std::string> trainers,
                      json::object answer) {
  pending->context().awex_groups.when_left(
      std::move(trainers), limits::kLeaveWait,
      [pending, answer = std::move(answer)](const std::vector<std::string>& still) mutable {
        if (!still.empty()) answer["leaving"] = text_list(still);
        pending->answer(json_answer(200, answer));
      });
}

HttpResponse no_such(std::string_view kind, std::string_view name, const RouteRequest& request) {
  return problem_answer(Error{ErrorCode::not_found, fmt::format("{} '{}' not found", kind, name.substr(0, 300))},
                        request.path);
}

}  // namespace weighlock
