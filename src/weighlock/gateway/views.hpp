// The machine's state as the JSON of the API. Pure: state, clock readings in; values out. Loop thread, as the state is.
#pragma once

#include <string>
#include <string_view>

#include "weighlock/core/json.hpp"
#include "weighlock/gateway/wall_clock.hpp"
#include "weighlock/protocol/state.hpp"

namespace weighlock {

// What a view is made from; borrowed for one call.
struct ViewContext {
  const protocol::State& state;
  const WallClock& clock;
  Instant now;
};

// The name of a worker in paths: "10.0.0.7:30000" for a plain http URL, "https~host:port~prefix" for others.
std::string worker_id(std::string_view url);
// The worker of this pair with that id (or that URL); null: none.
const protocol::Worker* find_worker(const protocol::State& state, const protocol::Pair& pair, std::string_view id);

// The words of the API for a worker's state: fewer than the machine's.
std::string_view worker_state_word(protocol::WorkerState state);
// ... of a worker as it is now: `unknown` before it was read for the first time.
std::string_view worker_state_word(const protocol::Worker& worker);
// It should serve, and somebody else paused it. Nobody else where callers pause.
bool is_held_by_other(const protocol::Pair& pair, const protocol::Worker& worker);

// The longest time that rollouts of one worker stood still for this update.
Milliseconds pause_of(const protocol::Update& update, Instant now);

json::object worker_view(const ViewContext& context, const protocol::Worker& worker);
// LoRA: what one worker serves of the pair's adapter: {"version", "names", "missing", "cause"}.
json::object adapters_view(const ViewContext& context, const protocol::WorkerAdapters& adapters);
json::object update_view(const ViewContext& context, const protocol::Update& update);
// {"items": stored versions, newest first, "next": null, "committed", "last_good", "highest"}.
json::object versions_view(const ViewContext& context, const protocol::Pair& pair);
json::object pair_view(const ViewContext& context, const protocol::Pair& pair);
// {"url": {"verdict", "evidence", "cause"}}: the compatible answer's extra key.
json::object verdicts_view(const ViewContext& context, const protocol::Update& update);

}  // namespace weighlock
