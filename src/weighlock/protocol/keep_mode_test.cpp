// Pause mode `keep`: running requests go on, so the cache can be flushed only when the engine is idle for once. The
// update doesn't wait for that; the flush is owed, and asked for between updates until it is done.
#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/ownership_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

Policy keeping() {
  Policy policy;
  policy.pause_mode = PauseMode::keep;
  return policy;
}

Outcome busy() {
  return failed(OutcomeKind::untouched, "answered 400 \"Flush cache failed.\"");
}

class KeepModeTest : public Fixture {
 protected:
  const Target& target(const UpdateId& id, int i) const { return update(id).targets.at(url(i)); }
  bool owes(int i) const { return worker(i).owes_flush.has_value(); }
  // One worker, which serves version 1 and refused the update's flush and `more` others.
  UpdateId serve_owing(int more) {
    connect(1);
    script(0, K::flush, busy(), more < 0 ? -1 : 1 + more);
    const UpdateId id = request(1, keeping());
    flush();
    return id;
  }
  std::size_t recorded() {
    flush();
    return records.size();
  }
};

TEST_F(KeepModeTest, an_engine_that_is_never_idle_does_not_hold_the_update_up_and_what_it_owes_is_told) {
  connect(2);
  script(0, K::flush, busy(), -1);
  const UpdateId id = request(1, keeping());
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(count(0, K::flush), 1);
  EXPECT_EQ(target(id, 0).verdict, Verdict::verified);
  ASSERT_TRUE(target(id, 0).cause) << "its old prefixes are told";
  EXPECT_EQ(target(id, 0).cause->code, CauseCode::flush_failed);
  EXPECT_NE(target(id, 0).cause->message.find("Flush cache failed."), std::string::npos) << "in the engine's words";
  EXPECT_FALSE(worker(0).cause);
  ASSERT_TRUE(owes(0));
  EXPECT_EQ(worker(0).owes_flush->since, now());
  EXPECT_FALSE(target(id, 1).cause);
  EXPECT_FALSE(owes(1));
}

TEST_F(KeepModeTest, an_engine_that_is_idle_is_flushed_by_the_update_and_owes_nothing) {
  connect(1);
  engine(0).dialect = DialectKind::vllm;
  const UpdateId id = request(1, keeping());
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_FALSE(target(id, 0).cause);
  EXPECT_FALSE(owes(0));
  advance(60s);
  EXPECT_EQ(count(0, K::flush), 1);
}

TEST_F(KeepModeTest, an_engine_that_is_idle_later_is_flushed_then_and_owes_nothing_any_more) {
  serve_owing(2);
  const std::size_t before = recorded();
  advance(2500ms);
  EXPECT_TRUE(owes(0));
  EXPECT_EQ(recorded(), before) << "a refusal makes no record";
  advance(2s);
  EXPECT_FALSE(owes(0));
  EXPECT_EQ(count(0, K::flush), 4);
  EXPECT_EQ(recorded(), before + 1);
  EXPECT_FALSE(replayed().workers.at(url(0)).owes_flush);
  advance(60s);
  EXPECT_EQ(count(0, K::flush), 4);
}

