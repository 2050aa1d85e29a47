// What Prometheus reads at /metrics: gauges of the present state, counters of ended updates. Loop thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "weighlock/protocol/state.hpp"

namespace weighlock {

class Metrics {
 public:
  void update_ended(const protocol::Update& update, Instant now);
  std::string text(const protocol::State& state, std::int64_t journal_records, bool disk_full) const;

 private:
  struct PairTotals {
    double pause_seconds_last = 0;
    double pause_seconds_total = 0;
  };
  std::map<std::pair<std::string, std::string>, std::uint64_t> ended_;  // pair, terminal state
  std::map<std::string, PairTotals> pairs_;
};

}  // namespace weighlock
