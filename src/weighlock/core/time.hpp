// Time in the pure modules: a count of milliseconds from a monotonic clock that only the edge reads.
#pragma once

#include <chrono>
#include <cstdint>

namespace weighlock {

using Milliseconds = std::chrono::milliseconds;

// Monotonic; the origin is the gateway's start (or the simulator's). Differences only mean something within one
// process.
struct Instant {
  std::int64_t ms = 0;
  friend auto operator<=>(const Instant&, const Instant&) = default;
};

inline Instant operator+(Instant at, Milliseconds by) {
  return Instant{at.ms + by.count()};
}
inline Milliseconds operator-(Instant a, Instant b) {
  return Milliseconds{a.ms - b.ms};
}

}  // namespace weighlock
