// One gateway of a world: the real driver and the real machine on a journal of their own, with clients of their own;
// and how its process dies, is stopped and goes on, and starts again (deaths.cpp).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <unordered_set>
#include <vector>

#include "sim/clients.hpp"
#include "sim/epochs.hpp"
#include "sim/invariants.hpp"
#include "sim/network.hpp"
#include "sim/plan.hpp"
#include "sim/scenario.hpp"
#include "sim/trainer.hpp"
#include "sim/transfers.hpp"
#include "weighlock/protocol/driver.hpp"

namespace weighlock::sim {

inline constexpr int kDeathsMax = 3;  // of a gateway, in one run

// What all gateways of a world share.
struct Around {
  Coverage& coverage;
  Random& random;
  Faults& faults;
  Faults& no_faults;  // for what belongs to a calm pair
  Scheduler& scheduler;
  const Trace& trace;
  const Scenario& scenario;
  Store& store;
  Network& network;
  Transfers& transfers;
  Epochs& epochs;
  std::vector<std::unique_ptr<TrainerGroup>>& trainers;  // one per pair
  const Plan* plan;
};

class Gateway final : public protocol::Ports {
 public:
  Gateway(std::size_t index, const Around& around);
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  // Of the world: before the run begins.
  void schedule_deaths();
  void schedule_stops();
  void act(const ClientAction& action);
  void post(protocol::EventBody event);
  // After each step of the world.
  void check();
  // "" when it has come to rest as it must.
  std::string unsettled() const { return dying_ ? "it dies" : invariants_.unsettled(); }
  // Somebody else took the pair, or lost it to this one.
  void pair_taken(const std::string& pair) { invariants_.pair_taken(pair); }
  void disturbed(const std::string& url) { invariants_.disturbed(url); }
  void adapter_disturbed(const std::string& url, const std::string& adapter) {
    invariants_.adapter_disturbed(url, adapter);
  }
  void check_planned_end() const { invariants_.check_planned_end(); }
  bool stopped() const { return invariants_.stopped(); }
  bool plan_reached() const { return plan_reached_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  const protocol::State& state() const { return driver_->state(); }

  Instant now() const override { return scheduler_.now(); }
  void append(std::vector<protocol::Record> group, std::function<void()> durable) override;
  void perform(protocol::Effect effect) override;
  void records_held() override;
  void stepping(const protocol::State& state, const protocol::Event& event) override;

 private:
  enum class Fate { goes_on, dies_before, dies_after, fails };
  void fold(std::uint64_t value);
  void tell(const protocol::Effect& effect) const;
  void tell(const protocol::EventBody& event) const;
  void perform_call(const protocol::Call& call, Mishap mishap);
  void perform_save(const protocol::TriggerSave& save, Mishap mishap);
  void perform_epochs(const protocol::Effect& effect);
  void perform_groups(const protocol::Effect& effect, Mishap mishap);
  // `dies`: only some of its members are asked.
  void run_transfer(const protocol::RunTransfer& run, Mishap mishap, bool dies);
  void act_soon(std::size_t pair, std::int64_t within);
  void start_timer(const protocol::StartTimer& timer);
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
  protocol::State first_state();
  protocol::State replayed();
  // While it stands still what comes waits; it is looked at when the process goes on.
  void stand_still();
  void go_on();
  void when_awake(std::function<void()> work);
  // Its operator has it, and the pause that it may have: to the other gateway it is a stranger's.
  void let_go(const std::string& url);
  void check_rivalry(const protocol::Call& call) const;
  void check_knows() const;
  void check_commits(const std::vector<protocol::Record>& group) const;
  bool may_not_know(const std::string& pair) const;

  const std::size_t index_;
  Coverage& coverage_;
  Random& random_;
  Faults& faults_;
  Faults& no_faults_;
  Scheduler& scheduler_;
  const Trace& trace_;
  const Scenario& scenario_;
  Store& store_;
  Network& network_;
  Transfers& transfers_;
  Epochs& epochs_;
  std::vector<std::unique_ptr<TrainerGroup>>& trainers_;
  const Plan* plan_;
  Clients clients_;
  Invariants invariants_;
  Random death_dice_;                      // of its own: a run without deaths is what it was before there were any
  Random moment_dice_;                     // likewise: who comes in moments that are short
  std::vector<protocol::Record> journal_;  // durable
  std::vector<std::size_t> group_ends_;    // in it
  std::vector<protocol::Record> group_on_its_way_;
  std::unique_ptr<protocol::Driver> driver_;
  unsigned death_permille_ = 0;  // per group
  unsigned effect_death_permille_ = 0;
  int lives_left_ = 0;
  bool loses_tails_ = false;
  std::uint64_t places_ = 0;
  bool plan_reached_ = false;
  bool plan_began_ = false;  // the death that comes first is over
  int life_ = 0;
  bool dying_ = false;
  int effects_left_ = 0;  // while it dies
  bool stands_still_ = false;
  std::deque<std::function<void()>> later_;  // what came meanwhile
  Instant stood_since_;
  Instant awake_since_;
  Instant stepped_at_;  // the last step
  Instant decided_at_;  // the step from which the effects follow that are performed now
  std::unordered_set<protocol::TimerId> timers_;
  std::map<protocol::CallId, std::pair<protocol::Call, Mishap>> parts_;  // workers', in the collective that follows
  bool appending_ = false;
  std::uint64_t fingerprint_ = 0xcbf29ce484222325ULL;
};

}  // namespace weighlock::sim
