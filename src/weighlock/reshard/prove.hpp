// Whether a plan is right, whoever made it.
//
// For each element that a target shard holds (padding apart): exactly one operation writes it, in the transfer or in
// the fan-out, from the same element of the same tensor in a shard of the sender; a fan-out reads what the transfer
// alone has written, on one host. No two target shards lie in one place of memory; the two ends of each pair list the
// same operations in the same order. Shares no code with the planner but boxes and sides.
//
// Pure; any thread. Time: about that of sorting the operations.
// Errors: internal, naming the tensor, the ranks, and the first hole, overlap or displaced part.
#pragma once

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/plan.hpp"

namespace weighlock::reshard {

Status prove(const Side& sources, const Side& targets, const Plan& plan);

}  // namespace weighlock::reshard
