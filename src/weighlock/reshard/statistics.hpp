// What a plan costs whom, in bytes.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "weighlock/reshard/plan.hpp"

namespace weighlock::reshard {

struct Statistics {
  std::vector<std::uint64_t> sent;          // by source rank
  std::vector<std::uint64_t> received;      // by target rank, from sources
  std::vector<std::uint64_t> fan_out_sent;  // by target rank, to others of its host
  std::uint64_t total_sent = 0;             // by sources
  std::uint64_t total_fanned_out = 0;
  std::uint64_t needed = 0;            // what all target ranks hold, padding apart
  std::uint64_t busiest = 0;           // of `sent`
  std::uint64_t busiest_receiver = 0;  // of `received`
  std::uint32_t idle = 0;              // source ranks that could send something and don't
  std::size_t operations = 0;

  double redundancy = 0;  // (total_sent + total_fanned_out) / needed; 1 if nothing is needed
  double over_mean = 0;   // busiest / mean of the source ranks that hold anything; 1 if nothing is sent
  double over_bound = 0;  // busiest / Plan::lower_bound_bytes; likewise
};

Statistics statistics(const Side& sources, const Side& targets, const Plan& plan);

}  // namespace weighlock::reshard
