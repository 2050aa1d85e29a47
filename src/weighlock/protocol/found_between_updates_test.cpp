// What the simulator found once workers were brought back between updates: each as short as it can be told.
#include "weighlock/protocol/fixture_test.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/worker_calls.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class FoundBetweenUpdatesTest : public Fixture {
 protected:
  FoundBetweenUpdatesTest() { reconciles = true; }
  void change(WorkerChange what, int worker) {
    ChangeWorker event;
    event.token = 50;
    event.pair = "actor";
    event.change = what;
    event.worker.url = url(worker);
    post(event);
  }
};

// Where answers are believed no `loading:` is written, so the start label is still there.
TEST_F(FoundBetweenUpdatesTest, worker_whose_load_failed_half_way_is_not_taken_for_whole_by_its_label) {
  engine(0).dialect = DialectKind::vllm;
  connect(1);
  Policy policy;
  policy.evidence = Evidence::acknowledged;
  silence(0, K::load);
  request(1, policy);
  script(0, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  engine(0).loaded = "half of v1";
  answer_silenced(0, failed(OutcomeKind::touched, "half of it"));
  ASSERT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_TRUE(worker(0).touched);
  flush();
  EXPECT_TRUE(replayed().workers.at(url(0)).touched);
  advance(60s);
  EXPECT_EQ(engine(0).loaded, "/models/start");
  EXPECT_EQ(count(0, K::load), 2);
  EXPECT_FALSE(worker(0).touched);
}

// The last thing that failed was out of reach, and did nothing; the load before it had.
TEST_F(FoundBetweenUpdatesTest, torn_worker_that_was_out_of_reach_since_is_paused_when_somebody_continues_it) {
  engine(0).dialect = DialectKind::vllm;
  engine(0).paused = true;  // by its trainer, so no pause of ours holds it
  sealed.reference_clean = false;
  connect(1);
  Policy policy;
  policy.evidence = Evidence::acknowledged;
  script(0, K::load, failed(OutcomeKind::touched, "half of it"));
  request(1, policy);
  ASSERT_EQ(worker(0).cause->code, CauseCode::no_last_good);
  script(0, K::load, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  request(2, policy);
  ASSERT_EQ(worker(0).cause->code, CauseCode::unreachable);
  ASSERT_EQ(count(0, K::pause), 0);
  engine(0).paused = false;
  advance(10s);
  EXPECT_TRUE(engine(0).paused);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
}

TEST_F(FoundBetweenUpdatesTest, load_that_did_nothing_leaves_a_worker_as_whole_as_it_was) {
  connect(1);
  request(1);
  silence(0, K::load);
  request(2);
  EXPECT_TRUE(worker(0).touched);
  answer_silenced(0, failed(OutcomeKind::untouched, "400 no"));
  EXPECT_FALSE(worker(0).touched);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

TEST_F(FoundBetweenUpdatesTest, look_that_is_not_answered_ends_when_its_worker_is_let_go) {
  connect(1);
  advance(1s);
  request(1);
  silence(0, K::read_state);
  advance(12s);
  ASSERT_TRUE(worker(0).watch.call);
  const std::size_t before = cancels.size();
  post(RemovePair{60, "actor"});
  EXPECT_TRUE(state().workers.empty());
  EXPECT_EQ(cancels.size(), before + 1);
}

TEST_F(FoundBetweenUpdatesTest, gateway_that_stops_is_not_held_up_by_a_join_that_a_removal_ends) {
  connect(2);
  request(1);
  restart(1);
  silence(1, K::load);
  advance(60s);
  ASSERT_EQ(state().pairs.at("actor").joins.size(), 1u);
  post(Shutdown{});
  EXPECT_FALSE(stopped);
  post(RemovePair{60, "actor"});
  EXPECT_TRUE(stopped);
}

TEST_F(FoundBetweenUpdatesTest, released_worker_that_nothing_can_bring_back_is_held_with_its_cause) {
  sealed.reference_clean = false;
  connect(1);
  change(WorkerChange::quarantine, 0);
  advance(10s);
  ASSERT_TRUE(engine(0).paused);
  change(WorkerChange::release, 0);
  advance(10s);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::no_last_good);
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(FoundBetweenUpdatesTest, released_worker_with_a_call_that_nothing_ends_is_held_with_its_cause) {
  engine(0).dialect = DialectKind::vllm;
  connect(1);
  Policy policy;
  policy.pause_mode = PauseMode::wait;  // its drain has no barrier
  silence(0, K::pause);
  request(1, policy);
  advance(1000s);
  ASSERT_EQ(worker(0).earlier.size(), 1u);
  change(WorkerChange::release, 0);
  advance(20s);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::outstanding);
}

// Numbers begin anew with the pair, and its first version may have those that the worker still has.
TEST_F(FoundBetweenUpdatesTest, version_of_a_removed_pair_is_none_of_the_next_one_that_has_its_name) {
  connect(2);
  request(1);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable), -1);
  advance(120s);
  post(RemovePair{60, "actor"});
  ASSERT_EQ(worker(1).state, WorkerState::abandoned);
  connect(2);
  ASSERT_EQ(update(request(1)).state, UpdateState::degraded);
  const int loads = count(1, K::load);
  flush();
  start_again();
  advance(60s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(count(1, K::load), loads + 1);
}

// No barrier can end the doubt, so whose its pause is stays open; it is no worker on its way all the same.
TEST_F(FoundBetweenUpdatesTest, released_worker_that_a_former_owner_held_is_held_with_its_cause_too) {
  State state;
  const Dialects dialects;
  state.pairs["actor"].spec.name = "actor";
  Worker& one = state.workers[url(0)];
  one.url = url(0);
  one.pair = "actor";
  one.dialect = DialectKind::sglang;
  one.state = WorkerState::joining;
  one.incarnation = "start-1";
  one.start_label = "default";
  one.start_path = "/models/start";
  one.earlier.push_back(EarlierCall{.call = 3, .kind = K::set_label});
  one.taken_over.emplace().held = true;
  one.in_flight = EarlierCall{.call = 7, .kind = K::read_state};
  one.watch.call = 7;
  state.calls[7] = {"", url(0)};
  Context context(state, dialects, Instant{});
  Outcome read;
  read.kind = OutcomeKind::ok;
  read.reading = StateReading{"start-1", "default", true, "/models/start"};
  dispatch(context, CallEnded{7, read});
  EXPECT_EQ(one.state, WorkerState::quarantined);
  ASSERT_TRUE(one.cause);
  EXPECT_EQ(one.cause->code, CauseCode::outstanding);
}

TEST_F(FoundBetweenUpdatesTest, brief_reading_does_not_tell_which_process_got_a_pause) {
  State state;
  const Dialects dialects;
  Context context(state, dialects, Instant{});
  Worker one;
  one.incarnation = "start-1";
  one.start_path = "/models/start";
  one.pause_since_read = true;
  observe(context, one, StateReading{"", "1", true, ""});
  EXPECT_TRUE(one.pause_since_read);
  observe(context, one, StateReading{"start-1", "1", true, "/models/start"});
  EXPECT_FALSE(one.pause_since_read);
}

// The files of the committed version turned out bad; what the next one is compared with isn't the start model.
TEST_F(FoundBetweenUpdatesTest, start_model_is_not_taken_for_last_good_because_the_committed_version_was_clean) {
  sealed.reference_clean = false;
  sealed.digest = "";
  connect(1);
  const UpdateId first = request(1);
  post(DigestDone{first, Error{ErrorCode::storage_failed, "file 'a.safetensors' is cut short", nullptr}});
  ASSERT_FALSE(state().pairs.at("actor").last_good);
  sealed.reference_clean = true;
  script(0, K::load, failed(OutcomeKind::touched, "half of it"));
  request(2);
  EXPECT_EQ(count(0, K::load), 2);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::no_last_good);
}

