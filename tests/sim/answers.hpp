// How a simulated engine answers.
#pragma once

#include <string>
#include <utility>

#include "weighlock/core/operation.hpp"

namespace weighlock::sim {

inline Outcome ok() {
  Outcome outcome;
  outcome.kind = OutcomeKind::ok;
  return outcome;
}

inline Outcome failed(OutcomeKind kind, std::string text) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.text = std::move(text);
  return outcome;
}

}  // namespace weighlock::sim
