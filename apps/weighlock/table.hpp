// Text tables: a heading, rows, columns as wide as their longest cell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weighlock::cli {

// The last column is not padded. Every row has as many cells as the heading.
std::string table(const std::vector<std::string>& heading, const std::vector<std::vector<std::string>>& rows);

// "420 ms", "3.1 s", "4 min 10 s"
std::string duration_text(std::int64_t ms);
// "2026-01-31T07:05:09.123Z"
std::string time_text(std::int64_t unix_ms);
// "512 B", "1.2 GB" (powers of ten)
std::string bytes_text(std::int64_t bytes);
// What came from a stranger, on one line: control characters become '?'.
std::string one_line(const std::string& text);

}  // namespace weighlock::cli
