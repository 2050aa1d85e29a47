#include "weighlock/gateway/api/answer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weighlock {

HttpResponse json_answer(int status, const json::value& body) {
  HttpResponse out;
  out.status = status;
  out.headers = {{"Content-Type", "application/json"}};
  out.body = json::serialize(body);
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

HttpResponse error_answer(int status, std::string_view text) { return json_answer(status, json::object{{"error", text}}); }
HttpResponse detail_answer(int status, std::string_view text) { return json_answer(status, json::object{{"detail", text}}); }

json::array text_list(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.push_back(json::string(text));
  return out;
}

}  // namespace weighlock
