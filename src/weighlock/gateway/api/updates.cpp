// /v1/pairs/{p}/updates: start, watch, list, cancel; and :rollback, which is an update too.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/context.hpp"

namespace weighlock {
namespace {

using namespace protocol;

constexpr double kDeadlineSecondsMin = 0.001;
constexpr double kDeadlineSecondsMax = 7 * 24 * 3600.0;

FieldError bad(std::string_view field, std::string_view what) {
  return FieldError{std::string(field), Error{ErrorCode::invalid_argument, fmt::format("{}: {}", field, what)}};
}

bool is_version(std::int64_t number) {
  return number >= -limits::kVersionMagnitudeMax && number <= limits::kVersionMagnitudeMax;
}

// How it is done, on top of what the pair says.
std::optional<FieldError> read_terms(const json::object& object, RequestUpdate& out) {
  if (const json::value* policy = object.if_contains("policy")) {
    Settings settings;
    settings.policy = out.policy;
    if (auto failure = read_settings(*policy, "policy", SettingsPlace::update, settings)) return failure;
    out.policy = settings.policy;
  }
  if (const json::value* deadline = object.if_contains("deadline_s")) {
    const double seconds = deadline->is_number() ? deadline->to_number<double>() : -1;
    if (!(seconds >= kDeadlineSecondsMin && seconds <= kDeadlineSecondsMax))
      return bad("deadline_s", fmt::format("must be seconds, from {} to {}", kDeadlineSecondsMin, kDeadlineSecondsMax));
    out.policy.deadlines.whole = Milliseconds(std::llround(seconds * 1000));
  }
  return std::nullopt;
}

std::optional<FieldError> read_whole(const json::value& value, std::string_view key, std::optional<std::int64_t>& out) {
  if (!value.as_object().contains(key)) return std::nullopt;
  out = find_int(value, key);
  if (!out || !is_version(*out)) return bad(key, "must be a whole number between -2^62 and 2^62");
  return std::nullopt;
}

std::optional<FieldError> read_rollback(const json::value& value, const Pair& pair, RequestUpdate& out) {
  const json::object* object = value.if_object();
  if (!object) return bad("body", "must be an object; an empty one goes to the version before");
  if (auto unknown = unknown_key(*object, "", {"to", "lineage", "deadline_s", "policy"})) return unknown;
  out.pair = pair.spec.name;
  out.rollback = true;
  out.policy = pair.spec.policy;
  if (auto failure = read_whole(value, "to", out.rollback_to)) return failure;
  if (auto failure = read_whole(value, "lineage", out.lineage)) return failure;
  if (out.lineage && !out.rollback_to) return bad("lineage", "says of which run \"to\" is, and there is no \"to\"");
  return read_terms(*object, out);
}

std::optional<FieldError> read_request(const ApiContext& context, const json::value& value, const Pair& pair,
                                       RequestUpdate& out) {
  const json::object* object = value.if_object();
  if (!object) return bad("body", "must be an object");
  if (auto unknown = unknown_key(*object, "", {"version", "lineage", "path", "deadline_s", "policy"})) return unknown;
  const std::optional<std::int64_t> version = find_int(value, "version");
  if (!version) return bad("version", "is required: a whole number");
  if (!is_version(*version)) return bad("version", "must be between -2^62 and 2^62");
  out.pair = pair.spec.name;
  out.version = *version;
  out.policy = pair.spec.policy;
  if (auto failure = read_whole(value, "lineage", out.lineage)) return failure;
  if (object->contains("path")) {
    const auto path = find_string(value, "path");
    if (!path) return bad("path", "must be the absolute path of a finished directory");
    if (Status status = context.confinement.check_directory(*path, "path"); !status)
      return FieldError{"path", status.error()};
    out.path = *path;
  }
  return read_terms(*object, out);
}

HttpResponse update_answer(const ApiContext& context, const UpdateId& id, int running_status, const std::string& path) {
  const Update* update = context.find_update(id);
  if (!update) return problem_answer(Error{ErrorCode::not_found, fmt::format("update '{}' not found", id)}, path);
  HttpResponse out =
      json_answer(is_terminal(update->state) ? 200 : running_status, update_view(context.view(), *update));
  out.headers.push_back({"Location", fmt::format("/v1/pairs/{}/updates/{}", update->pair, id)});
  return out;
}

// Posts the event under the request's key; answers with the update, at its end if that is waited for.
void submit(ApiContext& context, const RouteRequest& request, RequestUpdate event, Responder responder) {
  const WaitAsked asked = read_wait(request);
  if (asked.failure) return responder.respond(problem_answer(*asked.failure, request.path));
  event.key = header(request.http.headers, "idempotency-key");
  const bool printable = std::all_of(event.key.begin(), event.key.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  if (event.key.size() > limits::kNameBytesMax || !printable)
    return responder.respond(problem_answer(
        bad("Idempotency-Key", fmt::format("at most {} bytes are taken, of printable ASCII", limits::kNameBytesMax)),
        request.path));
  const auto pending = PendingAnswer::make(context, std::move(responder));
  event.token = pending->when_replied([pending, wait = asked.wait, path = request.path](const Reply& reply) {
    ApiContext& here = pending->context();
    if (reply.error) return pending->answer(problem_answer(*reply.error, path));
    const auto answer = [pending, id = reply.update, path] {
      pending->answer(update_answer(pending->context(), id, 202, path));
    };
    const Update* update = here.find_update(reply.update);
    if (!wait || *wait == Milliseconds(0) || !update) return answer();
    pending->when_ended(reply.update, answer);
    pending->deadline(*wait, answer);
  });
  request_update(context, std::move(event));
}

void start_update(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const Pair* pair = context.find_pair(request.parameter("pair"));
  if (!pair) return responder.respond(no_such("pair", request.parameter("pair"), request));
  Result<json::value> body = read_body(request);
  if (!body) return responder.respond(problem_answer(body.error(), request.path));
  RequestUpdate event;
  if (auto failure = read_request(context, *body, *pair, event))
    return responder.respond(problem_answer(*failure, request.path));
  submit(context, request, std::move(event), std::move(responder));
}

void roll_back(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const Pair* pair = context.find_pair(request.parameter("pair"));
  if (!pair) return responder.respond(no_such("pair", request.parameter("pair"), request));
  Result<json::value> body = read_optional_body(request);
  if (!body) return responder.respond(problem_answer(body.error(), request.path));
  RequestUpdate event;
  if (auto failure = read_rollback(*body, *pair, event))
    return responder.respond(problem_answer(*failure, request.path));
  submit(context, request, std::move(event), std::move(responder));
}

// Newest first: waiting ones, the running one, ended ones.
std::vector<UpdateId> ids_of(const Pair& pair) {
  std::vector<UpdateId> out(pair.queue.rbegin(), pair.queue.rend());
  if (!pair.active.empty()) out.push_back(pair.active);
  out.insert(out.end(), pair.history.rbegin(), pair.history.rend());
  return out;
}

void list_updates(const ApiContext& context, const RouteRequest& request, const Responder& responder) {
  constexpr std::size_t kPage = 50;  // one view of a thousand workers is about 200 KB
  const Pair* pair = context.find_pair(request.parameter("pair"));
  if (!pair) return responder.respond(no_such("pair", request.parameter("pair"), request));
  const std::vector<UpdateId> ids = ids_of(*pair);
  auto from = ids.begin();
  if (const auto cursor = request.query_value("cursor")) {
    from = std::find(ids.begin(), ids.end(), *cursor);
    if (from == ids.end())
      return responder.respond(
          problem_answer(bad("cursor", "is not an update that is remembered; start without one"), request.path));
  }
  std::size_t limit = kPage;
  if (const auto text = request.query_value("limit")) {
    const auto [end, failure] = std::from_chars(text->data(), text->data() + text->size(), limit);
    if (failure != std::errc{} || end != text->data() + text->size() || limit < 1 ||
        limit > limits::kUpdatesRememberedMax)
      return responder.respond(problem_answer(
          bad("limit", fmt::format("must be from 1 to {}", limits::kUpdatesRememberedMax)), request.path));
  }
  json::array items;
  for (; from != ids.end() && items.size() < limit; ++from) {
    const Update* update = context.find_update(*from);
    if (update && update->kind == UpdateKind::update) items.push_back(update_view(context.view(), *update));
  }
  json::value next = from == ids.end() ? json::value(nullptr) : json::value(*from);
  responder.respond(json_answer(200, json::object{{"items", std::move(items)}, {"next", std::move(next)}}));
}

void get_update(ApiContext& context, const RouteRequest& request, Responder responder) {
  const std::string& id = request.parameter("update");
  const Update* update = context.find_update(id);
  if (!update || update->pair != request.parameter("pair")) return responder.respond(no_such("update", id, request));
  const WaitAsked asked = read_wait(request);
  if (asked.failure) return responder.respond(problem_answer(*asked.failure, request.path));
  const auto pending = PendingAnswer::make(context, std::move(responder));
  const auto answer = [pending, id, path = request.path] {
    pending->answer(update_answer(pending->context(), id, 200, path));
  };
  if (!asked.wait) return answer();
  pending->ends_with_client();
  pending->when_ended(id, answer);
  pending->deadline(*asked.wait, answer);
}

void cancel_update(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const std::string& id = request.parameter("update");
  const Update* update = context.find_update(id);
  if (!update || update->pair != request.parameter("pair")) return responder.respond(no_such("update", id, request));
  const auto pending = PendingAnswer::make(context, std::move(responder));
  CancelUpdate event;
  event.update = id;
  event.token = pending->when_replied([pending, id, path = request.path](const Reply& reply) {
    if (reply.error) return pending->answer(problem_answer(*reply.error, path));
    pending->answer(update_answer(pending->context(), id, 202, path));
  });
  context.driver.post(std::move(event));
}

}  // namespace

void add_update_routes(Router& router, ApiContext& context) {
  router.add("POST", "/v1/pairs/{pair}/updates",
             [&context](const RouteRequest& r, Responder a) { start_update(context, r, std::move(a)); });
  router.add("POST", "/v1/pairs/{pair}:rollback",
             [&context](const RouteRequest& r, Responder a) { roll_back(context, r, std::move(a)); });
  router.add("GET", "/v1/pairs/{pair}/updates",
             [&context](const RouteRequest& r, const Responder& a) { list_updates(context, r, a); });
  router.add("GET", "/v1/pairs/{pair}/updates/{update}",
             [&context](const RouteRequest& r, Responder a) { get_update(context, r, std::move(a)); });
  router.add("POST", "/v1/pairs/{pair}/updates/{update}:cancel",
             [&context](const RouteRequest& r, Responder a) { cancel_update(context, r, std::move(a)); });
}

}  // namespace weighlock
