#include "weighlock/trainers/save.hpp"

#include <fmt/format.h>

#include "weighlock/core/json.hpp"
#include "weighlock/core/transport.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

// The fields of AReaL's SaveLoadMeta in their order, with the blanks that Python's json prints. The worker imports
// whatever class_path names; this one, a literal, is the only one that is ever sent, and none is ever read.
constexpr std::string_view kSaveBody =
    R"({{"args": [{{"type": "dataclass", "class_path": "areal.api.io_struct.SaveLoadMeta", "data": )"
    R"({{"path": {}, "weight_format": "hf", "with_optim": false, "tokenizer": null, "processor": null, )"
    R"("base_model_path": null, "naive_distributed": false}}}}], "kwargs": {{}}}})";

SaveOutcome lost(const TransportError& error) {
  const std::string what = error.text.empty() ? std::string(name(error.kind)) : printable(error.text);
  return {error.nothing_sent ? SaveKind::not_sent : SaveKind::unknown, code_of(error.kind),
          "POST /save got no answer: " + what};
}

// Answers of a proxy between us and the rank: the rank's call may go on.
bool is_a_proxys(int status) {
  return status == 408 || status == 502 || status == 504;
}

}  // namespace

HttpRequest make_save_request(std::string_view directory) {
  const std::string path = json::serialize(json::string(directory));
  return HttpRequest{"POST",
                     "/save",
                     {{"Accept", "*/*"}, {"Content-Type", "application/json"}},
                     fmt::format(fmt::runtime(kSaveBody), path)};
}

SaveOutcome classify_save(const HttpResult& result) {
  if (const TransportError* error = std::get_if<TransportError>(&result)) return lost(*error);
  const HttpResponse& response = std::get<HttpResponse>(result);
  const Result<json::value> body = parse_json(response.body, "answer of /save");
  if (response.status == 200 && body && find_string(*body, "status") == "success") return {SaveKind::ok, {}, ""};

  const std::string words = words_of(response.body);
  std::string text = fmt::format("POST /save answered {}", response.status);
  text += words.empty() ? std::string(" without a word") : fmt::format(" \"{}\"", words);
  if (is_a_proxys(response.status)) return {SaveKind::unknown, ErrorCode::unreachable, text, true};
  const ErrorCode code =
      response.status == 200 && !(body && body->is_object()) ? ErrorCode::bad_answer : ErrorCode::trainer_failed;
  return {SaveKind::failed, code, text};
}

HttpRequest make_queue_request() {
  return HttpRequest{"GET", "/get_version", {{"Accept", "*/*"}}, ""};
}

QueueAnswer classify_queue(const HttpResult& result) {
  const HttpResponse* response = std::get_if<HttpResponse>(&result);
  if (!response || is_a_proxys(response->status) || response->status == 503) return QueueAnswer::none;
  const Result<json::value> body = parse_json(response->body, "answer of /get_version");
  // A worker without an engine (it was started anew) says so from the same queue.
  const bool own = body && (find_string(*body, "status") == "success" || find_string(*body, "error"));
  const bool known = response->status != 404 && response->status != 405;
  return own && known ? QueueAnswer::passed : QueueAnswer::not_known;
}

std::string_view name(SaveKind kind) {
  switch (kind) {
    case SaveKind::ok:
      return "ok";
    case SaveKind::failed:
      return "failed";
    case SaveKind::unknown:
      return "unknown";
    case SaveKind::not_sent:
      return "not_sent";
  }
  return "unknown";
}

}  // namespace weighlock
