// The two sides of a transfer, as the planner of reshard/ takes them, from what AWEX workers reported: for `plan`, for
// statistics, for the exact bound, and for a proof that shares nothing with this folder's own.
//
// Pure; any thread. Twice the time of repair().
#pragma once

#include <vector>

#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/repair.hpp"
#include "weighlock/reshard/layout.hpp"
#include "weighlock/reshard/plan.hpp"

namespace weighlock::awex {

struct Sides {
  reshard::Side train;
  reshard::Side infer;  // all engines: rank = engine * engine_ranks + the engine's own
};

// All parts that are held, copies that AWEX's workers wouldn't be told of included, with true offsets. Tensors that the
// inference side alone has (tied aliases) are left out. Errors: repair's; not_supported for a dtype that has no size
// here.
Result<Sides> sides_of(const std::vector<Report>& train, const std::vector<Report>& infer, const Topology& topology);

// The workers' plan between these sides, arranged, with a digest and without a bound: that of make_plan() is as good
// for it. `repaired` and `sides` are of the same reports. Error: internal, if the plan names a part that isn't held.
Result<reshard::Plan> as_reshard(const Repaired& repaired, const Plan& plan, const Sides& sides);

}  // namespace weighlock::awex