TEST_F(KeepModeTest, a_flush_that_is_always_refused_is_asked_for_ten_times_and_then_with_each_look) {
  serve_owing(-1);
  const std::size_t before = recorded();
  advance(15s);
  EXPECT_GE(count(0, K::flush), 1 + limits::kOwedFlushTriesSoon);
  const int soon = count(0, K::flush);
  advance(600s);
  EXPECT_LE(count(0, K::flush), soon + 66);
  EXPECT_GE(count(0, K::flush), soon + 50);
  EXPECT_EQ(recorded(), before);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

TEST_F(KeepModeTest, what_is_owed_outlives_the_process_and_is_paid_by_the_next_one) {
  const UpdateId id = serve_owing(-1);
  advance(30s);
  const int before = count(0, K::flush);
  start_again_with([&] { script(0, K::flush, busy(), 1); });
  ASSERT_TRUE(owes(0));
  EXPECT_TRUE(worker(0).owes_flush->since);
  ASSERT_TRUE(target(id, 0).cause);
  EXPECT_EQ(target(id, 0).cause->code, CauseCode::flush_failed);
  advance(5s);
  EXPECT_FALSE(owes(0));
  EXPECT_EQ(count(0, K::flush), before + 2);
}

TEST_F(KeepModeTest, a_gateway_that_dies_before_its_flush_was_answered_asks_again) {
  connect(1);
  die_at_record(RecordKind::intent, "flush", true);
  request(1, keeping());
  ASSERT_TRUE(dead());
  start_again_with([&] { script(0, K::flush, busy(), 1); });
  advance(5s);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_FALSE(owes(0));
  EXPECT_EQ(count(0, K::flush), 3);
}

TEST_F(KeepModeTest, a_new_process_has_nothing_to_be_flushed) {
  serve_owing(-1);
  advance(20s);
  restart(0);
  advance(20s);
  EXPECT_FALSE(owes(0));
  flush();
  EXPECT_FALSE(replayed().workers.at(url(0)).owes_flush);
  const int before = count(0, K::flush);
  advance(60s);
  EXPECT_EQ(count(0, K::flush), before);
}

TEST_F(KeepModeTest, the_next_update_flushes_what_was_owed_before_it) {
  serve_owing(0);
  ASSERT_TRUE(owes(0));
  const UpdateId second = request(2, keeping());
  EXPECT_FALSE(target(second, 0).cause);
  EXPECT_FALSE(owes(0));
  script(0, K::flush, busy(), 1);
  request(3, keeping());
  ASSERT_TRUE(owes(0));
  request(4);  // its load flushes
  EXPECT_FALSE(owes(0));
  const int before = count(0, K::flush);
  advance(60s);
  EXPECT_EQ(count(0, K::flush), before);
}

TEST_F(KeepModeTest, a_next_update_that_is_refused_too_owes_since_the_first) {
  serve_owing(-1);
  const Instant since = *worker(0).owes_flush->since;
  advance(30s);
  const int before = count(0, K::flush);
  const UpdateId second = request(2, keeping());
  EXPECT_EQ(update(second).state, UpdateState::succeeded);
  ASSERT_TRUE(owes(0));
  EXPECT_EQ(worker(0).owes_flush->since, since);
  advance(5s);
  EXPECT_GE(count(0, K::flush), before + 4) << "asked each second again";
}

TEST_F(KeepModeTest, a_load_that_did_nothing_owes_nothing) {
  connect(1);
  request(1, keeping());
  script(0, K::load, failed(OutcomeKind::untouched, "refused"), 1);
  const UpdateId second = request(2, keeping());
  EXPECT_NE(update(second).state, UpdateState::succeeded);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_FALSE(owes(0));
}

class KeepHealTest : public KeepModeTest {
 protected:
  KeepHealTest() {
    connect(1);
    request(1);
    script(0, K::load, failed(OutcomeKind::touched, "half of it"), 1);
  }
};

TEST_F(KeepHealTest, what_a_heal_loads_is_flushed_before_it_serves) {
  const UpdateId id = request(2, keeping());
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_FALSE(owes(0));
  EXPECT_EQ(count(0, K::flush), 1);
}

TEST_F(KeepHealTest, an_engine_that_holds_requests_is_healed_and_owes_the_flush) {
  engine(0).holds_requests = true;
  const UpdateId id = request(2, keeping());
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(0).version->version, 1);
  EXPECT_TRUE(engine(0).holds_requests) << "they outlive the heal";
  EXPECT_EQ(count(0, K::load), 3) << "not one load more";
  EXPECT_EQ(count(0, K::flush), 2) << "once while it is paused, once behind the resume";
  ASSERT_TRUE(owes(0));
  EXPECT_EQ(worker(0).owes_flush->since, now());
  EXPECT_TRUE(replayed().workers.at(url(0)).owes_flush);
  engine(0).holds_requests = false;
  advance(2s);
  EXPECT_FALSE(owes(0));
}

TEST_F(KeepHealTest, a_heals_flush_without_an_answer_is_a_failure) {
  script(0, K::flush, failed(OutcomeKind::unknown, "connection reset", ErrorCode::connection_lost), 1);
  const UpdateId id = request(2, keeping());
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(count(0, K::resume), 1) << "the first update's";
}

TEST_F(KeepHealTest, a_gateway_that_dies_behind_a_heals_load_still_owes_the_flush) {
  engine(0).holds_requests = true;
  die_at_record(RecordKind::intent, "flush", true);
  request(2, keeping());
  ASSERT_TRUE(dead());
  start_again();
  advance(1s);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_TRUE(owes(0));
  engine(0).holds_requests = false;
  advance(10s);
  EXPECT_FALSE(owes(0));
}

TEST_F(KeepHealTest, one_by_whose_caller_it_is_held_owes_nobody) {
  engine(0).holds_requests = engine(0).paused = true;
  Policy policy = keeping();
  policy.pause = PauseOwner::caller;
  const UpdateId id = request(2, policy);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(worker(0).version->version, 1);
  EXPECT_FALSE(owes(0));
}

TEST_F(KeepModeTest, an_update_that_begins_while_the_flush_is_on_its_way_forgets_it_and_waits_for_nothing) {
  connect(1);
  script(0, K::flush, busy(), 1);
  silence(0, K::flush);
  request(1, keeping());
  advance(1200ms);
  ASSERT_TRUE(worker(0).in_flight);
  ASSERT_EQ(worker(0).in_flight->kind, K::flush);
  const CallId call = worker(0).in_flight->call;
  const UpdateId second = request(2, keeping());
  EXPECT_EQ(update(second).state, UpdateState::succeeded);
  EXPECT_TRUE(std::any_of(cancels.begin(), cancels.end(), [&](const Cancel& one) { return one.call == call; }));
  EXPECT_EQ(count(0, K::barrier), 0);
  EXPECT_TRUE(worker(0).earlier.empty());
  EXPECT_FALSE(owes(0)) << "its own flush took over";
}

