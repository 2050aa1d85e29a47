// Which tensor of the sources each tensor of the targets is.
//
// Pure; any thread. Internal to the planner and the proof.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/layout.hpp"

namespace weighlock::reshard {

struct Matching {
  std::vector<TensorId> source_of;  // of each target tensor
  std::vector<TensorId> order;      // target tensors by name
  std::uint32_t unused_sources = 0;
};

// The name under which the sources have it.
const std::string& source_name(const Tensor& target);

// Errors name at most eight tensors: those that one side lacks, else the first whose shape or dtype differs.
Result<Matching> match_tensors(const Side& sources, const Side& targets, bool unused_sources_allowed);

// A side's shards by tensor: those of tensor t are shards[ends[t-1]..ends[t]), in their own order.
struct ShardsByTensor {
  std::vector<ShardId> shards;
  std::vector<std::uint32_t> ends;
  std::span<const ShardId> of(TensorId tensor) const {
    const std::uint32_t begin = tensor == 0 ? 0 : ends[tensor - 1];
    return std::span(shards).subspan(begin, ends[tensor] - begin);
  }
};
ShardsByTensor shards_by_tensor(const Side& side);

}  // namespace weighlock::reshard
