// JSON values, and a strict parser for what strangers send.
//
// The values are Boost.JSON's. Its own parser keeps the last of duplicate keys; `parse_json` refuses duplicates,
// trailing text, invalid UTF-8, NaN and Infinity, and nesting deeper than the limit.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "weighlock/core/result.hpp"

namespace weighlock {

namespace json = boost::json;

struct JsonLimits {
  std::size_t depth_max = 64;  // our own bodies nest three deep
};

// `what` names the text in the error ("request body", "answer of http://..."). Never throws.
Result<json::value> parse_json(std::string_view text, std::string_view what, JsonLimits limits = {});

// The member, or null when `value` is not an object or has no such member.
const json::value* find(const json::value& value, std::string_view key);
// The member if it is a string / a whole number in range / a bool.
std::optional<std::string_view> find_string(const json::value& value, std::string_view key);
std::optional<std::int64_t> find_int(const json::value& value, std::string_view key);
std::optional<bool> find_bool(const json::value& value, std::string_view key);

}  // namespace weighlock
