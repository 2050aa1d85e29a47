// Whether the workers are those whom the ranks need: each rank once, in order, in a world of one size.
//
// Private to this folder; pure.
#pragma once

#include <vector>

#include "weighlock/awex/problems.hpp"
#include "weighlock/awex/repair.hpp"

namespace weighlock::awex {

void check_train_workers(const std::vector<Report>& train, const Topology& topology, Problems& problems);
void check_engines(const std::vector<Report>& infer, const Topology& topology, Problems& problems);

}  // namespace weighlock::awex
