// What a gateway leaves behind, and what `weighlock finish` made of it. Pure, over the machine's state.
#pragma once

#include <string>
#include <vector>

#include "weighlock/protocol/state.hpp"

namespace weighlock {

// The workers of which an update that isn't at its end may have paused one, and whatever else is held paused by us.
struct LeftWorker {
  std::string url;
  std::string pair;
  std::string was;  // "paused", "load sent", "quarantined", ...: before anything was done about it
  bool paused_by_us = false;
};
std::vector<LeftWorker> left_behind(const protocol::State& state);

// One line for the log: each pair with an update that isn't at its end, its phase, and the workers that are paused. ""
// when nothing is left.
std::string left_text(const protocol::State& state);

// A worker of `left_behind` and what became of it.
struct FinishedWorker {
  std::string url;
  std::string pair;
  std::string was;
  std::string now;    // the worker's state; "ready (v42)"
  std::string cause;  // "" for one that serves
  bool paused_by_us = false;
};
std::vector<FinishedWorker> finished(const std::vector<LeftWorker>& before, const protocol::State& state);

}  // namespace weighlock
