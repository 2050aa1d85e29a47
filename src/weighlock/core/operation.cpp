#include "weighlock/core/operation.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace weighlock {
namespace {

template <typename E, std::size_t N>
using Names = std::array<std::pair<E, std::string_view>, N>;

constexpr Names<DialectKind, 2> kDialects{{{DialectKind::sglang, "sglang"}, {DialectKind::vllm, "vllm"}}};
constexpr Names<PauseMode, 4> kPauseModes{{{PauseMode::abort, "abort"},
                                           {PauseMode::keep, "keep"},
                                           {PauseMode::retract, "retract"},
                                           {PauseMode::wait, "wait"}}};
constexpr Names<Evidence, 6> kEvidence{{{Evidence::none, "none"},
                                        {Evidence::acknowledged, "acknowledged"},
                                        {Evidence::label, "label"},
                                        {Evidence::spot, "spot"},
                                        {Evidence::checksum, "checksum"},
                                        {Evidence::probe, "probe"}}};
constexpr Names<OperationKind, 14> kOperations{{{OperationKind::identify, "identify"},
                                                {OperationKind::read_state, "read_state"},
                                                {OperationKind::pause, "pause"},
                                                {OperationKind::set_label, "set_label"},
                                                {OperationKind::load, "load"},
                                                {OperationKind::load_empty, "load_empty"},
                                                {OperationKind::flush, "flush"},
                                                {OperationKind::verify, "verify"},
                                                {OperationKind::resume, "resume"},
                                                {OperationKind::probe, "probe"},
                                                {OperationKind::barrier, "barrier"},
                                                {OperationKind::load_adapter, "load_adapter"},
                                                {OperationKind::unload_adapter, "unload_adapter"},
                                                {OperationKind::list_adapters, "list_adapters"}}};
constexpr Names<OutcomeKind, 6> kOutcomes{{{OutcomeKind::ok, "ok"},
                                           {OutcomeKind::untouched, "untouched"},
                                           {OutcomeKind::touched, "touched"},
                                           {OutcomeKind::mismatch, "mismatch"},
                                           {OutcomeKind::unknown, "unknown"},
                                           {OutcomeKind::not_sent, "not_sent"}}};

template <typename E, std::size_t N>
std::string_view to_name(const Names<E, N>& names, E value) {
  for (const auto& [candidate, text] : names) {
    if (candidate == value) return text;
  }
  return "unknown";
}

template <typename E, std::size_t N>
std::optional<E> from_name(const Names<E, N>& names, std::string_view text) {
  for (const auto& [candidate, candidate_text] : names) {
    if (candidate_text == text) return candidate;
  }
  return std::nullopt;
}

}  // namespace

bool DialectTraits::has_barrier(OperationKind earlier, PauseMode mode) const {
  if (earlier == OperationKind::pause && mode == PauseMode::wait && !barrier_covers_pause_wait) return false;
  return std::find(barriers.begin(), barriers.end(), earlier) != barriers.end();
}

std::string_view name(DialectKind kind) {
  return to_name(kDialects, kind);
}
std::string_view name(PauseMode mode) {
  return to_name(kPauseModes, mode);
}
std::string_view name(Evidence evidence) {
  return to_name(kEvidence, evidence);
}
std::string_view name(OperationKind kind) {
  return to_name(kOperations, kind);
}
std::string_view name(OutcomeKind kind) {
  return to_name(kOutcomes, kind);
}
std::optional<DialectKind> dialect_from(std::string_view text) {
  return from_name(kDialects, text);
}
std::optional<PauseMode> pause_mode_from(std::string_view text) {
  return from_name(kPauseModes, text);
}
std::optional<Evidence> evidence_from(std::string_view text) {
  return from_name(kEvidence, text);
}

}  // namespace weighlock
