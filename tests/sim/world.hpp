// One seed's world: the real machine and the real driver among simulated engines, trainers, storage, journal and
// clients.
//
// The fault model. Everything that this list doesn't name doesn't go wrong here.
// * Network, per request: refused, lost, late, delivered though the caller saw a reset; per answer: lost, late. No
// route
//   to an engine for a while. Requests of a connection that was reset don't arrive after a later one was
//   answered.
// * Engines: an operation is slow, is refused and changes nothing, or (loads) fails untouched, fails torn, answers ok
// and
//   did nothing or half, answers an error and did it all, or kills the process. A process ends at any request and comes
//   back with another start time, its start weights and label, running; or it doesn't come back. Its scheduler freezes.
//   A torn vLLM-like engine dies at the first token; some heal only by an empty load, some not at all.
// * Others: a trainer continues engines that we paused, or pauses them before we do; a stranger writes a label.
// * Trainers: a rank refuses, fails (and the others hang in the collective), is late, never answers, or saved and its
//   answer is lost.
// * Storage: no space, no whole checkpoint, another layout, slow, no digest. Blind: nothing can be inspected.
// * Journal: slow. After a death its last groups may be gone (as with a page cache that was never written): then
// nothing
//   is expected of a worker before its next load, but that no call is made that couldn't be and all comes to rest.
// * The gateway: dies before or after any append and any effect, or between two events; the group that was on its way
//   is lost or durable. The next process starts at once on what is durable; its wall clock says what it likes. In two
//   of three runs, where no pair is calm.
// * Clients: ask twice, with the same key or without, again after a death of the gateway, for the same or a lower
// version, cancel, connect again, remove, want another
//   pair's worker, and stop the gateway at any time.
// Then faults stop, and what must come true is waited for.
#pragma once

#include <cstdio>
#include <memory>
#include <unordered_set>
#include <vector>

#include "sim/clients.hpp"
#include "sim/invariants.hpp"
#include "sim/network.hpp"
#include "sim/plan.hpp"
#include "sim/scenario.hpp"
#include "sim/trainer.hpp"
#include "weighlock/protocol/driver.hpp"

namespace weighlock::sim {

inline constexpr int kDeathsMax = 3;  // of the gateway, in one run

class World final : public protocol::Ports {
 public:
  // `story`: where each event is told, or null. With a plan, nothing goes wrong but what it says.
  World(std::uint64_t seed, Coverage& coverage, std::FILE* story, const Plan* plan = nullptr);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run();  // throws Violation
  std::uint64_t steps() const { return scheduler_.steps(); }
  // Of the kinds and times of all events and effects so far: equal for two runs of one seed.
  std::uint64_t fingerprint() const { return fingerprint_; }
  // Whether the run came to the place that the plan names.
  bool plan_reached() const { return plan_reached_; }

  Instant now() const override { return scheduler_.now(); }
  void append(std::vector<protocol::Record> group, std::function<void()> durable) override;
  void perform(protocol::Effect effect) override;
  void records_held() override;
  void stepping(const protocol::State& state, const protocol::Event& event) override;

 private:
  enum class Fate { goes_on, dies_before, dies_after, fails };
  void post(protocol::EventBody event);
  void fold(std::uint64_t value);
  void tell(const protocol::Effect& effect) const;
  void tell_scenario() const;
  void perform_call(const protocol::Call& call, Mishap mishap);
  void perform_save(const protocol::TriggerSave& save, Mishap mishap);
  void start_timer(const protocol::StartTimer& timer);
  void act(const ClientAction& action);
  void on_group_durable(const std::vector<protocol::Record>& group, const std::function<void()>& durable, bool dies,
                        int effects);
  // What the plan, or the dice of deaths, say of this place.
  Fate fate();
  Fate planned_fate();
  bool in_planned_time() const;
  // The process ends when what it does now is over; of that, `effects` more are performed.
  void doom(int effects);
  // The process ends here, and another starts on the durable records.
  void die();
  void lose_tail();
  protocol::State replayed();
  void schedule_deaths();
  void schedule_strangers();
  void look_at_engines();
  void schedule_restarts();
  Instant patience() const;

  Coverage& coverage_;
  Random random_;
  Faults faults_;
  Faults no_faults_;  // for what belongs to a calm pair
  Scheduler scheduler_;
  Trace trace_;
  Scenario scenario_;
  Store store_;
  Network network_;
  std::vector<std::unique_ptr<TrainerGroup>> trainers_;  // one per pair
  Clients clients_;
  Invariants invariants_;
  std::unique_ptr<protocol::Driver> driver_;
  Random death_dice_;            // of its own: a run without deaths is what it was before there were any
  unsigned death_permille_ = 0;  // per group
  unsigned effect_death_permille_ = 0;
  int lives_left_ = 0;
  bool loses_tails_ = false;
  std::vector<protocol::Record> journal_;  // durable
  std::vector<std::size_t> group_ends_;    // in it
  std::vector<protocol::Record> group_on_its_way_;
  const Plan* plan_ = nullptr;
  std::uint64_t places_ = 0;
  bool plan_reached_ = false;
  bool plan_began_ = false;  // the death that comes first is over
  std::vector<bool> was_alive_;
  int life_ = 0;
  bool dying_ = false;
  int effects_left_ = 0;  // while it dies
  std::unordered_set<protocol::TimerId> timers_;
  bool appending_ = false;
  std::uint64_t fingerprint_ = 0xcbf29ce484222325ULL;
};

}  // namespace weighlock::sim
