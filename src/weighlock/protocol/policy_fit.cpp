#include "weighlock/protocol/policy_fit.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weighlock::protocol {
namespace {

// "'abort', 'keep' or 'retract'"
std::string one_of(const std::vector<PauseMode>& modes) {
  std::string out;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const std::string_view between = i == 0 ? "" : i + 1 == modes.size() ? " or " : ", ";
    out += fmt::format("{}'{}'", between, name(modes[i]));
  }
  return out;
}

}  // namespace

std::optional<std::string> why_unprovable(const Policy& policy, const DialectTraits& traits, std::string_view worker,
                                          Files files) {
  // A probe is made on a running engine, after the commit: every dialect has it.
  if (!policy.evidence || *policy.evidence == Evidence::probe) return std::nullopt;
  const bool seen = files == Files::seen;
  const Evidence best = seen ? traits.evidence_best : std::min(Evidence::label, traits.evidence_best);
  if (*policy.evidence <= best) return std::nullopt;
  return fmt::format(
      "worker {}: evidence '{}' can't be had of {}{}, the best is '{}': ask for that or less "
      "(settings.evidence), or remove the worker",
      worker, name(*policy.evidence), name(traits.kind), seen ? "" : " where no files can be compared with it",
      name(best));
}

std::optional<std::string> why_unfit(const Policy& policy, const DialectTraits& traits, std::string_view worker,
                                     Files files) {
  const auto& modes = traits.pause_modes;
  const bool has_mode = std::find(modes.begin(), modes.end(), policy.pause_mode) != modes.end();
  if (policy.pause == PauseOwner::gateway && !has_mode)
    return fmt::format("worker {}: {} has no pause mode '{}': set settings.pause_mode to {}, or remove the worker",
                       worker, name(traits.kind), name(policy.pause_mode), one_of(modes));
  return why_unprovable(policy, traits, worker, files);
}

}  // namespace weighlock::protocol