// After a lost state directory an engine has the label of what was loaded before; healed to its start model, it would
// say that it holds that.
TEST_F(FoundBetweenUpdatesTest, start_model_is_not_labelled_with_the_version_that_it_replaces) {
  sealed.reference_clean = true;
  engine(0).label = "57";
  connect(1);
  script(0, K::load, failed(OutcomeKind::touched, "half of it"));
  EXPECT_EQ(update(request(1)).state, UpdateState::rolled_back);
  ASSERT_EQ(engine(0).loaded, "/models/start");
  EXPECT_EQ(engine(0).label, "start");
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(0).version->label, "start");
  start_again();
  EXPECT_EQ(worker(0).version->label, "start");
  advance(100s);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
}

TEST_F(FoundBetweenUpdatesTest, start_model_has_the_label_again_that_its_process_was_started_with) {
  sealed.reference_clean = true;
  engine(0).label = "base-57";
  connect(1);
  script(0, K::load, failed(OutcomeKind::touched, "half of it"));
  EXPECT_EQ(update(request(1)).state, UpdateState::rolled_back);
  EXPECT_EQ(engine(0).label, "base-57");
}

TEST(StartModelLabel, one_of_a_version_is_told_by_the_format_of_its_pair) {
  Worker worker;
  for (const char* of_a_version : {"step-5", "step--5", "step-123456"}) {
    worker.start_label = of_a_version;
    EXPECT_EQ(start_model_label("step-{version}", worker), "start") << of_a_version;
  }
  for (const char* other : {"default", "step-", "step-5b", "5", "", "xstep-5"}) {
    worker.start_label = other;
    EXPECT_EQ(start_model_label("step-{version}", worker), other);
  }
}

// It would be READY with what the update's commit makes old.
TEST_F(FoundBetweenUpdatesTest, worker_that_turns_out_to_be_whole_while_others_load_waits_for_what_is_committed) {
  connect(2);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused"), 4);
  silence(0, K::load);
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::loading);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  advance(20s);
  EXPECT_NE(worker(1).state, WorkerState::ready);
  engine(0).loaded = "/shared/v2.a2";
  engine(0).label = "2";
  Outcome ok;
  ok.kind = OutcomeKind::ok;
  answer_silenced(0, ok);
  ASSERT_EQ(update(second).state, UpdateState::degraded);
  advance(60s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(worker(1).version->version, 2);
}

}  // namespace
}  // namespace weighlock::protocol
