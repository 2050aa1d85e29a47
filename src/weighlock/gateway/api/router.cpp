#include "weighlock/gateway/api/router.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "weighlock/gateway/api/answer.hpp"

namespace weighlock {
namespace {

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> out;
  while (true) {
    const std::size_t at = text.find(by);
    out.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return out;
    text.remove_prefix(at + 1);
  }
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string decoded(std::string_view text, bool plus_is_blank) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape =
        text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 && hex_digit(text[i + 2]) >= 0;
    if (escape) {
      out.push_back(static_cast<char>(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2])));
      i += 2;
    } else {
      out.push_back(plus_is_blank && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return out;
}

// One segment against its pattern: "{name}", "{name}:verb", "word:verb" or a word.
bool fits(const std::string& pattern, const std::string& segment, std::map<std::string, std::string>& parameters) {
  if (!pattern.starts_with('{')) return pattern == segment;
  const std::size_t close = pattern.find('}');
  const std::string_view tail = std::string_view(pattern).substr(close + 1);
  if (segment.size() <= tail.size() || !segment.ends_with(tail)) return false;
  parameters[pattern.substr(1, close - 1)] =
      decoded(std::string_view(segment).substr(0, segment.size() - tail.size()), false);
  return true;
}

std::map<std::string, std::string> read_query(std::string_view text) {
  std::map<std::string, std::string> out;
  if (text.empty()) return out;
  for (const std::string& item : split(text, '&')) {
    const std::size_t equals = item.find('=');
    const std::string_view value =
        equals == std::string::npos ? std::string_view{} : std::string_view(item).substr(equals + 1);
    out[decoded(std::string_view(item).substr(0, equals), true)] = decoded(value, true);
  }
  return out;
}

HttpResponse refused(ErrorCode code, int status, const std::string& path, std::string_view word) {
  if (!path.starts_with("/v1/")) return detail_answer(status, word);
  HttpResponse out = problem_answer(Error{code, std::string(word) + ": " + path.substr(0, 200)}, path);
  out.status = status;
  return out;
}

}  // namespace

std::optional<std::string> RouteRequest::query_value(const std::string& name) const {
  const auto it = query.find(name);
  return it == query.end() ? std::nullopt : std::optional(it->second);
}

void Router::add(std::string_view method, std::string_view pattern, Handler handler, std::size_t body_bytes_max) {
  routes_.push_back(Route{std::string(method), split(pattern, '/'), std::move(handler), body_bytes_max});
}

std::vector<std::string> Router::routes() const {
  std::vector<std::string> out;
  for (const Route& route : routes_) out.push_back(fmt::format("{} {}", route.method, fmt::join(route.segments, "/")));
  return out;
}

void Router::handle(HttpRequest request, Responder responder) const {
  RouteRequest out;
  const std::size_t mark = request.target.find('?');
  out.path = request.target.substr(0, mark);
  while (out.path.size() > 1 && out.path.ends_with('/')) out.path.pop_back();
  const std::vector<std::string> segments = split(out.path, '/');
  // "{id}" would also take "7:cancel": patterns with a verb are tried first.
  const Route* found = nullptr;
  std::string allowed;
  for (const bool verbs : {true, false}) {
    for (const Route& route : routes_) {
      const bool has_verb = route.segments.back().find(':') != std::string::npos;
      if (has_verb != verbs || route.segments.size() != segments.size()) continue;
      std::map<std::string, std::string> parameters;
      bool same = true;
      for (std::size_t i = 0; same && i < segments.size(); ++i) same = fits(route.segments[i], segments[i], parameters);
      if (!same) continue;
      if (route.method == request.method) {
        found = &route;
        out.parameters = std::move(parameters);
        break;
      }
      allowed += (allowed.empty() ? "" : ", ") + route.method;
    }
    if (found || !allowed.empty()) break;
  }
  if (!found && allowed.empty()) return responder.respond(refused(ErrorCode::not_found, 404, out.path, "Not Found"));
  if (!found) {
    HttpResponse answer = refused(ErrorCode::not_supported, 405, out.path, "Method Not Allowed");
    answer.headers.push_back({"Allow", allowed});
    return responder.respond(std::move(answer));
  }
  if (request.body.size() > found->body_bytes_max) {
    const std::string why =
        fmt::format("the body has {} bytes; this route takes {}", request.body.size(), found->body_bytes_max);
    return responder.respond(refused(ErrorCode::too_large, 413, out.path, why));
  }
  if (mark != std::string::npos) out.query = read_query(std::string_view(request.target).substr(mark + 1));
  out.http = std::move(request);
  found->handler(std::move(out), std::move(responder));
}

}  // namespace weighlock
