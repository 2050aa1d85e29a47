// Everything that a state says, as text, but the times: two states with one text decide alike.
#pragma once

#include <string>

#include "weighlock/protocol/state.hpp"

namespace weighlock::sim {

std::string dump(const protocol::State& state);

}  // namespace weighlock::sim
