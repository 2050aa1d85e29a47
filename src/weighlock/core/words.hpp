// A peer's own words, made fit for an error message, a log line and a JSON answer.
//
// Pure; safe from any thread. Sources: AReaL trainers answer {"error":text} or an HTML page, SGLang {"message":text},
// {"error":{"message":text}} or {"detail":...}, vLLM {"error":{"message":text}} or {"error":text}.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "weighlock/core/limits.hpp"

namespace weighlock {

// What a body says: of a JSON object its message, error or detail; of an HTML page its text without tags, scripts and
// styles; else the body. One line (control characters and runs of blanks become one blank), valid UTF-8 (bytes that are
// not become '?'), at most `bytes_max` bytes, cut at a character with "..." after it. "" for a body of blanks.
std::string words_of(std::string_view body, std::size_t bytes_max = limits::kEngineTextBytesMax);

// The same cleaning without looking for JSON or HTML.
std::string printable(std::string_view text, std::size_t bytes_max = limits::kEngineTextBytesMax);

bool is_utf8(std::string_view text);

}  // namespace weighlock
