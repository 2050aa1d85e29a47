// The kinds of faults, how often each strikes in a run, and what a run is told about them.
//
// A run draws a few kinds and a rate for each (swarm testing: runs with few kinds reach deeper than runs with all).
// After `stop()` nothing new goes wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "sim/random.hpp"

namespace weighlock::sim {

enum class Fault : std::uint8_t {
  // the network between the gateway and an engine
  refuse,        // connection refused: not sent
  lose_request,  // the request never arrives; the caller sees a reset, or nothing
  late_request,  // it arrives after the caller's patience
  lose_answer,   // it took effect; the caller sees a reset, or nothing
  late_answer,
  duplicate,  // it is delivered twice, one behind the other
  partition,  // no route for a while
  // engines
  deny,            // our key isn't taken, once
  reject,          // an operation fails and changes nothing (vLLM: a failed load is touched even so)
  tear,            // a load fails half way
  lie,             // a load answers ok, and the weights are the old ones or a mix
  new_but_failed,  // a load answers an error, and the weights are new
  die_in_load,
  restart,     // the process ends at any operation and comes back with its start weights, running
  never_back,  // ... and doesn't come back while faults last
  slow,
  freeze,
  stuck,       // a wrong shape: no load helps until a new process
  flush_busy,  // a flush is refused because requests run
  old_label,   // a reading shows the label before the present one
  // other people
  foreign_resume,
  foreign_pause,
  foreign_label,
  // trainers and storage
  save_fail,
  save_late,
  save_never,
  save_reset,  // it saved; the answer is lost
  save_refuse,
  disk_full,
  bad_checkpoint,
  layout_change,
  slow_store,
  digest_fail,
  // the gateway's own disk, and the edge
  slow_journal,
  told_twice,  // the machine hears an answer twice
  // the files of epochs, where they are kept
  slow_epochs,
  epochs_fail,
  // transfer groups, where there are any
  group_fails,  // a bring-up fails; a teardown is lost
  group_late,
  group_never,  // a bring-up is answered by its time-out only
  group_lost,   // a trainer has a new process, which is in no group
  // engines, where every policy is for both dialects
  replaced,  // the process that comes back is the other engine's
  count_,
};
inline constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::count_);

std::string_view name(Fault fault);

class Faults {
 public:
  Faults(Random& random, std::uint64_t* counts) : random_(random), counts_(counts) {}
  void set_rate(Fault fault, unsigned permille) { rates_[static_cast<std::size_t>(fault)] = permille; }
  bool enabled(Fault fault) const { return on_ && rates_[static_cast<std::size_t>(fault)] > 0; }
  void stop() { on_ = false; }
  bool on() const { return on_; }
  // Draws: does `fault` strike here?
  bool strikes(Fault fault) {
    const unsigned rate = rates_[static_cast<std::size_t>(fault)];
    if (!on_ || rate == 0 || !random_.chance(rate)) return false;
    ++counts_[static_cast<std::size_t>(fault)];
    return true;
  }

 private:
  Random& random_;
  std::uint64_t* counts_;  // of kFaults; the coverage of all runs
  std::array<unsigned, kFaults> rates_{};
  bool on_ = true;
};

}  // namespace weighlock::sim
