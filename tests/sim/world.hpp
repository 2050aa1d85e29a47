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
//   Where all policies are for both kinds, the one that comes back may be the other: it answers 404 to what it has no
//   route for, which is all but labels.
// * Others: a trainer continues engines that we paused, or pauses them before we do; a stranger writes a label.
// * Trainers: a rank refuses, fails (and the others hang in the collective), is late, never answers, or saved and its
//   answer is lost.
// * Transfer groups: a bring-up fails, is late or is answered by its time-out only; a teardown is lost or late. In a
// collective
//   a member refuses, hangs, dies, is late, or its answer is lost; who lacks it is torn or whole (transfers.hpp). A
//   trainer has a new process, which is in no group.
// * Storage: no space, no whole checkpoint, another layout, slow, no digest. Blind: nothing can be inspected.
// * Journal: slow. After a death its last groups may be gone (as with a page cache that was never written): then
// nothing
//   is expected of a worker before its next load, but that no call is made that couldn't be and all comes to rest.
// * The gateway: dies before or after any append and any effect, or between two events; the group that was on its way
//   is lost or durable. The next process starts at once on what is durable; its wall clock says what it likes. In two
//   of three runs, where no pair is calm.
// * Two gateways (with `--rivals`): each with its own journal and clients, on one storage. Either dies, or stands
//   still and goes on later; the files of epochs are slow, or can't be written or read for once. What a gateway that
//   lost a pair had sent before may come behind the new owner's barrier: then nothing is expected of that engine before
//   its next load.
// * Clients: ask twice, with the same key or without, again after a death of the gateway, for the same or a lower
// version, cancel, connect again, remove, want another
//   pair's worker, and stop the gateway at any time.
// Then faults stop, and what must come true is waited for.
#pragma once

#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/epochs.hpp"
#include "sim/gateway.hpp"
#include "sim/network.hpp"
#include "sim/plan.hpp"
#include "sim/scenario.hpp"
#include "sim/trainer.hpp"
#include "sim/transfers.hpp"

namespace weighlock::sim {

class World {
 public:
  // `story`: where each event is told, or null. With a plan, nothing goes wrong but what it says.
  World(std::uint64_t seed, Coverage& coverage, std::FILE* story, const Plan* plan = nullptr);
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run();  // throws Violation
  std::uint64_t steps() const { return scheduler_.steps(); }
  // Of the kinds and times of all events and effects so far: equal for two runs of one seed.
  std::uint64_t fingerprint() const;
  // What each gateway knows, as text.
  void tell_states(std::FILE* story) const;
  // Whether the run came to the place that the plan names.
  bool plan_reached() const { return gateways_[0]->plan_reached(); }

 private:
  void tell_scenario() const;
  void schedule_all();
  void schedule_strangers();
  void schedule_restarts();
  void look_at_engines();
  void pair_taken(const std::string& pair);
  void on_done(const Engine& engine, const Engine::Request& request);
  void on_adapter_done(const Engine& engine, const Engine::Request& request);
  std::string unsettled() const;
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
  Transfers transfers_;
  Epochs epochs_;
  std::vector<std::unique_ptr<TrainerGroup>> trainers_;  // one per pair
  const Plan* plan_ = nullptr;
  std::vector<std::unique_ptr<Gateway>> gateways_;
  std::vector<bool> was_alive_;
  std::set<std::string> found_;  // engines that their pair's new owner has put a barrier to
  std::set<std::pair<std::string, std::string>> found_adapters_;  // (LoRA pair, engine): its owner changed one there
};

}  // namespace weighlock::sim
