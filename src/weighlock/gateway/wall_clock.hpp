// Wall-clock times for display. Durations never come from here: they are differences of instants.
#pragma once

#include <cstdint>
#include <string>

#include "weighlock/core/time.hpp"

namespace weighlock {

// "2026-01-02T03:04:05.678Z" of a Unix time.
std::string rfc3339(std::int64_t unix_ms);
std::int64_t unix_now_ms();

// What instants are in wall time: one pair of readings, taken at the start; a clock that is set later moves nothing.
class WallClock {
 public:
  WallClock(std::int64_t unix_ms, Instant at) : offset_ms_(unix_ms - at.ms) {}
  std::string text(Instant at) const { return rfc3339(offset_ms_ + at.ms); }

 private:
  std::int64_t offset_ms_;
};

}  // namespace weighlock
