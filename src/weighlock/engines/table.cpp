#include "weighlock/engines/table.hpp"

#include <cctype>

#include "weighlock/core/check.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {

Answer read_answer(const HttpResponse& response) {
  Answer answer{response.status, response.body, std::nullopt};
  if (response.body.empty()) return answer;
  if (Result<json::value> parsed = parse_json(response.body, "answer")) answer.json = *std::move(parsed);
  return answer;
}

std::string Answer::words() const {
  return words_of(body);
}

namespace body {

bool anything(const Answer&, std::string_view) {
  return true;
}

bool contains(const Answer& answer, std::string_view needle) {
  return answer.body.find(needle) != std::string_view::npos;
}

bool object(const Answer& answer, std::string_view) {
  return answer.json && answer.json->is_object();
}

bool has(const Answer& answer, std::string_view key) {
  return answer.json && find(*answer.json, key) != nullptr;
}

bool is_true(const Answer& answer, std::string_view key) {
  return answer.json && find_bool(*answer.json, key) == true;
}

bool is_false(const Answer& answer, std::string_view key) {
  return answer.json && find_bool(*answer.json, key) == false;
}

bool says(const Answer& answer, std::string_view key_is_value) {
  const std::size_t at = key_is_value.find('=');
  WEIGHLOCK_CHECK(at != std::string_view::npos, "a needle of says() is key=value");
  return answer.json && find_string(*answer.json, key_is_value.substr(0, at)) == key_is_value.substr(at + 1);
}

bool loaded_nothing(const Answer& answer, std::string_view) {
  if (!is_true(answer, "success")) return false;
  const std::string words = answer.words();
  for (const std::string_view noun : {" weight", " tensor", " parameter", " param"}) {
    const std::size_t at = words.find("0" + std::string(noun));
    if (at == std::string::npos) continue;
    if (at == 0 || words[at - 1] == ' ') return true;  // "updated 0 weights", not "updated 10 weights"
  }
  return false;
}

}  // namespace body

std::size_t classify(std::span<const Row> table, OperationKind operation, const Answer& answer) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Row& row = table[i];
    if (row.operation && *row.operation != operation) continue;
    if (row.status.fits(answer.status) && row.matches(answer, row.needle)) return i;
  }
  WEIGHLOCK_CHECK(false, "a table of answers ends with a row that fits anything");
  return 0;
}

}  // namespace weighlock
