#include "weighlock/core/json.hpp"

#include <fmt/format.h>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

constexpr std::size_t kKeyShown = 100;  // of a key in an error

// Builds a value with Boost's own stack and refuses duplicate keys on the way.
struct Handler {
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

  // Room for a small text's values, so that it costs no allocation but its own.
  alignas(json::value) unsigned char room[4096];
  json::value_stack stack{json::storage_ptr(), room, sizeof room};
  // Keys of all objects that are open, one after the other; an object's own are looked at when it ends.
  std::string key_text;
  std::vector<std::pair<std::size_t, std::size_t>> keys;  // begin and end in key_text
  std::vector<std::size_t> open_objects;                  // where the keys of each begin in `keys`
  std::size_t key_begin = 0;
  std::string duplicate;
  bool is_duplicate = false;  // the key itself may be ""
  std::size_t values_left = 0;
  bool too_many_values = false;

  // Before a value is stored; false ends the parse.
  bool admit(json::error_code& ec) {
    if (values_left > 0) return --values_left, true;
    too_many_values = true;
    ec = json::error::syntax;
    return false;
  }

  bool on_document_begin(json::error_code&) { return stack.reset(), true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code& ec) { return open_objects.push_back(keys.size()), admit(ec); }
  bool on_object_end(std::size_t n, json::error_code& ec) {
    if (!keys_differ(ec)) return false;
    stack.push_object(n);
    return true;
  }
  std::string_view key_at(const std::pair<std::size_t, std::size_t>& key) const {
    return std::string_view(key_text).substr(key.first, key.second - key.first);
  }
  bool keys_differ(json::error_code& ec) {
    const auto own = keys.begin() + static_cast<std::ptrdiff_t>(open_objects.back());
    open_objects.pop_back();
    const std::size_t text_before = own == keys.end() ? key_text.size() : own->first;
    std::sort(own, keys.end(), [this](const auto& a, const auto& b) { return key_at(a) < key_at(b); });
    const auto twice =
        std::adjacent_find(own, keys.end(), [this](const auto& a, const auto& b) { return key_at(a) == key_at(b); });
    if (twice != keys.end()) {
      duplicate = key_at(*twice);
      is_duplicate = true;
      ec = json::error::syntax;
      return false;
    }
    keys.erase(own, keys.end());
    key_text.resize(text_before);
    key_begin = text_before;
    return true;
  }
  bool on_array_begin(json::error_code& ec) { return admit(ec); }
  bool on_array_end(std::size_t n, json::error_code&) { return stack.push_array(n), true; }
  bool on_key_part(json::string_view s, std::size_t, json::error_code&) {
    key_text.append(s.data(), s.size());
    stack.push_chars(s);
    return true;
  }
  bool on_key(json::string_view s, std::size_t, json::error_code&) {
    key_text.append(s.data(), s.size());
    keys.emplace_back(key_begin, key_text.size());
    key_begin = key_text.size();
    stack.push_key(s);
    return true;
  }
  bool on_string_part(json::string_view s, std::size_t, json::error_code&) { return stack.push_chars(s), true; }
  bool on_string(json::string_view s, std::size_t, json::error_code& ec) { return stack.push_string(s), admit(ec); }
  bool on_number_part(json::string_view, json::error_code&) { return true; }
  bool on_int64(std::int64_t i, json::string_view, json::error_code& ec) { return stack.push_int64(i), admit(ec); }
  bool on_uint64(std::uint64_t u, json::string_view, json::error_code& ec) { return stack.push_uint64(u), admit(ec); }
  // Boost.JSON makes a NaN of a zero with a great exponent, 0e777.
  bool on_double(double d, json::string_view, json::error_code& ec) {
    stack.push_double(std::isnan(d) ? 0.0 : d);
    return admit(ec);
  }
  bool on_bool(bool b, json::error_code& ec) { return stack.push_bool(b), admit(ec); }
  bool on_null(json::error_code& ec) { return stack.push_null(), admit(ec); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }
};

}  // namespace

Result<json::value> parse_json(std::string_view text, std::string_view what, JsonLimits limits) {
  json::parse_options options;
  options.max_depth = limits.depth_max;
  json::basic_parser<Handler> parser(options);
  parser.handler().values_left = limits.values_max;
  json::error_code failure;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), failure);
  if (parser.handler().is_duplicate)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: the key '{}' appears twice", what, printable(parser.handler().duplicate, kKeyShown))};
  if (parser.handler().too_many_values)
    return Error{ErrorCode::too_large, fmt::format("{}: more than {} values", what, limits.values_max)};
  if (failure)
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{}: not JSON at byte {}: {}", what, used, failure.message())};
  if (!parser.done() || used != text.size())
    return Error{ErrorCode::invalid_argument, fmt::format("{}: text after the JSON value at byte {}", what, used)};
  return parser.handler().stack.release();
}

const json::value* find(JsonMembers members, std::string_view key) {
  return members.at(key);
}

std::optional<std::string_view> find_string(JsonMembers members, std::string_view key) {
  const json::value* member = members.at(key);
  if (!member || !member->is_string()) return std::nullopt;
  return std::string_view(member->get_string().data(), member->get_string().size());
}

std::optional<std::int64_t> find_int(JsonMembers members, std::string_view key) {
  const json::value* member = members.at(key);
  if (!member) return std::nullopt;
  if (const std::int64_t* whole = member->if_int64()) return *whole;
  return std::nullopt;
}

std::optional<bool> find_bool(JsonMembers members, std::string_view key) {
  const json::value* member = members.at(key);
  if (!member || !member->is_bool()) return std::nullopt;
  return member->get_bool();
}

}  // namespace weighlock
