#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "weighlock/core/check.hpp"

namespace weighlock::cli {

std::string table(const std::vector<std::string>& heading, const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const std::string& cell : heading) widths.push_back(cell.size());
  for (const auto& row : rows) {
    WEIGHLOCK_CHECK(row.size() == heading.size(), "a row has as many cells as the heading");
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  const auto add = [&](const std::vector<std::string>& row) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i + 1 == row.size() ? row[i] : fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  };
  add(heading);
  for (const auto& row : rows) add(row);
  return text;
}

std::string duration_text(std::int64_t ms) {
  if (ms < 1000) return fmt::format("{} ms", ms);
  if (ms < 120'000) return fmt::format("{:.1f} s", static_cast<double>(ms) / 1000);
  return fmt::format("{} min {} s", ms / 60'000, ms / 1000 % 60);
}

std::string time_text(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, unix_ms % 1000);
}

std::string bytes_text(std::int64_t bytes) {
  double value = static_cast<double>(bytes);
  for (const char* unit : {"B", "kB", "MB", "GB"}) {
    if (value < 1000)
      return value == static_cast<double>(bytes) ? fmt::format("{} {}", bytes, unit)
                                                 : fmt::format("{:.1f} {}", value, unit);
    value /= 1000;
  }
  return fmt::format("{:.1f} TB", value);
}

std::string one_line(const std::string& text) {
  std::string out = text;
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return out;
}

}  // namespace weighlock::cli
