// What the fleet's workers say of themselves in AReaL's AWEX dialect: bodies shaped and sized as AReaL's adapters make
// them (1.6 kB for each tensor of each rank). Training ranks share the rows of every tensor; an engine has one rank,
// with all of them.
#pragma once

#include <string>

namespace weighlock::bench {

std::string awex_parallelism(bool trainer, int world);
// A JSON list. Of the `rank`th of `world` trainers, or of an engine (rank 0 of world 1).
std::string awex_weight_meta(int rank, int world, int tensors);

}  // namespace weighlock::bench
