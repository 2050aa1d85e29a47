// The invariants of design/protocol.md section 13, checked against the simulated truth after every event and before
// every effect. Written from the specification alone: nothing here calls the machine or copies a decision of it.
//
// It keeps its own books: which calls are open, which may still take effect, what was promised durably. Each check
// throws a Violation that carries the number of the invariant.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/clients.hpp"
#include "sim/coverage.hpp"
#include "sim/network.hpp"
#include "sim/scenario.hpp"
#include "sim/store.hpp"
#include "sim/transfers.hpp"
#include "weighlock/protocol/driver.hpp"

namespace weighlock::sim {

// Checks that a survey leaves out, to see what else there is (`sim --skip`).
struct SkippedChecks {
  bool windows = false;    // of adapters, at rest
  bool unloads = false;    // of adapters that should be served
  bool retention = false;  // invariant 19
};
inline SkippedChecks skipped_checks;

// What the checks may look at.
struct Witness {
  const Scenario& scenario;
  const Scheduler& scheduler;
  const Network& network;
  const Store& store;
  const Transfers& transfers;
  const Clients& clients;
  const Trace& trace;
  Coverage& coverage;
  std::function<bool(const std::string& pair)> owns;   // no other gateway has taken the pair
  std::function<void(const std::string& url)> let_go;  // its operator took it over, with its pause
};

class Invariants {
 public:
  explicit Invariants(Witness witness) : w_(witness) {}
  void watch(const protocol::Driver& driver) { driver_ = &driver; }

  // After every event.
  void check_state();
  // Its calls may still take effect; what it promised and recorded stands.
  void gateway_died(const std::vector<protocol::Record>& journal);
  // The journal's last records are lost, and what they told: until its next load nothing is expected of a worker.
  void tail_lost(const std::vector<protocol::Record>& journal);
  // Another gateway took it, or this one did.
  void pair_taken(const std::string& pair);
  // By a call of a gateway that had lost its pair, on its way since before: beyond what is promised.
  void disturbed(const std::string& url);
  void adapter_disturbed(const std::string& url, const std::string& adapter);
  // A rank told that its save is over.
  void save_ended(const protocol::SaveEnded& event) { on_save_ended(event); }
  // The process was stopped for so long: no deadline of an update ran.
  void stood_still(Milliseconds time);
  // When a planned run has come to rest.
  void check_planned_end() const;
  // Before it is performed.
  void before_effect(const protocol::Effect& effect);
  // Before it is posted to the machine.
  void before_event(const protocol::EventBody& event);
  void on_append(const std::vector<protocol::Record>& group);
  void on_durable(const std::vector<protocol::Record>& group);
  // Liveness: "" when everything has come to rest as it must, else what hasn't.
  std::string unsettled() const;
  bool stopped() const { return stopped_; }

 private:
  struct OpenCall {
    protocol::CallId call = 0;
    std::string worker;
    Operation operation;
    protocol::UpdateId update;
    std::string incarnation;   // of the engine, when it was sent
    bool connected = true;     // false: reset, or ended without telling
    bool was_excused = false;  // a load: its worker, before
  };
  struct Book {                             // of one worker
    std::vector<OpenCall> in_flight;        // at most one
    std::vector<OpenCall> unresolved;       // given up or unknown: may still take effect
    std::string pair;                       // its full-model pair at the last look
    bool known = false;                     // registered at the last look
    std::int64_t baseline = kStartContent;  // what it held when it was registered
    std::set<std::int64_t> baselines;       // ... and each time before
    bool loaded_by_us = false;              // since then
    bool paused_by_us = false;
    bool let_go = false;            // abandoned, and released by its operator: theirs from then on
    bool was_told = false;          // some answer showed its present label since its pair is ours
    bool misled = false;            // none did, and one showed the label before it
    bool excused = false;           // records about it were lost, and it was not loaded since
    bool adapters_excused = false;  // likewise, and no load of a model tells which adapters it serves
  };
  struct PairBook {
    std::vector<protocol::VersionRef> commits;  // durable, in order
    bool went_back = false;                     // the last commit was a rollback
    std::optional<protocol::VersionRef> pointer;
    std::set<std::int64_t> contents;  // of committed versions
  };

