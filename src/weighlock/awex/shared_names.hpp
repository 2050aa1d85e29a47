// Which tensors both sides name, and which may be on one alone.
//
// Private to this folder; pure.
#pragma once

#include <cstdint>
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

// Problems: a name that one side lacks, and one that would be tied to a tensor of another shape or dtype.
SharedNames share_names(const Names& names, const Table& train, const Table& infer, Problems& problems);

}  // namespace weighlock::awex
