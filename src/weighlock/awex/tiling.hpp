// Whether parts fill a tensor exactly.
//
// Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "weighlock/awex/extents.hpp"

namespace weighlock::awex {

// "" if every element of `whole` is in exactly one of `parts`; else the first thing that is wrong: "hole [8,10) in
// dimension 0", "[0]+[4] and [2]+[4] overlap", "[8]+[4] is outside". Parts without elements don't count. n log n for
// parts that come from cutting along dimensions; others are looked at pair by pair, and refused where they are too
// many.
std::string tiling_problem(const Box& whole, std::vector<Box> parts);

}  // namespace weighlock::awex