  const protocol::State& state() const { return driver_->state(); }
  const EngineTruth& truth(const std::string& url) const { return w_.network.find(url)->truth(); }
  std::int64_t content_of(const std::string& directory) const;
  // Of a version that may have been transferred, so that it is in no directory.
  std::int64_t content_of(const std::string& pair, const protocol::VersionRef& version) const;
  // The machine speaks of this very process, and no lie hides what it holds.
  bool comparable(const protocol::Worker& worker) const;
  bool excused(const std::string& url) const;
  bool is_baseline(const Book& book, std::int64_t content) const;
  bool adapters_excused(const std::string& url) const;

  // invariants_call.cpp: before a call
  void check_call(const protocol::Call& call);
  void set_aside_given_up(const std::string& url, Book& book);
  void check_in_flight(const protocol::Call& call, const Book& book);
  void check_intent(const protocol::Call& call);
  void check_load(const protocol::Call& call);
  void check_canary(const protocol::Call& call, const protocol::Update& update);
  void check_window(const protocol::Call& call, const protocol::Update& update) const;
  void check_pause_policy(const protocol::Call& call) const;
  void check_watch(const protocol::Call& call) const;
  void check_owed_flush(const protocol::Call& call) const;
  void check_resume(const protocol::Call& call, Book& book);
  void check_owner(const protocol::Call& call);
  void on_cancel(protocol::CallId call);
  void on_call_ended(const protocol::CallEnded& event);
  void resolve_by_reading(Book& book, const std::string& worker, const OpenCall& call, const Outcome& outcome);
  void note_told_label(Book& book, const std::string& worker, const Outcome& outcome) const;
  void check_save(const protocol::TriggerSave& save);
  void on_save_ended(const protocol::SaveEnded& event);
  void check_seal(const protocol::Seal& seal);
  void check_discard(const protocol::Discard& discard);

  // invariants_transfer.cpp
  struct GroupBook;
  void note_group_record(const protocol::Record& record);
  void check_build(const protocol::BuildGroup& build);
  void check_drop(const protocol::DropGroup& drop);
  void on_group_built(const protocol::GroupBuilt& event);
  void check_transfer(const protocol::RunTransfer& run);
  void check_members(const protocol::RunTransfer& run, GroupBook& group) const;
  void check_hand_over(const protocol::RunTransfer& run, const GroupBook& group);
  bool ended_well(const protocol::UpdateId& update) const;
  void note_part_ended(protocol::CallId call, bool ok);
  void check_transferred(const protocol::Update& update) const;
  void forget_groups();

  // invariants_adapter.cpp
  const protocol::Pair* lora_of(const std::string& name) const;
  bool is_lora(const protocol::Update& update) const;
  void check_fence(const protocol::Fence& fence) const;
  void check_adapter_call(const protocol::Call& call);
  void check_adapter_lock(const protocol::Call& call, bool active);
  bool on_adapter_call_ended(const protocol::CallEnded& event);
  void check_adapters(const protocol::Pair& pair);
  void check_unload(const protocol::Call& call, bool active);
  void check_served(const protocol::Pair& pair, const std::string& url, const protocol::WorkerAdapters& known) const;
  // What was asked about the name in this process has no known end, or was refused: it may be taken for anything.
  void doubt_adapter(const protocol::Call& call);
  bool is_disturbed(const std::string& url, const std::string& adapter) const;
  // Ours, and this gateway knows it: what the engines serve of it is what it says.
  bool has_adapters_of(const protocol::Pair& pair) const;
  bool is_doubtful(const std::string& url, const std::string& adapter) const;
  static bool is_certain(const protocol::Pair& pair, const std::string& url, const std::string& adapter);
  // The committed versions that should stay loaded, newest first.
  std::vector<protocol::VersionRef> window_of(const protocol::Pair& pair) const;
  std::string unsettled_adapters(const protocol::Pair& pair) const;
  bool in_hand(const std::string& worker, const std::string& adapter) const;
  void check_adapter_verdict(const protocol::Update& update, const std::string& url, const protocol::Target& target);
  void check_adapter_directory(const std::string& directory) const;
  std::string unsettled_window(const protocol::Pair& pair) const;

  // invariants.cpp: at any time
  void look_at_registry();
  void check_worker(const protocol::Worker& worker);
  void check_ready(const protocol::Worker& worker);
  void check_lag(const protocol::Worker& worker);
  int members_of(const protocol::Update& update) const;
  bool is_of_rival(std::int64_t content) const;
  bool may_be_last_good(const std::string& pair, std::int64_t content) const;
  void check_pair(const std::string& name, const protocol::Pair& pair);
  void check_verdicts(const protocol::Update& update);
  void check_time(const protocol::Update& update);
  void check_commit(const protocol::Record& record);

