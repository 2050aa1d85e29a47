// What the runs have reached: plain counters, so that they can live in memory shared with the process that runs the
// seeds.
#pragma once

#include <cstdint>

#include "sim/fault.hpp"
#include "weighlock/protocol/state.hpp"

namespace weighlock::sim {

inline constexpr std::size_t kUpdateStates = static_cast<std::size_t>(protocol::UpdateState::failed) + 1;
inline constexpr std::size_t kWorkerStates = static_cast<std::size_t>(protocol::WorkerState::abandoned) + 1;
inline constexpr std::size_t kSteps = static_cast<std::size_t>(protocol::Step::done) + 1;
inline constexpr std::size_t kOperations = static_cast<std::size_t>(OperationKind::list_adapters) + 1;

struct Coverage {
  std::uint64_t runs = 0;
  std::uint64_t actions = 0;  // of all schedulers
  std::uint64_t ended[kUpdateStates] = {};
  std::uint64_t phases[kUpdateStates] = {};
  std::uint64_t workers[kWorkerStates] = {};
  std::uint64_t steps[kSteps] = {};
  std::uint64_t operations[kOperations] = {};
  std::uint64_t faults[kFaults] = {};
  std::uint64_t stopped = 0;          // runs that ended by Shutdown
  std::uint64_t deaths = 0;           // of the gateway
  std::uint64_t undetected_lies = 0;  // loads that lied beyond the evidence that was asked
};

// Prints the table. True if every terminal state, phase, step and fault was reached at least once.
bool report(const Coverage& coverage);

}  // namespace weighlock::sim
