// JSON: what is taken stays the same when it is written and read again; what isn't is refused with words.
#include "weighlock/core/json.hpp"

#include "check.hpp"
#include "weighlock/core/words.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weighlock;
  const std::string_view text = fuzz::text_of(data, size);
  const Result<json::value> value = parse_json(text, "body", {.depth_max = 8, .values_max = 100});
  words_of(text);
  if (!value) {
    WEIGHLOCK_CHECK(!value.error().message.empty() && is_utf8(value.error().message), "a refusal can be shown");
    return 0;
  }
  WEIGHLOCK_CHECK(is_utf8(text), "what is taken is UTF-8");
  const Result<json::value> again = parse_json(json::serialize(*value), "body");
  WEIGHLOCK_CHECK(again && *again == *value, "what is written is what was read");
  return 0;
}
