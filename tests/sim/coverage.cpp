#include "sim/coverage.hpp"

#include <fmt/format.h>
#include <string_view>

namespace weighlock::sim {
namespace {

constexpr std::string_view kFaultNames[] = {
    "refuse",        "lose_request", "late_request",   "lose_answer",   "late_answer",   "duplicate",
    "partition",     "deny",         "reject",         "tear",          "lie",           "new_but_failed",
    "die_in_load",   "restart",      "never_back",     "slow",          "freeze",        "stuck",
    "flush_busy",    "old_label",    "foreign_resume", "foreign_pause", "foreign_label", "save_fail",
    "save_late",     "save_never",   "save_reset",     "save_refuse",   "disk_full",     "bad_checkpoint",
    "layout_change", "slow_store",   "digest_fail",    "slow_journal",  "told_twice",    "slow_epochs",
    "epochs_fail",   "group_fails",  "group_late",     "group_never",   "group_lost",    "replaced"};
static_assert(std::size(kFaultNames) == kFaults);

constexpr std::string_view kStepNames[] = {"surveying",
                                           "surveyed",
                                           "pausing",
                                           "paused",
                                           "labelling",
                                           "assembling",
                                           "loading",
                                           "answered",
                                           "asking",
                                           "labelling_version",
                                           "flushing",
                                           "adapter_unloading",
                                           "adapter_loading",
                                           "verifying",
                                           "adapter_listing",
                                           "repausing",
                                           "judged",
                                           "barrier",
                                           "cache_resuming",
                                           "heal_reading",
                                           "heal_pausing",
                                           "heal_labelling",
                                           "heal_loading",
                                           "heal_emptying",
                                           "heal_reloading",
                                           "heal_labelling_version",
                                           "heal_flushing",
                                           "heal_verifying",
                                           "former_label",
                                           "resuming",
                                           "resume_waiting",
                                           "checking",
                                           "flushing_after",
                                           "probing",
                                           "fencing",
                                           "adapter_undoing",
                                           "done"};

static_assert(std::size(kStepNames) == kSteps);

void line(std::string_view what, std::string_view name, std::uint64_t count) {
  fmt::print("{:>10} {:<24}{:>12}\n", what, name, count);
}

}  // namespace

std::string_view name_of_step(std::size_t step) {
  return kStepNames[step];
}

std::string_view name(Fault fault) {
  return kFaultNames[static_cast<std::size_t>(fault)];
}

bool report(const Coverage& coverage) {
  bool all = true;
  fmt::print(
      "{} runs, {} events; {} ended by a shutdown; the gateway died {} times, its journal lost its tail "
      "{} times\n",
      coverage.runs, coverage.actions, coverage.stopped, coverage.deaths, coverage.tails_lost);
  fmt::print(
      "{} runs with two gateways: {} takeovers of a pair ({} of LoRA pairs), one stood still {} times, {} calls of one "
      "that had lost the pair came behind a barrier, {} about adapters behind a change\n",
      coverage.rivals, coverage.taken_over, coverage.lora_taken_over, coverage.stood_still, coverage.stragglers,
      coverage.adapter_stragglers);
  fmt::print("{} runs with transfer groups: {} collectives, {} ended well, {} steps around them\n",
             coverage.with_groups, coverage.collectives, coverage.collectives_well, coverage.hand_overs);
  all = all && coverage.collectives_well > 0 && coverage.hand_overs > 0;
  for (std::size_t i = static_cast<std::size_t>(protocol::UpdateState::succeeded); i < kUpdateStates; ++i) {
    line("ended", name(static_cast<protocol::UpdateState>(i)), coverage.ended[i]);
    all = all && coverage.ended[i] > 0;
  }
  for (std::size_t i = static_cast<std::size_t>(protocol::UpdateState::preparing);
       i < static_cast<std::size_t>(protocol::UpdateState::succeeded); ++i) {
    line("phase", name(static_cast<protocol::UpdateState>(i)), coverage.phases[i]);
    all = all && coverage.phases[i] > 0;
  }
  for (std::size_t i = 0; i < kSteps; ++i) {
    line("step", kStepNames[i], coverage.steps[i]);
    all = all && coverage.steps[i] > 0;
  }
  for (std::size_t i = 0; i < kWorkerStates; ++i)
    line("worker", name(static_cast<protocol::WorkerState>(i)), coverage.workers[i]);
  for (std::size_t i = 0; i < kWorkerStates; ++i)
    line("died as", name(static_cast<protocol::WorkerState>(i)), coverage.died_in[i]);
  for (std::size_t i = 0; i < kOperations; ++i)
    line("operation", name(static_cast<OperationKind>(i)), coverage.operations[i]);
  for (std::size_t i = 0; i < kFaults; ++i) {
    line("fault", name(static_cast<Fault>(i)), coverage.faults[i]);
    const auto fault = static_cast<Fault>(i);
    const bool of_epochs = fault == Fault::slow_epochs || fault == Fault::epochs_fail;  // the test keeps none
    all = all && (coverage.faults[i] > 0 || of_epochs);
  }
  return all;
}

}  // namespace weighlock::sim
