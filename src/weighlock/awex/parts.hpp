// Where each rank's part of a tensor really lies.
//
// Sizes are true, since they are the tensors' own; offsets may not be: AReaL's FSDP adapter computes rank * (rows /
// ranks) rounded down, where torch cuts pieces rounded up.
//
// Private to this folder; pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "weighlock/awex/gather.hpp"

namespace weighlock::awex {

struct Settled {
  std::string problem;    // "" if the parts fill the tensor exactly
  std::size_t moved = 0;  // parts whose offset was changed
};

// Sets true offsets: as reported where they fill `shape` exactly, else running sums of the sizes, by the order of the
// reported offsets in each dimension, else by ranks in groups of num_shards. Copies of a part get equal boxes. Changes
// nothing when neither fills it. `held` is in the order of ranks, and so it stays.
Settled settle(std::span<Held> held, const Extents& shape, const Table& table);

}  // namespace weighlock::awex
