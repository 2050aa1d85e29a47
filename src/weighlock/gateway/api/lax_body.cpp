#include "weighlock/gateway/api/lax_body.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "weighlock/gateway/api/answer.hpp"

namespace weighlock {
namespace {

// A refusal tells what is wrong; of a large body it doesn't repeat everything.
constexpr std::size_t kFailuresShownMax = 100;
constexpr std::size_t kBodyShownBytesMax = 16 * 1024;

// FastAPI: no content type, application/json and application/*+json are JSON.
bool is_json(std::string_view type) {
  if (type.empty()) return true;
  std::string lower(type.substr(0, type.find(';')));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  while (!lower.empty() && lower.back() == ' ') lower.pop_back();
  return lower == "application/json" || (lower.starts_with("application/") && lower.ends_with("+json"));
}

// The byte at which our parser gave up, from its message; 0 when it names none.
std::int64_t position_in(std::string_view message) {
  constexpr std::string_view kBefore = "at byte ";
  const std::size_t at = message.find(kBefore);
  std::int64_t out = 0;
  if (at != std::string_view::npos)
    std::from_chars(message.data() + at + kBefore.size(), message.data() + message.size(), out);
  return out;
}

enum class Parsed { ok, not_a_number, too_large };

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// What pydantic takes for a whole number in a text: blanks around it, a sign, single underscores between digits, and a
// dot with zeros.
Parsed whole_from_text(std::string_view text, std::int64_t& out) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  if (const std::size_t dot = text.find('.'); dot != std::string_view::npos) {
    if (dot + 1 == text.size() || text.find_first_not_of('0', dot + 1) != std::string_view::npos)
      return Parsed::not_a_number;
    text = text.substr(0, dot);
  }
  std::string digits;
  if (text.starts_with('-')) digits = "-";
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool separates = text[i] == '_' && i > 0 && is_digit(text[i - 1]) && i + 1 < text.size();
    if (!is_digit(text[i]) && !separates) return Parsed::not_a_number;
    if (!separates) digits.push_back(text[i]);
  }
  if (text.empty()) return Parsed::not_a_number;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return failure == std::errc::result_out_of_range ? Parsed::too_large : Parsed::ok;
}

std::optional<bool> flag_from_text(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* yes : {"1", "on", "t", "true", "y", "yes"}) {
    if (lower == yes) return true;
  }
  for (const char* no : {"0", "off", "f", "false", "n", "no"}) {
    if (lower == no) return false;
  }
  return std::nullopt;
}

std::int64_t nearest_whole(double value) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (value >= kLimit) return std::numeric_limits<std::int64_t>::max();
  if (value < -kLimit) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(value);
}

json::array at(std::string_view key) {
  return {"body", json::string(key)};
}

json::object failure_item(std::string_view type, json::array where, std::string_view message, json::value input) {
  json::object out;
  out["type"] = type;
  out["loc"] = std::move(where);
  out["msg"] = message;
  out["input"] = std::move(input);
  return out;
}

HttpResponse refusal_of(json::array failures) {
  json::object body;
  body["detail"] = std::move(failures);
  return json_answer(422, body);
}

HttpResponse refusal_of(json::object only) {
  json::array failures;
  failures.push_back(std::move(only));
  return refusal_of(std::move(failures));
}

}  // namespace

bool says_json(const HttpRequest& request) {
  return is_json(header(request.headers, "content-type"));
}

HttpResponse refuse_json(const Error& failure) {
  json::object item{
      {"type", "json_invalid"}, {"loc", {"body", position_in(failure.message)}}, {"msg", "JSON decode error"}};
  item["input"] = json::object{};
  item["ctx"] = {{"error", failure.message}};
  return refusal_of(std::move(item));
}

HttpResponse refuse_missing_body() {
  return refusal_of(failure_item("missing", {"body"}, "Field required", nullptr));
}

HttpResponse refuse_no_object(json::value input) {
  return refusal_of(failure_item("model_attributes_type", {"body"},
                                 "Input should be a valid dictionary or object to extract fields from",
                                 std::move(input)));
}

LaxBody::LaxBody(const HttpRequest& request) : small_(request.body.size() <= kBodyShownBytesMax) {
  unreadable_ = true;
  json::value value;
  if (!request.body.empty() && says_json(request)) {
    Result<json::value> parsed = parse_json(request.body, "request body");
    if (!parsed) {
      whole_refusal_ = refuse_json(parsed.error());
      return;
    }
    value = *std::move(parsed);
  } else if (!request.body.empty()) {
    value = json::string(request.body);
  }
  if (value.is_object()) {
    object_ = std::move(value.get_object());
    unreadable_ = false;
  } else if (value.is_null()) {
    whole_refusal_ = refuse_missing_body();
  } else {
    whole_refusal_ = refuse_no_object(small_ ? std::move(value) : json::value(nullptr));
  }
}

