// Parsing of worker URLs: strict, and the same text for every spelling of one address.
#pragma once

#include <string_view>

#include "weighlock/core/http.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock {

// Accepts "http://host[:port][/path]" and https. Refuses other schemes, user info, queries, fragments, empty and
// wildcard hosts (0.0.0.0/8, ::, and their other spellings), names that are none, control characters, paths outside
// ASCII and ports outside 1..65535; the message says which.
Result<Url> parse_url(std::string_view text);

}  // namespace weighlock
