// One member of a large JSON object as the bytes that were sent, without values being built from them.
//
// For bodies of tens of MB that are kept and handed on as they came: 1.0, 1e22, 2**70 and the order of keys survive.
#pragma once

#include <string_view>

#include "weighlock/core/json.hpp"

namespace weighlock {

struct JsonMember {
  enum class Kind { found, absent, not_an_object };
  Kind kind = Kind::absent;
  std::string_view value;  // found: the member's; not an object: the text's; without the blanks around it
};

// Checks all of `text` as strictly as parse_json (UTF-8, no NaN, no text after the value, nesting), but for duplicate
// keys: of two members of that name the last counts, as for Python's json. The depth counts from the member's value.
// Pure, any thread; time and memory as one pass over the text. Error: invalid_argument, naming the byte.
Result<JsonMember> find_member(std::string_view text, std::string_view key, std::string_view what,
                               JsonLimits limits = {});

}  // namespace weighlock
