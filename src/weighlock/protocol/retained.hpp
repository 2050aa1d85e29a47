// What of a pair's stored versions is needed, and by whom: for retention and for whoever shows it. Pure.
#pragma once

#include <string>
#include <vector>

#include "weighlock/protocol/state.hpp"

namespace weighlock::protocol {

// What retention would delete now, or forget if it was handed over; oldest first. Nothing while a load may still run
// somewhere. What was rolled back waits for the next commit, unless an operator asks for it.
std::vector<StoredVersion> removable_versions(const State& state, const Pair& pair, bool operator_asks);
// Who needs a stored version, in words for people: "committed", "last good", a worker's URL, an update's id.
std::vector<std::string> leases_of(const State& state, const Pair& pair, const VersionRef& version);

}  // namespace weighlock::protocol
