// Gives each item of a demand to senders, as their shares say; the second half of planning.
//
// Items go whole, the largest first, to whoever of their holders has most of the share left; one that is too large for
// that is cut along its outermost dimension that can be cut. A sender may end above its shares by 1/64 of the busiest
// one's bound, or by the rest of an element, so that small items stay whole.
//
// Pure; any thread. Internal to the planner.
#pragma once

#include "weighlock/reshard/balance.hpp"
#include "weighlock/reshard/demand.hpp"
#include "weighlock/reshard/plan.hpp"

namespace weighlock::reshard {

void assign_items(const Side& sources, const Side& targets, const Demand& demand, const Shares& shares, Plan& plan);

}  // namespace weighlock::reshard
