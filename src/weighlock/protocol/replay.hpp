// The journal read back: records in their order become the state that a gateway starts with.
//
// Pure. What it gives is a function of the records alone (but for the names of this start and the clock's readings), so
// reading twice, or dying while reading, gives the same. It tells what was true or intended when the last record was
// written; what became true since is found by the machine's `Recover` event, which reads the workers.
//
// A call whose answer isn't recorded may still run in its engine: it is an earlier call of its worker, without a
// connection of its own. A save without an answer keeps its trainer busy.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "weighlock/protocol/machine.hpp"
#include "weighlock/protocol/record.hpp"

namespace weighlock::protocol {

class Replay {
 public:
  explicit Replay(const Dialects& dialects) : dialects_(dialects) {}

  // In the order of the journal. `at`: when it was written, as this process's clock would have said it; for display.
  void take(const Record& record, Instant at);
  // The state to start with. `boot`: this start's name, drawn anew. Once, at the end.
  State finish(std::string boot, Instant now);

 private:
  void pair_connected(const Record& record);
  void pair_removed(const Record& record);
  void requested(const Record& record, Instant at);
  void phase(const Record& record, Instant at);
  void ended(const Record& record, Instant at);
  void targets(const Record& record, Instant at);
  void intent(const Record& record);
  void outcome(const Record& record, Instant at);
  void verdicts(const Record& record, Instant at);
  void commit(const Record& record);
  void sealed(const Record& record);
  void digest(const Record& record);
  void last_good(const Record& record);
  void save_intent(const Record& record, Instant at);
  void save_ended(const Record& record);
  void worker_state(const Record& record, Instant at);
  void worker_seen(const Record& record);
  void worker_changed(const Record& record);
  void group(const Record& record);
  void process_ended();
  void suppose_resumes(const Update& update);
  void begin_call(const Record& intent, CallId call);
  // Steps that were recorded before they were due (Context::intend): what may be under way of them.
  void settle_planned(const std::string& worker);
  void memory_released(const Record& record, const std::string& worker);
  void forget_worker(const std::string& url);

  // ownership_takeover.cpp
  void epoch(const Record& record, Instant at);
  void superseded(const Record& record, Instant at);

  // settle.cpp
  void discard(const Record& record);

  // replay_adapters.cpp. True if the record is about a name in an engine.
  bool about_adapters(const Record& record, Instant at);
  void adapters_connected(Pair& pair, const PairSpec& before);
  void adapters_committed(Pair& pair, const Update& update);
  void adapters_ended(Pair& pair, const Update& update);
  void forget_unused_workers();
  // What the pair had asked for before it changed hands: how often a name must be unloaded now doesn't depend on it.
  void forget_unloads(const std::string& pair);

  Pair* pair_of(const Record& record);
  Update* update_of(const Record& record);
  // The target of the record's update, if it has this worker.
  Target* target_of(const Record& record);
  Worker& worker_of(const Record& record);
  Update& job_update(const Record& record, Instant at);
  VersionRef version_of(const Worker& worker, std::int64_t lineage, std::int64_t version);
  bool writes_label(const Worker& worker, const EarlierCall& call) const;

  const Dialects& dialects_;
  State state_;
  std::map<std::string, UpdateId> in_flight_of_;       // by worker: the update of its running call; "" = the watch's
  std::map<std::string, std::deque<Record>> planned_;  // by worker: intents whose calls were not sent when recorded
  std::map<std::string, int> unloads_needed_;          // by pair, worker and name: answers until it is surely gone
};

// Whether the update needs `Recover`: it isn't at its end.
bool needs_recovery(const State& state);

}  // namespace weighlock::protocol
