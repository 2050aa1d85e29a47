// The two sides of a transfer, as the planner of reshard/ takes them, from what AWEX workers reported: for `plan`, for
// statistics, and for a proof that shares nothing with this folder's own.
//
// Pure; any thread. Twice the time of repair().
#pragma once

#include <vector>

#include "weighlock/awex/repair.hpp"
#include "weighlock/reshard/layout.hpp"

namespace weighlock::awex {

struct Sides {
  reshard::Side train;
  reshard::Side infer;  // all engines: rank = engine * engine_ranks + the engine's own
};

// All parts that are held, copies that AWEX's workers wouldn't be told of included, with true offsets. Tensors that the
// inference side alone has (tied aliases) are left out. Errors: repair's; not_supported for a dtype that has no size
// here.
Result<Sides> sides_of(const std::vector<Report>& train, const std::vector<Report>& infer, const Topology& topology);

}  // namespace weighlock::awex
