// Classification of engines' answers, as data: the first row that fits an answer gives its outcome.
//
// Where the rows come from: measurements of SGLang 0.5.23 and vLLM 0.32 on a CPU, see docs/engines.md and the contract
// suite. Bodies are believed, not status codes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/operation.hpp"

namespace weighlock {

// One answer, read once.
struct Answer {
  int status = 0;
  std::string_view body;            // of the response, which must outlive this
  std::optional<json::value> json;  // where the body is JSON
  std::string words() const;        // the engine's own, bounded
};

Answer read_answer(const HttpResponse& response);

// Which statuses a row is for; `value` is a status, a class (4 for 4xx), or 0 for any.
struct StatusMatch {
  int value = 0;
  bool fits(int status) const { return value == 0 || value == status || value == status / 100; }
};

using BodyMatch = bool (*)(const Answer&, std::string_view needle);

namespace body {
bool anything(const Answer&, std::string_view);
bool contains(const Answer&, std::string_view needle);    // in the raw body
bool object(const Answer&, std::string_view);             // a JSON object
bool has(const Answer&, std::string_view key);            // a JSON object with that member
bool is_true(const Answer&, std::string_view key);        // a member that is true
bool is_false(const Answer&, std::string_view key);       // a member that is false
bool says(const Answer&, std::string_view key_is_value);  // "status=paused": a member with that text
bool loaded_nothing(const Answer&, std::string_view);  // success true, and words that say that 0 weights were updated
}  // namespace body

struct Row {
  std::optional<OperationKind> operation;  // none: any
  StatusMatch status;
  BodyMatch matches;
  std::string_view needle;
  OutcomeKind kind;
  ErrorCode code = ErrorCode::worker_failed;
  std::string_view remedy = {};  // for people, after the engine's words
  bool needs_restart = false;
};

// The first row that fits. Every table ends with a row that fits anything.
std::size_t classify(std::span<const Row> table, OperationKind operation, const Answer& answer);

// defined in sglang_table.cpp and vllm_table.cpp
std::span<const Row> sglang_table();
std::span<const Row> vllm_table();

}  // namespace weighlock
