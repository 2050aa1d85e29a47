// Where each rank's part of a tensor really lies.
//
// Sizes are true, since they are the tensors' own; offsets may be an adapter's guess. A report is read in these ways:
//   * as it is: its parts fill the tensor exactly;
//   * SGLang's adapter: offset = place x own rows, where the place is the rank among those that share the tensor;
//   * AReaL's FSDP adapter: offset = place x (rows / ranks), rounded down, where torch cuts pieces rounded up. With
//   fewer
//     rows than ranks all of these are 0, and the place is known from the order of ranks.
// A guess is one only if every part's offset is such a product and the places are 0, 1, 2, ... without a gap; the parts
// then lie in the order of places, never in that of offsets: a last, short part of rank 7 may be told to begin before
// the part of rank 5. A report that can be read in two ways which differ isn't settled.
//
// Private to this folder; pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "weighlock/awex/gather.hpp"

namespace weighlock::awex {

struct Settled {
  std::string problem;     // "" if the parts fill the tensor exactly, in one way
  bool ambiguous = false;  // they do in two, which `problem` tells
  std::size_t moved = 0;   // parts whose offset was changed
};

// Sets true offsets, or changes nothing and tells the problem. Copies of a part get equal boxes. `held` is in the order
// of ranks, and so it stays.
Settled settle(std::span<Held> held, const Extents& shape, const Table& table);

}  // namespace weighlock::awex
