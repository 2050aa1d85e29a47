#include "weighlock/gateway/api/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

// Names out of a request's path may be any bytes; JSON is UTF-8.
std::string text_of(std::string_view text) {
  if (is_utf8(text)) return json::serialize(json::value(text));
  return json::serialize(json::value(printable(text, text.size())));
}

// An error's text: nobody reads megabytes.
std::string shown(std::string_view text) {
  if (text.size() <= limits::kErrorTextBytesMax) return std::string(text);
  return printable(text, limits::kErrorTextBytesMax);
}

void append_text(const json::value& value, std::string& out) {
  if (const json::object* object = value.if_object()) {
    const char* before = "{";
    for (const json::key_value_pair& member : *object) {
      out += std::exchange(before, ",");
      out += text_of(member.key());
      out += ':';
      append_text(member.value(), out);
    }
    out += object->empty() ? "{}" : "}";
  } else if (const json::array* array = value.if_array()) {
    const char* before = "[";
    for (const json::value& item : *array) {
      out += std::exchange(before, ",");
      append_text(item, out);
    }
    out += array->empty() ? "[]" : "]";
  } else if (const json::string* text = value.if_string()) {
    out += text_of(*text);
  } else if (const double* number = value.if_double()) {
    // 1e999 comes in as an infinity, for which JSON has no word.
    const std::string digits = std::isfinite(*number) ? fmt::format("{}", *number) : "null";
    out += digits;
    if (digits.find_first_of(".enu") == std::string::npos) out += ".0";
  } else {
    out += json::serialize(value);
  }
}

// What passes by itself: too many at once, a gateway that leaves or starts. In seconds.
void say_when_to_ask_again(HttpResponse& out) {
  if (out.status == 429 || out.status == 503) out.headers.push_back({"Retry-After", "1"});
}

}  // namespace

std::string json_text(const json::value& value) {
  std::string out;
  append_text(value, out);
  return out;
}

HttpResponse json_answer(int status, const json::value& body) {
  HttpResponse out;
  out.status = status;
  out.headers = {{"Content-Type", "application/json"}};
  out.body = json_text(body);
  return out;
}

HttpResponse problem_answer(const Error& error, std::string_view instance, std::string_view field) {
  const ErrorInfo& row = info(error.code);
  // `degraded` is 200 for an outcome; as a problem of its own it would be a lie.
  const int status = row.http_status < 400 ? 500 : row.http_status;
  std::string title(row.type);
  std::replace(title.begin(), title.end(), '_', ' ');
  json::object body;
  body["type"] = fmt::format("urn:weighlock:error:{}", row.type);
  body["title"] = title;
  body["status"] = status;
  body["detail"] = shown(error.text());
  body["instance"] = shown(instance);
  body["code"] = row.type;
  if (!field.empty()) body["field"] = field;
  HttpResponse out = json_answer(status, body);
  out.headers = {{"Content-Type", "application/problem+json"}};
  say_when_to_ask_again(out);
  if (status == 401) out.headers.push_back({"WWW-Authenticate", "Bearer"});
  return out;
}

HttpResponse error_answer(int status, std::string_view text) {
  HttpResponse out = json_answer(status, json::object{{"error", shown(text)}});
  say_when_to_ask_again(out);
  return out;
}
HttpResponse detail_answer(int status, std::string_view text) {
  return json_answer(status, json::object{{"detail", shown(text)}});
}

json::array text_list(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.push_back(json::string(text));
  return out;
}

}  // namespace weighlock
