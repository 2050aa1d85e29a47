// JSON values, and a strict parser for what strangers send.
//
// The values are Boost.JSON's. Its own parser keeps the last of duplicate keys; `parse_json` refuses duplicates,
// trailing text, invalid UTF-8, NaN and Infinity (but 1e999 becomes it), nesting deeper than the limit, and more
// values than the limit: each of them, a small number too, takes some 24 bytes of memory, a key several times as many.
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

#include "weighlock/core/limits.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock {

namespace json = boost::json;

struct JsonLimits {
  std::size_t depth_max = limits::kJsonDepthMax;
  std::size_t values_max = limits::kJsonValuesMax;
};

// `what` names the text in the error ("request body", "answer of http://..."). Never throws. Errors: invalid_argument,
// too_large for too many values.
Result<json::value> parse_json(std::string_view text, std::string_view what, JsonLimits limits = {});

// What a look-up reads: the members of an object, or of a value that may be one. A parameter type only: it views what
// it was made of, and both kinds of argument convert to it without a copy (an object to a `const json::value&` doesn't:
// it becomes a whole new value, which is gone before what was found in it is read).
class JsonMembers {
 public:
  JsonMembers(const json::object& object) : object_(&object) {}
  JsonMembers(const json::value& value) : object_(value.if_object()) {}

  // Null when there is no such member, or no object.
  const json::value* at(std::string_view key) const { return object_ ? object_->if_contains(key) : nullptr; }

 private:
  const json::object* object_;
};

// The member, or null when there is no such member, or no object.
const json::value* find(JsonMembers members, std::string_view key);
// The member if it is a string / a whole number in range / a bool.
std::optional<std::string_view> find_string(JsonMembers members, std::string_view key);
std::optional<std::int64_t> find_int(JsonMembers members, std::string_view key);
std::optional<bool> find_bool(JsonMembers members, std::string_view key);

}  // namespace weighlock
