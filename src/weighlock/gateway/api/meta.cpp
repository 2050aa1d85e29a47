// The metadata store's routes: values that workers leave for each other, as the bytes that were sent.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "weighlock/core/json_member.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/auth.hpp"
#include "weighlock/gateway/api/context.hpp"
#include "weighlock/gateway/api/lax_body.hpp"

namespace weighlock {
namespace {

constexpr std::string_view kBefore = "{\"value\":";

// Of a body that isn't what it should be, shown in the refusal.
constexpr std::size_t kInputShownBytesMax = 2048;
// A larger body is judged only for a caller who has the key; a smaller one before that is looked at, as FastAPI does.
constexpr std::size_t kJudgedForStrangersBytesMax = 64 * 1024;

struct ReadValue {
  std::optional<HttpResponse> refusal;
  MetaStore::Text answer;  // what readers get; null for a null
};

json::value shown(const std::string& body, bool is_json) {
  if (body.size() > kInputShownBytesMax) return json::value(nullptr);
  return is_json ? parse_json(body, "request body").value_or(nullptr) : json::value(json::string(body));
}

// `body` becomes the answer to readers: what stands around the value is cut off and put right, the value isn't touched.
MetaStore::Text answer_around(std::string body, std::size_t begin, std::size_t size) {
  body.resize(begin + size);
  body.replace(0, begin, kBefore);
  body += '}';
  body.shrink_to_fit();
  return std::make_shared<const std::string>(std::move(body));
}

// On any thread. {"value": any}, and null where it is missing.
ReadValue read_value(HttpRequest request) {
  ReadValue out;
  const bool is_json = says_json(request);
  if (request.body.empty()) {
    out.refusal = refuse_missing_body();
    return out;
  }
  if (!is_json) {
    out.refusal = refuse_no_object(shown(request.body, false));
    return out;
  }
  const Result<JsonMember> found = find_member(request.body, "value", "request body", {limits::kMetaDepthMax});
  if (!found) {
    out.refusal = refuse_json(found.error());
  } else if (found->kind == JsonMember::Kind::not_an_object) {
    out.refusal = found->value == "null" ? refuse_missing_body() : refuse_no_object(shown(request.body, true));
  } else if (found->kind == JsonMember::Kind::found && found->value != "null") {
    const auto begin = static_cast<std::size_t>(found->value.data() - request.body.data());
    out.answer = answer_around(std::move(request.body), begin, found->value.size());
  }
  return out;
}

HttpResponse full_answer(const Error& error) {
  return error_answer(info(error.code).http_status, error.text());
}

std::optional<HttpResponse> refuse_stranger(const ApiContext& context, const HttpRequest& request) {
  const AuthOutcome outcome = check_bearer(request, context.settings.admin_api_key);
  if (outcome == AuthOutcome::ok) return std::nullopt;
  return auth_refusal(outcome);
}

void put_value(ApiContext& context, RouteRequest request, Responder responder) {
  std::optional<HttpResponse> stranger = refuse_stranger(context, request.http);
  if (stranger && request.http.body.size() > kJudgedForStrangersBytesMax)
    return responder.respond(*std::move(stranger));
  const std::size_t bytes = request.http.body.size();
  if (Status room = context.meta.hold(bytes); !room) return responder.respond(full_answer(room.error()));
  const auto read = std::make_shared<ReadValue>();
  auto store = [&context, alive = std::weak_ptr(context.alive), bytes, read, stranger = std::move(stranger),
                responder = std::move(responder), pair = request.parameter("pair"), key = request.parameter("key")] {
    if (alive.expired()) return;
    context.meta.let_go(bytes);
    if (read->refusal) return responder.respond(*std::move(read->refusal));
    if (stranger) return responder.respond(*stranger);
    if (Status done = context.meta.put(pair, key, std::move(read->answer)); !done)
      return responder.respond(full_answer(done.error()));
    responder.respond(json_answer(200, json::object{{"status", "ok"}}));
  };
  const auto body = std::make_shared<HttpRequest>(std::move(request.http));
  context.body_pool.run([body, read] { *read = read_value(std::move(*body)); }, std::move(store));
}

void get_value(ApiContext& context, const RouteRequest& request, const Responder& responder) {
  MetaStore::Text text = context.meta.get(request.parameter("pair"), request.parameter("key"));
  if (!text) return responder.respond(error_answer(404, "Key not found"));
  HttpResponse head;
  head.headers = {{"Content-Type", "application/json"}};
  responder.respond(std::move(head), std::move(text));
}

void delete_value(ApiContext& context, const RouteRequest& request, const Responder& responder) {
  if (auto refusal = refuse_stranger(context, request.http)) return responder.respond(*std::move(refusal));
  const bool deleted = context.meta.erase(request.parameter("pair"), request.parameter("key"));
  responder.respond(json_answer(200, json::object{{"status", "ok"}, {"deleted", deleted}}));
}

void add_to_set(ApiContext& context, const RouteRequest& request, const Responder& responder) {
  LaxBody body(request.http);
  const std::string member = body.text("value", "");
  if (auto refusal = body.refusal()) return responder.respond(*std::move(refusal));
  if (auto refusal = refuse_stranger(context, request.http)) return responder.respond(*std::move(refusal));
  if (Status done = context.meta.add_to_set(request.parameter("pair"), request.parameter("key"), member); !done)
    return responder.respond(full_answer(done.error()));
  responder.respond(json_answer(200, json::object{{"status", "ok"}}));
}

void set_size(ApiContext& context, const RouteRequest& request, const Responder& responder) {
  if (auto refusal = refuse_stranger(context, request.http)) return responder.respond(*std::move(refusal));
  const std::size_t size = context.meta.set_size(request.parameter("pair"), request.parameter("key"));
  responder.respond(json_answer(200, json::object{{"size", size}}));
}

// An encoded slash would be a separator to the Python service, which then has no such route.
bool has_encoded_slash(const RouteRequest& request) {
  for (const auto& [name, value] : request.parameters) {
    if (value.find('/') != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void add_meta_routes(Router& router, ApiContext& context) {
  using Deed = void (*)(ApiContext&, RouteRequest, Responder);
  const auto add = [&](std::string_view method, std::string_view pattern, Deed deed,
                       std::size_t body_bytes_max = limits::kControlBodyBytesMax) {
    const auto handler = [&context, deed](RouteRequest request, Responder responder) {
      if (has_encoded_slash(request)) return responder.respond(detail_answer(404, "Not Found"));
      deed(context, std::move(request), std::move(responder));
    };
    router.add(method, pattern, handler, body_bytes_max);
  };
  add("GET", "/weight_meta/{pair}/{key}", [](ApiContext& c, RouteRequest r, Responder a) { get_value(c, r, a); });
  add(
      "PUT", "/weight_meta/{pair}/{key}",
      [](ApiContext& c, RouteRequest r, Responder a) { put_value(c, std::move(r), std::move(a)); },
      limits::kRequestBodyBytesMax);
  add("DELETE", "/weight_meta/{pair}/{key}", [](ApiContext& c, RouteRequest r, Responder a) { delete_value(c, r, a); });
  add("PUT", "/weight_meta/{pair}/set/{key}", [](ApiContext& c, RouteRequest r, Responder a) { add_to_set(c, r, a); });
  add("GET", "/weight_meta/{pair}/set/{key}/size",
      [](ApiContext& c, RouteRequest r, Responder a) { set_size(c, r, a); });
}

}  // namespace weighlock