TEST_F(KeepModeTest, a_flush_without_an_answer_is_given_up_and_asked_for_again) {
  connect(1);
  script(0, K::flush, busy(), 1);
  silence(0, K::flush);
  request(1, keeping());
  advance(1200ms);
  ASSERT_TRUE(worker(0).in_flight);
  advance(limits::kWatchReadTimeout + 10s);
  EXPECT_EQ(count(0, K::flush), 3);
  EXPECT_FALSE(owes(0));
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(count(0, K::barrier), 0);
}

TEST_F(KeepModeTest, a_flush_of_the_update_whose_answer_was_lost_may_not_have_been_done) {
  connect(1);
  script(0, K::flush, failed(OutcomeKind::unknown, "connection reset", ErrorCode::connection_lost), 1);
  const UpdateId id = request(1, keeping());
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::barrier), 1);
  ASSERT_TRUE(target(id, 0).cause);
  EXPECT_EQ(target(id, 0).cause->code, CauseCode::flush_failed);
  EXPECT_TRUE(owes(0));
  advance(3s);
  EXPECT_FALSE(owes(0));
  EXPECT_EQ(count(0, K::flush), 2);
}

TEST_F(KeepModeTest, whoever_pauses_by_itself_flushes_by_itself) {
  connect(1);
  engine(0).paused = true;
  Policy policy = keeping();
  policy.pause = PauseOwner::caller;
  const UpdateId id = request(1, policy);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_FALSE(owes(0));
  EXPECT_FALSE(replayed().workers.at(url(0)).owes_flush);
  engine(0).paused = false;
  advance(60s);
  EXPECT_EQ(count(0, K::flush), 0);
}

TEST_F(KeepModeTest, who_is_paused_by_another_is_asked_when_it_runs_again) {
  serve_owing(0);
  engine(0).paused = true;
  advance(60s);
  EXPECT_EQ(count(0, K::flush), 1);
  engine(0).paused = false;
  advance(12s);
  EXPECT_EQ(count(0, K::flush), 2);
  EXPECT_FALSE(owes(0));
}

TEST_F(KeepModeTest, in_a_pair_that_is_not_in_use_nobody_is_asked_any_more) {
  reconciles = true;
  serve_owing(-1);
  advance(2h);
  const int before = count(0, K::flush);
  advance(1h);
  EXPECT_EQ(count(0, K::flush), before);
  EXPECT_TRUE(owes(0));
}

TEST_F(KeepModeTest, a_worker_that_leaves_owes_nothing) {
  connect(2);
  script(0, K::flush, busy(), -1);
  request(1, keeping());
  ChangeWorker event;
  event.pair = "actor";
  event.change = WorkerChange::remove;
  event.worker.url = url(0);
  post(event);
  EXPECT_FALSE(state().workers.contains(url(0)));
  advance(60s);
  EXPECT_EQ(count(0, K::flush), 1);
}

class KeepOwnerTest : public OwnedFixture {
 protected:
  void connect_keeping() {
    ConnectPair event;
    event.spec.name = "actor";
    event.spec.save_path = "/shared";
    event.spec.policy = keeping();
    event.spec.policy.pair_lease = Milliseconds(0);
    event.spec.workers.push_back(WorkerSpec{url(0), DialectKind::sglang});
    event.spec.trainer_urls.push_back(trainer(0));
    post(event);
  }
};

TEST_F(KeepOwnerTest, who_lost_the_pair_flushes_nobody) {
  connect_keeping();
  script(0, K::flush, busy(), -1);
  request(1, keeping());
  ASSERT_TRUE(worker(0).owes_flush);
  lost_to_another();
  EXPECT_FALSE(worker(0).owes_flush);
  flush();
  EXPECT_FALSE(replayed().workers.at(url(0)).owes_flush);
  const int before = count(0, K::flush);
  advance(60s);
  EXPECT_EQ(count(0, K::flush), before);
}

TEST_F(KeepOwnerTest, a_flush_waits_for_a_look_like_any_other_call) {
  connect_keeping();
  script(0, K::flush, busy(), -1);
  request(1, keeping());
  advance(2s);
  ASSERT_GE(count(0, K::flush), 2);
  epochs->looks_silent = true;
  advance(2s);  // the last look that was answered is too old by now
  const int before = count(0, K::flush);
  advance(2s);
  EXPECT_EQ(count(0, K::flush), before);
  epochs->looks_silent = false;
  storage_answers_look();
  advance(3s);
  EXPECT_GT(count(0, K::flush), before);
}

TEST_F(KeepOwnerTest, who_takes_a_pair_in_mode_keep_flushes_everybody_once) {
  left_by_predecessor({});
  connect_keeping();
  ASSERT_EQ(own().epoch, 2);
  flush();
  EXPECT_TRUE(replayed().workers.at(url(0)).owes_flush);
  const UpdateId id = request(1, Policy{});
  ASSERT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_FALSE(worker(0).owes_flush) << "its load flushes";

  begin_anew();
  left_by_predecessor({});
  connect_keeping();
  advance(30s);  // whoever serves is looked at
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(count(0, K::flush), 1);
  EXPECT_FALSE(worker(0).owes_flush);
}

}  // namespace
}  // namespace weighlock::protocol
