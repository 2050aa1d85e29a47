// What the runs have reached: plain counters, so that they can live in memory shared with the process that runs the
// seeds.
#pragma once

#include <cstdint>
#include <variant>

#include "sim/fault.hpp"
#include "weighlock/protocol/state.hpp"

namespace weighlock::sim {

inline constexpr std::size_t kUpdateStates = static_cast<std::size_t>(protocol::UpdateState::failed) + 1;
inline constexpr std::size_t kWorkerStates = static_cast<std::size_t>(protocol::WorkerState::abandoned) + 1;
inline constexpr std::size_t kSteps = static_cast<std::size_t>(protocol::Step::done) + 1;
inline constexpr std::size_t kOperations = static_cast<std::size_t>(OperationKind::list_adapters) + 1;

inline constexpr std::size_t kOutcomes = static_cast<std::size_t>(OutcomeKind::not_sent) + 1;
inline constexpr std::size_t kEvents = std::variant_size_v<protocol::EventBody>;
inline constexpr std::size_t kAnswerRows = kSteps + 4;
inline constexpr std::size_t kEventRows = kUpdateStates + 1;
inline constexpr std::size_t kPurposes = 13;
inline constexpr std::size_t kTimerRows = kUpdateStates * kPurposes + kSteps + 2;

struct Coverage {
  std::uint64_t runs = 0;
  std::uint64_t actions = 0;  // of all schedulers
  std::uint64_t ended[kUpdateStates] = {};
  std::uint64_t phases[kUpdateStates] = {};
  std::uint64_t workers[kWorkerStates] = {};
  std::uint64_t steps[kSteps] = {};
  std::uint64_t operations[kOperations] = {};
  std::uint64_t faults[kFaults] = {};
  std::uint64_t stopped = 0;                  // runs that ended by Shutdown
  std::uint64_t deaths = 0;                   // of the gateway
  std::uint64_t tails_lost = 0;               // of the journal
  std::uint64_t rivals = 0;                   // runs with two gateways
  std::uint64_t taken_over = 0;               // pairs, from another gateway
  std::uint64_t stood_still = 0;              // gateways
  std::uint64_t stragglers = 0;               // calls of a former owner, too late to be noticed
  std::uint64_t lora_taken_over = 0;          // of `taken_over`
  std::uint64_t adapter_stragglers = 0;       // likewise, about adapters
  std::uint64_t died_in[kWorkerStates] = {};  // processes of workers, by what the machine thought of them
  std::uint64_t with_groups = 0;              // runs
  std::uint64_t collectives = 0;
  std::uint64_t collectives_well = 0;
  std::uint64_t hand_overs = 0;  // steps around the collectives of colocated pairs
  // pairs.hpp
  std::uint64_t answers[kAnswerRows][kOutcomes] = {};
  std::uint64_t events[kEventRows][kEvents] = {};
  std::uint64_t timers[kTimerRows] = {};
  std::uint64_t undetected_lies = 0;  // loads that lied beyond the evidence that was asked
};

std::string_view name_of_step(std::size_t step);

// Prints the table. True if every terminal state, phase, step and fault was reached at least once.
bool report(const Coverage& coverage);

}  // namespace weighlock::sim
