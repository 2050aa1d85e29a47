// The story of one run, a line an event. Off in ordinary runs: a failed seed is run again with it on.
#pragma once

#include <fmt/format.h>
#include <cstdio>

#include "sim/scheduler.hpp"

namespace weighlock::sim {

class Trace {
 public:
  Trace(const Scheduler& scheduler, std::FILE* to) : scheduler_(scheduler), to_(to) {}
  bool on() const { return to_ != nullptr; }
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) const {
    if (to_ == nullptr) return;
    fmt::print(to_, "{:>6} {:>9} ms  ", scheduler_.steps(), scheduler_.now().ms);
    fmt::print(to_, format, std::forward<Args>(args)...);
    std::fputc('\n', to_);
    std::fflush(to_);  // a failed check of the machine aborts the process
  }

 private:
  const Scheduler& scheduler_;
  std::FILE* to_;
};

}  // namespace weighlock::sim
