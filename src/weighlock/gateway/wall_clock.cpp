#include "weighlock/gateway/wall_clock.hpp"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

namespace weighlock {

std::string rfc3339(std::int64_t unix_ms) {
  std::int64_t seconds = unix_ms / 1000;
  std::int64_t part = unix_ms % 1000;
  if (part < 0) {
    part += 1000;
    --seconds;
  }
  const std::time_t time = seconds;
  std::tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, part);
}

std::int64_t unix_now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace weighlock
