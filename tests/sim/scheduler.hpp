// Simulated time: a queue of actions in the order (time, number of arrival). Nothing here reads a clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "weighlock/core/time.hpp"

namespace weighlock::sim {

class Scheduler {
 public:
  using Action = std::function<void()>;

  Instant now() const { return now_; }
  std::uint64_t steps() const { return steps_; }
  bool empty() const { return heap_.empty(); }

  void at(Instant when, Action action) {
    heap_.push_back(Entry{std::max(when, now_), next_++, std::move(action)});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  void after(std::int64_t ms, Action action) { at(Instant{now_.ms + ms}, std::move(action)); }

  // Runs the next action; the queue must not be empty.
  void run_one() {
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    now_ = entry.when;
    ++steps_;
    entry.action();
  }

 private:
  struct Entry {
    Instant when;
    std::uint64_t number;
    Action action;
  };
  struct Later {
    bool operator()(const Entry& a, const Entry& b) const {
      return a.when == b.when ? a.number > b.number : a.when > b.when;
    }
  };

  Instant now_;
  std::uint64_t next_ = 0;
  std::uint64_t steps_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace weighlock::sim
