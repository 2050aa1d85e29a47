// The layout of a DeepSeek-V3-sized transfer: 45,008 tensors, 58 layers of 256 experts.
//
// Training: 256 ranks, expert-parallel over 32, the 8 data-parallel groups hold copies; what isn't an expert is on
// every rank. Inference: 4 engines of 32 ranks: experts over 32, the rest tensor-parallel over 32 (norms, routers and
// the low-rank projections are copies). Names and shapes are made up in the pattern of the public model card's numbers
// (hidden 7168, expert width 2048, 61 layers, of which 3 dense with width 18432, 128 heads of 192 and 128).
#pragma once

#include "weighlock/reshard/layout.hpp"

namespace weighlock::bench {

struct Transfer {
  reshard::Side train{"train", 256};
  reshard::Side infer{"infer", 128};
};

Transfer deepseek_transfer();

}  // namespace weighlock::bench
