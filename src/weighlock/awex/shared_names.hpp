// Which tensors both sides name, and which may be on one alone.
//
// Private to this folder; pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "weighlock/awex/gather.hpp"
#include "weighlock/awex/problems.hpp"

namespace weighlock::awex {

// Tensors' numbers, in the order of names.
struct SharedNames {
  std::vector<std::uint32_t> common;
  // Tied to a common one, which is the same memory in the engine: a head beside the embedding, or the reverse.
  std::vector<std::uint32_t> infer_only;
};

// The name of the tensor that may be one memory with this one; "" for most.
std::string_view tied_to(std::string_view name);

// Problems: a name that one side lacks, and one that would be tied to a tensor of another shape or dtype, or that a
// rank holds which doesn't hold the same part of the other: the last stage's own head is no alias of the first stage's
// embedding. `infer` is in the order of ranks.
SharedNames share_names(const Names& names, const Table& train, const Table& infer, Problems& problems);

}  // namespace weighlock::awex
