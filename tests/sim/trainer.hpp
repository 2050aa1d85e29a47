// The training ranks of one pair. A save is a collective: it ends only when every expected rank was called; when one
// fails the others hang in it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/plan.hpp"
#include "sim/store.hpp"
#include "sim/trace.hpp"

namespace weighlock::sim {

class TrainerGroup {
 public:
  using Post = std::function<void(protocol::SaveEnded)>;
  TrainerGroup(Random& random, Faults& faults, Scheduler& scheduler, Store& store, const Trace& trace, Post post);

  // The next save that is asked for: refused, or failed, or done and not answered.
  void fail_next(Mishap mishap) { mishap_ = mishap; }
  // `ranks`: how many take part in one save (one, when only rank 0 is asked).
  void save(const protocol::TriggerSave& effect, int ranks);
  // Answered once the rank is in no save.
  void ask(const protocol::AskTrainer& effect);

 private:
  struct Collective {
    std::vector<protocol::CallId> waiting;  // ranks that are in it
    int called = 0;
    bool broken = false;  // a rank failed: nobody comes out by itself
  };
  void end(protocol::CallId call, protocol::SaveOutcomeKind kind, std::string text, std::int64_t after);
  void complete(const std::string& directory, int ranks);
  void hang(protocol::CallId call);
  void ended(protocol::CallId call, protocol::SaveOutcomeKind kind, const std::string& text);

  Random& random_;
  Faults& faults_;  // of its pair
  Scheduler& scheduler_;
  Store& store_;
  const Trace& trace_;
  Post post_;
  Mishap mishap_ = Mishap::none;
  std::map<std::string, Collective> collectives_;    // by directory
  std::map<protocol::CallId, std::string> running_;  // saves that haven't ended, and whose they are
  std::vector<protocol::AskTrainer> asked_;
};

}  // namespace weighlock::sim
