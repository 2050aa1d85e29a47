// Who sends what, given that receivers take the replicas in turn.
//
// Private to this folder; pure.
#pragma once

#include <cstdint>
#include <vector>

#include "weighlock/awex/colocated.hpp"
#include "weighlock/awex/extents.hpp"

namespace weighlock::awex {

// One tensor, as the balance sees it.
struct Demand {
  struct Part {
    Box box;
    std::vector<std::uint32_t> holders;  // train ranks that have it, in order
  };
  std::uint32_t element_bytes = 1;
  std::vector<Part> parts;  // distinct
  std::vector<std::vector<Box>>
      receivers;  // of engine 0: replicas of receiving parts, in the order in which they are listed
  std::vector<std::vector<std::uint32_t>> receiver_ranks;  // of the engine, of those parts
  // Out: for each replica that is to be listed, for each part, the place of its sender in `holders`.
  std::vector<std::vector<std::uint32_t>> chosen;
};

struct Balance {
  std::vector<std::uint64_t> load;  // bytes by train rank
  std::uint64_t lower_bound = 0;    // for the busiest: see Statistics
};

// Fills `chosen` of each demand: first where nothing can be chosen, then from the fewest holders on, the largest first;
// each part's senders are the least loaded holders. Then tensors are chosen again, knowing all others, while it helps.
// With `reaches` each reader has a replica of its own, whose senders reach it where there is such a holder.
Balance balance(std::vector<Demand>& demands, std::uint32_t engines, std::uint32_t train_ranks,
                const Reaches& reaches = nullptr);

// Whether every reader has, for each part that it reads, a holder that reaches all of its ranks which do.
bool all_reached(const Demand& demand, std::uint32_t engines, const Reaches& reaches);

}  // namespace weighlock::awex
