// The machine: every decision of the gateway, as a function of what it knows and what happened.
//
// Pure: no I/O, no clock, no threads, no randomness. Driver (driver.hpp) runs it; nothing else calls `step`.
// A (state, event) pair that can't happen is a bug: `step` reports it by a failed check in the simulator's builds
// (WEIGHLOCK_STRICT_MACHINE) and by a record `internal_error` otherwise; the phase's deadline then ends what waits.
#pragma once

#include "weighlock/core/operation.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"
#include "weighlock/protocol/state.hpp"

namespace weighlock::protocol {

// What the machine must know of the dialects; engines/ provides it, the machine doesn't depend on engines/.
struct Dialects {
  DialectTraits sglang;
  DialectTraits vllm;
  const DialectTraits& of(DialectKind kind) const { return kind == DialectKind::sglang ? sglang : vllm; }
};

Effects step(State& state, const Dialects& dialects, const Event& event);

}  // namespace weighlock::protocol
