// Which trainers are in which transfer group. A trainer is in one at a time: a teardown that comes late would end the
// group that was built since.
//
// Thread rule: loop thread only. Owned by AwexGroups; callbacks are never called after the end of this.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/awex_calls.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {

class AwexTrainers {
 public:
  using Urls = std::vector<std::string>;
  using BuildId = std::uint64_t;

  AwexTrainers(Loop& loop, AwexCalls& calls) : loop_(loop), calls_(calls) {}
  ~AwexTrainers();
  AwexTrainers(const AwexTrainers&) = delete;
  AwexTrainers& operator=(const AwexTrainers&) = delete;

  // Runs `next` when none of them is in another build, or still leaves a group. They are the build's then.
  void when_free(BuildId build, Urls trainers, std::function<void()> next);
  // The build has ended.
  void give_back(BuildId build, const Urls& trainers);
  // They are asked to join.
  void joining(const std::string& group, const Urls& trainers);
  // Those whose last group it was are told to leave; others have left it by joining another. Whoever joined none in
  // this process may be in one of the process before: told, too.
  void leave(const std::string& group, const Urls& trainers);
  // Not free until as often let go: it has not answered what it was asked in a group that no teardown ends.
  void hold(const std::string& trainer) { leaving_.insert(trainer); }
  void let_go(const std::string& trainer);
  // Once, when none of them still leaves a group, or after `at_most`; with those that do.
  void when_left(Urls trainers, Milliseconds at_most, std::function<void(const Urls& still)> then);

 private:
  struct Waiting {  // for trainers
    BuildId build;
    Urls trainers;
    std::function<void()> next;
  };
  struct Leaving {  // waited for
    Urls trainers;
    std::function<void(const Urls&)> then;
    std::optional<Loop::TimerId> timer;
  };
  void someone_is_free();
  Urls still_leaving(const Urls& trainers) const;
  void end_leaving(std::uint64_t id);

  Loop& loop_;
  AwexCalls& calls_;
  std::multiset<std::string> leaving_;         // their teardown hasn't been answered, or they are held
  std::map<std::string, std::string> joined_;  // trainer -> the group that it was last asked to join
  std::map<std::string, BuildId> built_;       // trainer -> the build that it is in
  std::vector<Waiting> waiting_;
  std::map<std::uint64_t, Leaving> leavings_;
  std::uint64_t next_leaving_ = 0;
};

}  // namespace weighlock