void LaxBody::fail(std::string_view type, json::array where, std::string_view message, json::value input) {
  if (failures_.size() < kFailuresShownMax)
    failures_.push_back(failure_item(type, std::move(where), message, std::move(input)));
}

const json::value* LaxBody::member(std::string_view key, bool required) {
  if (unreadable_) return nullptr;
  const json::value* value = object_.if_contains(key);
  if (!value && required) fail("missing", at(key), "Field required", small_ ? json::value(object_) : nullptr);
  return value;
}

const json::value* LaxBody::any(std::string_view key) const {
  return object_.if_contains(key);
}

bool LaxBody::text_item(const json::value& value, json::array where, std::string& out) {
  if (!value.is_string()) {
    fail("string_type", std::move(where), "Input should be a valid string", value);
    return false;
  }
  out = std::string(value.get_string());
  return true;
}

std::string LaxBody::text(std::string_view key, std::optional<std::string> otherwise) {
  std::string out;
  const json::value* value = member(key, !otherwise);
  if (!value) return otherwise.value_or("");
  text_item(*value, at(key), out);
  return out;
}

std::vector<std::string> LaxBody::texts(std::string_view key) {
  std::vector<std::string> out;
  const json::value* value = member(key, true);
  if (!value) return out;
  if (!value->is_array()) {
    fail("list_type", at(key), "Input should be a valid list", *value);
    return out;
  }
  std::int64_t index = 0;
  for (const json::value& item : value->get_array()) {
    std::string text;
    json::array where = at(key);
    where.push_back(index++);
    if (text_item(item, std::move(where), text)) out.push_back(std::move(text));
  }
  return out;
}

std::int64_t LaxBody::whole(std::string_view key, std::optional<std::int64_t> otherwise) {
  const json::value* value = member(key, !otherwise);
  if (!value) return otherwise.value_or(0);
  if (const std::int64_t* n = value->if_int64()) return *n;
  if (value->is_uint64()) return std::numeric_limits<std::int64_t>::max();
  if (value->is_bool()) return value->get_bool() ? 1 : 0;
  if (const double* d = value->if_double()) {
    if (!std::isfinite(*d)) {
      fail("finite_number", at(key), "Input should be a finite number", nullptr);
      return 0;
    }
    // An integer of more than 64 bits comes as a double from the parser, too.
    if (*d == std::floor(*d)) return nearest_whole(*d);
    fail("int_from_float", at(key), "Input should be a valid integer, got a number with a fractional part", *value);
    return 0;
  }
  if (value->is_string()) {
    const std::string_view text(value->get_string().data(), value->get_string().size());
    std::int64_t out = 0;
    const Parsed parsed = whole_from_text(text, out);
    if (parsed == Parsed::ok) return out;
    if (parsed == Parsed::too_large)
      return text.find('-') == std::string_view::npos ? std::numeric_limits<std::int64_t>::max()
                                                      : std::numeric_limits<std::int64_t>::min();
    fail("int_parsing", at(key), "Input should be a valid integer, unable to parse string as an integer", *value);
    return 0;
  }
  fail("int_type", at(key), "Input should be a valid integer", *value);
  return 0;
}

bool LaxBody::flag(std::string_view key, bool otherwise) {
  const json::value* value = member(key, false);
  if (!value) return otherwise;
  if (value->is_bool()) return value->get_bool();
  const double* real = value->if_double();
  if (!(value->is_string() || value->is_int64() || (real && *real == std::floor(*real) && std::isfinite(*real)))) {
    fail("bool_type", at(key), "Input should be a valid boolean", *value);
    return otherwise;
  }
  std::optional<bool> read;
  if (value->is_string()) {
    read = flag_from_text(std::string_view(value->get_string()));
  } else {
    const double number = value->to_number<double>();
    if (number == 0 || number == 1) read = number == 1;
  }
  if (!read) fail("bool_parsing", at(key), "Input should be a valid boolean, unable to interpret input", *value);
  return read.value_or(otherwise);
}

std::optional<HttpResponse> LaxBody::refusal() const {
  if (whole_refusal_ || failures_.empty()) return whole_refusal_;
  return refusal_of(failures_);
}

}  // namespace weighlock
