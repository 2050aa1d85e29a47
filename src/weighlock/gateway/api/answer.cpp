#include "weighlock/gateway/api/answer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace weighlock {
namespace {

void append_text(const json::value& value, std::string& out) {
  if (const json::object* object = value.if_object()) {
    const char* before = "{";
    for (const json::key_value_pair& member : *object) {
      out += std::exchange(before, ",");
      out += json::serialize(json::value(member.key()));
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
  } else if (const double* number = value.if_double()) {
    // 1e999 comes in as an infinity, for which JSON has no word.
    const std::string text = std::isfinite(*number) ? fmt::format("{}", *number) : "null";
    out += text;
    if (text.find_first_of(".en") == std::string::npos) out += ".0";
  } else {
    out += json::serialize(value);
  }
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
  body["detail"] = error.text();
  body["instance"] = instance;
  body["code"] = row.type;
  if (!field.empty()) body["field"] = field;
  HttpResponse out = json_answer(status, body);
  out.headers = {{"Content-Type", "application/problem+json"}};
  if (status == 401) out.headers.push_back({"WWW-Authenticate", "Bearer"});
  return out;
}

HttpResponse error_answer(int status, std::string_view text) {
  return json_answer(status, json::object{{"error", text}});
}
HttpResponse detail_answer(int status, std::string_view text) {
  return json_answer(status, json::object{{"detail", text}});
}

json::array text_list(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.push_back(json::string(text));
  return out;
}

}  // namespace weighlock