  // invariants_end.cpp: at the end of an update, and of a run
  void check_ended(const protocol::UpdateEnded& effect);
  void check_outcome(const protocol::Update& update);
  void check_quorum_at_end(const protocol::Update& update);
  void check_targets_at_end(const protocol::Update& update);
  std::string unsettled_join(const protocol::Worker& worker) const;
  std::string unsettled_watch(const protocol::Worker& worker) const;
  std::string unsettled_cache(const protocol::Worker& worker) const;
  std::string unsettled_worker(const protocol::Worker& worker) const;
  std::string unsettled_calm(const std::string& pair) const;
  std::string unsettled_clients() const;
  std::string unsettled_last(protocol::ReplyToken token) const;
  std::string unsettled_directories() const;
  // invariants_retention.cpp
  void note_stored(const protocol::Record& record);
  bool is_leased(const protocol::Pair& pair, const std::string& directory) const;
  std::string unsettled_versions() const;

  Witness w_;
  const protocol::Driver* driver_ = nullptr;
  std::map<std::string, Book> books_;
  std::map<protocol::CallId, protocol::Call> adapter_calls_;                   // open
  std::map<std::pair<std::string, std::string>, std::string> adapter_doubts_;  // (worker, adapter) -> incarnation
  // (worker, adapter): a former owner of the pair changed it behind our back, and we have not loaded it since.
  std::set<std::pair<std::string, std::string>> disturbed_adapters_;
  struct Sealed {
    std::string directory;
    protocol::UpdateId update;
    bool committed = false;
  };
  std::map<std::string, std::vector<Sealed>> stored_;  // by pair, as recorded: ours, in order, and not discarded
  bool records_lost_ = false;                          // the journal lost its last records once
  std::map<protocol::CallId, std::string> call_worker_;
  std::map<std::string, PairBook> pairs_;
  std::map<protocol::UpdateId, protocol::VersionRef> commits_of_;  // durable
  std::map<std::pair<protocol::UpdateId, std::string>, int>
      intents_;  // (update, worker + operation) -> durable less used
  // The count is fixed by the commit: a member lost before its load stays out of it, also if its catch-up loads later.
  std::map<protocol::UpdateId, int> needed_at_commit_;
  std::set<std::pair<protocol::UpdateId, std::string>> loads_;  // (update, worker): a load was sent
  std::map<std::pair<protocol::UpdateId, DialectKind>, std::vector<std::string>>
      canaries_;                                        // the first that were told to load
  std::map<protocol::UpdateId, std::string> prepared_;  // directories made for an update
  std::set<protocol::UpdateId> save_intents_, target_records_, commit_records_, end_records_, ended_;
  std::map<protocol::UpdateId, Instant> admitted_at_;
  std::set<std::string> sealed_, discarded_;  // directories
  struct Save {
    std::string trainer, directory;
    bool ended = false;
    protocol::SaveOutcomeKind kind = protocol::SaveOutcomeKind::unknown;
    Instant since;
  };
  std::map<protocol::CallId, Save> saves_;
  struct GroupBook {
    bool built = false;
    std::vector<std::string> trainers, workers;
    std::map<std::string, bool> was_read;  // the process of this worker was known before
    protocol::UpdateId used_by;            // the last one
  };
  struct TransferBook {
    std::set<protocol::CallId> open, failed;
    bool has_begun = false;  // the collective itself
    bool counted = false;    // as one that ended well
  };
  std::map<std::string, GroupBook> groups_;  // of the present process, until they are dropped
  std::set<std::string> group_names_, group_intents_;
  std::set<std::string> present_groups_;              // names that the present process gave
  std::map<std::string, std::string> last_group_of_;  // trainer -> the group that it was asked last to join
  std::map<std::uint64_t, std::string> group_asks_;
  std::map<protocol::UpdateId, TransferBook> transfers_;
  std::map<protocol::CallId, protocol::UpdateId> transfer_of_;
  std::set<protocol::UpdateId> transfer_intents_;
  std::map<std::string, std::set<protocol::HandOverStep>> memory_asked_;  // by worker, since it was released
  std::map<protocol::UpdateId, std::int64_t> commit_contents_;            // of `commits_of_`
  bool stopped_ = false;
  bool gateway_died_ = false;
};

bool changes_weights(OperationKind kind);
bool changes_engine(OperationKind kind);
// The watch's flush of one that is owed: nothing that follows depends on whether it ran, or when.
bool pays_flush(OperationKind kind, const protocol::UpdateId& update);
bool changes_adapters(OperationKind kind);

}  // namespace weighlock::sim
