// For the tests of protocol/: a driver whose ports answer by script, one event at a time, with a clock that only the
// test moves.
//
// By default every worker answers well and at once; `script` changes the answer of one operation of one worker.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "weighlock/protocol/driver.hpp"
#include "weighlock/protocol/replay.hpp"

namespace weighlock::protocol {

// What a scripted call does: answer, or stay silent.
struct Answer {
  std::optional<Outcome> outcome;  // none: never answered
  int times = 1;                   // -1: always
};

struct FakeWorker {
  DialectKind dialect = DialectKind::sglang;
  std::string incarnation = "start-1";
  std::string label = "default";
  std::string loaded = "/models/start";
  bool paused = false;
  bool holds_requests = false;                  // a pause in mode keep leaves them; any other ends them
  std::map<std::string, std::string> adapters;  // name -> directory
  std::size_t adapter_places = 0;               // so many stay loaded: the lowest names go; 0: all
  std::optional<std::int64_t> rank_max;
  std::vector<std::string> adapter_calls;  // "load policy-v1", in order
  std::vector<OperationKind> operations;
  std::vector<HandOverStep> steps;  // of collectives that it was asked for
};

// One pair's epochs on a storage, which several worlds may share.
struct FakeEpochs {
  std::map<std::int64_t, Epoch> files;
  std::optional<Error> claim_error;
  std::optional<Error> look_error;
  bool claims_silent = false;  // never answered
  bool looks_silent = false;
  int looks = 0;
  std::vector<std::vector<HeldWorker>> written;  // each list that was given, in order
  std::map<std::string, Epoch> takers;           // of one pair only, and above `files`: what looks at it find
  ClaimedEpoch claim(const ClaimEpoch& effect);
  Epoch highest() const { return files.empty() ? Epoch{} : files.rbegin()->second; }
};

class Fixture : public Ports, public ::testing::Test {
 public:
  Fixture();
  Instant now() const override { return now_; }
  void append(std::vector<Record> group, std::function<void()> durable) override;
  void perform(Effect effect) override;
  void records_held() override { held = true; }

  // Workers are not brought back by themselves, unless `reconciles`.
  void connect(int workers, int trainers = 2);
  bool reconciles = false;
  bool by_transfer = false;  // the pair that `connect` makes
  static std::string url(int i) { return "http://worker" + std::to_string(i) + ":30000"; }
  static std::string trainer(int i) { return "http://trainer" + std::to_string(i) + ":9000"; }
  UpdateId request(std::int64_t version, Policy policy = {}, std::string key = "");
  UpdateId rollback(std::optional<std::int64_t> to = std::nullopt, std::string key = "");
  void post(EventBody body) { driver_->post(std::move(body)), settle(); }
  void flush() { driver_->flush(); }
  void settle();                                           // until nothing is left to answer
  void advance(Milliseconds by);                           // fires timers on the way
  void stand_still(Milliseconds by) { now_ = now_ + by; }  // the process is stopped: time goes on, and nothing else
  // A world anew, in which pairs have owners; `id` is ours.
  void keep_epochs(const std::string& id, std::shared_ptr<FakeEpochs> storage);
  void script(int worker, OperationKind kind, Outcome outcome, int times = 1);
  void silence(int worker, OperationKind kind);
  void answer_silenced(int worker, Outcome outcome);  // the oldest call that was left unanswered
  void restart(int worker);
  void replace(int worker, DialectKind dialect);  // on its address another engine has started
  // The process dies at the n-th group from now on, with its effects performed or not; nothing happens after that.
  void die_at_group(int n, bool effects_performed) { dies_in_ = n, effects_performed_ = effects_performed; }
  // ... at the first group from now on that has such a record.
  void die_at_record(RecordKind kind, std::string operation, bool effects_performed);
  void die_again_at_group(int n) { dies_again_in_ = n; }  // of the process that starts next
  int groups_left() const { return dies_in_; }
  bool dead() const { return dead_; }
  const State& state_at_death() const { return at_death_; }
  // A new process on the records. Scripts are forgotten; `prepare` may make new ones before it takes over.
  void start_again() {
    start_again_with([] {});
  }
  void start_again_with(const std::function<void()>& prepare);
  State replayed() const;

  const State& state() const { return driver_->state(); }
  const Update& update(const UpdateId& id) const { return state().updates.at(id); }
  const Worker& worker(int i) const { return state().workers.at(url(i)); }
  FakeWorker& engine(int i) { return engines_[url(i)]; }
  FakeWorker& engine_at(const std::string& worker_url) { return engines_[worker_url]; }
  int count(int worker, OperationKind kind);
  std::vector<std::string> record_names() const;
  Outcome good(const std::string& url, const Call& call);

  std::map<std::string, SaveEnded> save_answers;  // by trainer; absent: ok
  std::vector<std::string> silent_trainers;
  std::vector<TriggerSave> saves;
  AwexSpec awex;
  std::vector<BuildGroup> builds;
  std::optional<Error> build_error;
  bool port_taken = false;  // ... since somebody else has the port
  std::vector<RefusedWorker> build_refused;
  int build_failures = -1;  // so many end as these say, and the rest well; -1: all as they say
  bool builds_silent = false;
  std::vector<DropGroup> drops;
  // Colocated: by member and step; without an outcome it stays silent.
  std::map<std::pair<std::string, HandOverStep>, std::optional<Outcome>> step_answers;
  std::vector<RunTransfer> transfers;      // trainers answer by `save_answers`, workers by scripts of their load
  std::vector<AskTrainer> asked_trainers;  // a silent one doesn't answer them either
  SealedVersion sealed{1000, 10, false, true, false, true, "", "d1", true};
  std::optional<Error> seal_error;
  bool seals_silent = false;
  std::vector<Record> records;
  std::vector<std::size_t> groups;  // the size of each
  bool held = false;
  std::vector<Reply> replies;
  std::vector<UpdateId> ended;
  std::vector<Discard> discards;
  std::optional<Error> discard_error;
  bool discards_silent = false;
  std::vector<MarkLatest> marks;
  std::vector<Seal> seals;
  std::vector<Cancel> cancels;
  std::vector<Fence> fences;
  std::vector<Operation> reads;  // of workers' states, in order
  bool stopped = false;
  std::shared_ptr<FakeEpochs> epochs;
  bool hold_commit = false;            // the group of a commit record stays on its way to the disk ...
  std::function<void()> held_durable;  // ... until the test runs this

 private:
  bool answer_step(const Call& call);

  Instant now_;
  std::map<std::string, FakeWorker> engines_;
  std::map<std::pair<std::string, OperationKind>, std::deque<Answer>> scripts_;
  std::deque<EventBody> pending_;
  std::map<TimerId, Instant> timers_;
  std::vector<std::pair<std::string, CallId>> silenced_;
  std::unique_ptr<Driver> driver_;
  int dies_in_ = 0;  // 0: never
  int dies_again_in_ = 0;
  std::optional<std::pair<RecordKind, std::string>> dies_at_;
  State at_death_;
  bool effects_performed_ = false;
  bool dying_ = false;
  bool dead_ = false;
};

Outcome failed(OutcomeKind kind, std::string text, ErrorCode code = ErrorCode::worker_failed);

}  // namespace weighlock::protocol
