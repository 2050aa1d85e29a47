// JSON: what is taken stays the same when it is written and read again; what isn't is refused with words.
#include "weighlock/core/json.hpp"

#include <algorithm>
#include <cmath>

#include "check.hpp"
#include "weighlock/core/words.hpp"

namespace {

// Boost.JSON reads a decimal fraction to within a few units in its last place, not to the nearest.
bool same(const weighlock::json::value& a, const weighlock::json::value& b) {
  if (a.is_array() && b.is_array()) {
    return std::equal(a.get_array().begin(), a.get_array().end(), b.get_array().begin(), b.get_array().end(), same);
  }
  if (a.is_object() && b.is_object()) {
    const auto equal = [](const auto& x, const auto& y) { return x.key() == y.key() && same(x.value(), y.value()); };
    return std::equal(a.get_object().begin(), a.get_object().end(), b.get_object().begin(), b.get_object().end(),
                      equal);
  }
  if (!a.is_double() || !b.is_double() || a == b) return a == b;
  return std::abs(a.get_double() - b.get_double()) <= std::abs(a.get_double()) * 1e-14;
}

}  // namespace

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
  const std::string written = json::serialize(*value);
  // A number beyond any double is read as infinite, which JSON has no word for: answers print it as null.
  if (written.find("Infinity") != std::string::npos) return 0;
  const Result<json::value> again = parse_json(written, "body");
  WEIGHLOCK_CHECK(again && same(*again, *value), "what is written is what was read");
  return 0;
}
