// Why an update ended as it did (or what goes on in it), in one line that a person on call can act on: pair, version,
// worker, phase, the engine's own words. Never empty, bounded. Pure.
#pragma once

#include <string>

#include "weighlock/core/error.hpp"
#include "weighlock/protocol/state.hpp"

namespace weighlock {

// "pair 'actor' v6: degraded: 2/3 ready; worker http://...: load: 400 \"...\"; quarantined (load_failed); committed:
// true"
std::string ended_text(const protocol::State& state, const protocol::Update& update);

// The code of the error table for an ended update that didn't succeed.
ErrorCode ended_code(const protocol::Update& update);

// "pair 'actor' v6: still in loading after 280.0 s (1/3 verified); it goes on, and a next update waits behind it;
// committed: ..."
std::string running_text(const protocol::Update& update, Milliseconds waited);

// "pair=actor v41->v42 ok workers=8/8 save=3.1s verify=0.4s pause=0.42s slowest=http://..."
std::string log_line(const protocol::State& state, const protocol::Update& update, Instant now);
// A worker that was brought back between updates, or could not be, in one line.
std::string join_line(const protocol::Update& join);

}  // namespace weighlock
