// That no two shards of a side lie in one place of memory: what is received there would be written twice.
//
// Pure; any thread. Internal to the planner and the proof.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/layout.hpp"

namespace weighlock::reshard {

// Looks at the elements that are received (not at padding). Exact for any strides: whether two strided parts share an
// element is an equation in whole numbers, and strides that step over each other leave few candidates in each
// dimension. Errors: invalid_argument with both shards and their local tensor; too_large for parts so entangled that a
// thousand steps don't tell.
Status check_disjoint_storage(const Side& side);

// Whether two elements of one strided part lie in one place; none if a thousand steps don't tell. Strides are positive,
// extents too, and all positions below kBufferElementsMax.
std::optional<bool> meets_itself(std::span<const std::int64_t> strides, std::span<const std::uint64_t> extent);

}  // namespace weighlock::reshard
