// Answers: how values and errors become HTTP, in one place for each of the two styles. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/error.hpp"
#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/gateway/settings.hpp"

namespace weighlock {

// JSON with numbers as Python prints them: 57.9 and 5.0, where Boost.JSON 1.81 prints 5.79E1 and 5E0.
std::string json_text(const json::value& value);

HttpResponse json_answer(int status, const json::value& body);

// RFC 9457, as /v1 answers: type, title, status, detail, instance, code, and field for input errors.
HttpResponse problem_answer(const Error& error, std::string_view instance, std::string_view field = "");
inline HttpResponse problem_answer(const FieldError& error, std::string_view instance) {
  return problem_answer(error.error, instance, error.field);
}

// The compatible routes' own style, {"error": text}, and FastAPI's, {"detail": text}.
HttpResponse error_answer(int status, std::string_view text);
HttpResponse detail_answer(int status, std::string_view text);

json::array text_list(const std::vector<std::string>& texts);

}  // namespace weighlock
