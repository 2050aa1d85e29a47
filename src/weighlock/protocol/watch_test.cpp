// The look that is kept on workers between updates, while nothing is brought back (reconcile_test.cpp).
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class WatchTest : public Fixture {
 protected:
  // Worker 1 fails the load of v2 twice: v2 is committed without it, and it is quarantined, torn and held paused.
  void tear_worker_1(Policy policy = {}) {
    connect(3);
    request(1, policy);
    script(1, K::load, failed(OutcomeKind::touched, "half of it"), 2);
    const UpdateId second = request(2, policy);
    ASSERT_EQ(update(second).state, UpdateState::degraded);
    ASSERT_EQ(worker(1).state, WorkerState::quarantined);
    ASSERT_TRUE(engine(1).paused);
    records.clear();
  }
  int told() const {
    return static_cast<int>(std::count_if(records.begin(), records.end(), [](const Record& record) {
      return record.kind == RecordKind::worker_state && find_string(record.body, "state") == kContinuedByOther;
    }));
  }
};

TEST_F(WatchTest, torn_worker_that_somebody_continued_is_paused_again_within_two_seconds_and_told_once) {
  tear_worker_1();
  for (int i = 0; i < 5; ++i) {
    engine(1).paused = false;
    advance(2s);
    EXPECT_TRUE(engine(1).paused) << i;
    EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  }
  EXPECT_EQ(told(), 1);
  advance(60s);
  engine(1).paused = false;
  advance(2s);
  EXPECT_EQ(told(), 2);
  EXPECT_NE(find_string(records.back().body, "operation"), std::nullopt);  // the pause's outcome
}

TEST_F(WatchTest, nothing_is_recorded_while_it_stays_paused) {
  tear_worker_1();
  advance(30s);
  EXPECT_TRUE(records.empty());
  EXPECT_GE(count(1, K::read_state), 25);
}

TEST_F(WatchTest, who_was_paused_by_another_is_looked_at_each_second_for_a_while) {
  connect(1);
  engine(0).paused = true;
  request(1);
  EXPECT_TRUE(worker(0).paused_by_other);
  engine(0).paused = false;  // as a trainer does that pauses by itself, behind the update's answer
  advance(1200ms);
  EXPECT_FALSE(worker(0).paused_by_other);
  engine(0).paused = true;
  request(2);
  const int before = count(0, K::read_state);
  advance(60s);
  EXPECT_GE(count(0, K::read_state), before + 10);
  EXPECT_LE(count(0, K::read_state), before + 17);
}

TEST_F(WatchTest, workers_that_serve_are_looked_at_seldom_and_not_touched) {
  tear_worker_1();
  const int before = count(0, K::read_state);
  engine(0).paused = true;  // somebody paused it: theirs
  advance(30s);
  EXPECT_LE(count(0, K::read_state), before + 14);
  EXPECT_EQ(count(0, K::pause), 2);  // of the two updates
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(WatchTest, worker_that_does_not_answer_is_asked_more_and_more_seldom_and_without_a_record) {
  tear_worker_1();
  const int before = count(1, K::read_state);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable), -1);
  advance(300s);
  const int asked = count(1, K::read_state) - before;
  EXPECT_GE(asked, 12);
  EXPECT_LE(asked, 18);
  EXPECT_TRUE(records.empty());
}

TEST_F(WatchTest, look_that_has_no_answer_is_given_up_and_repeated) {
  tear_worker_1();
  silence(1, K::read_state);
  advance(2s);
  engine(1).paused = false;
  advance(10s);
  EXPECT_EQ(cancels.size(), 1u);
  EXPECT_TRUE(engine(1).paused);
}

TEST_F(WatchTest, update_takes_over_a_worker_that_is_being_looked_at) {
  tear_worker_1();
  silence(1, K::read_state);
  advance(2s);
  ASSERT_TRUE(worker(1).watch.call);
  const UpdateId third = request(3);
  EXPECT_EQ(update(third).state, UpdateState::succeeded);
  EXPECT_EQ(cancels.size(), 1u);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_FALSE(engine(1).paused);
  const int before = count(1, K::read_state);
  advance(30s);
  EXPECT_LE(count(1, K::read_state), before + 4);  // it is ready
}

// The pause of the fence went to a process that nobody had read yet.
TEST_F(WatchTest, new_process_that_got_the_pause_of_its_predecessor_stays_quarantined_when_an_update_reads_it) {
  connect(2);
  request(1);
  silence(1, K::resume);
  request(2);
  silence(1, K::read_state);
  Outcome resumed;
  resumed.kind = OutcomeKind::ok;
  answer_silenced(1, resumed);
  restart(1);
  advance(30s);
  ASSERT_TRUE(engine(1).paused);
  script(0, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  Policy all;
  all.on_failure = OnFailure::rollback_all;
  EXPECT_EQ(update(request(3, all)).state, UpdateState::aborted);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).cause->code, CauseCode::restarted);
  EXPECT_TRUE(worker(1).paused_by_us);
}

// Nobody read the worker between its restart and the pause that has no barrier, so the new process may have it.
TEST_F(WatchTest, call_that_may_have_gone_to_the_new_process_does_not_end_with_the_old_one) {
  engine(0).dialect = DialectKind::vllm;
  connect(1);
  Policy policy;
  policy.pause_mode = PauseMode::wait;
  silence(0, K::pause);
  request(1, policy);
  restart(0);
  advance(1000s);
  EXPECT_EQ(worker(0).incarnation, "start-1'");
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::outstanding);
  EXPECT_EQ(worker(0).earlier.size(), 1u);
  EXPECT_EQ(replayed().workers.at(url(0)).earlier.size(), 1u);
  restart(0);
  advance(100s);
  EXPECT_EQ(worker(0).incarnation, "start-1''");
  EXPECT_TRUE(worker(0).earlier.empty());
  flush();
  EXPECT_TRUE(replayed().workers.at(url(0)).earlier.empty());
}

TEST_F(WatchTest, update_that_begins_during_a_pause_of_the_watch_asks_after_it_by_a_barrier) {
  tear_worker_1();
  engine(1).paused = false;
  silence(1, K::pause);
  advance(2s);
  ASSERT_TRUE(worker(1).watch.call);
  const UpdateId third = request(3);
  EXPECT_EQ(count(1, K::barrier), 1);
  EXPECT_EQ(update(third).state, UpdateState::succeeded);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(WatchTest, pause_that_is_never_answered_is_followed_by_a_barrier_before_the_next) {
  tear_worker_1();
  engine(1).paused = false;
  silence(1, K::pause);
  advance(60s);
  EXPECT_EQ(count(1, K::barrier), 1);
  EXPECT_TRUE(engine(1).paused);
  EXPECT_TRUE(worker(1).earlier.empty());
}

TEST_F(WatchTest, nothing_is_sent_behind_a_load_that_may_still_run) {
  connect(3);
  request(1);
  silence(1, K::load);
  script(1, K::barrier, failed(OutcomeKind::unknown, "no answer"), -1);
  Policy policy;
  policy.deadlines.load = 10s;
  request(2, policy);
  advance(300s);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  const int pauses = count(1, K::pause);
  engine(1).paused = false;
  advance(120s);
  EXPECT_EQ(count(1, K::pause), pauses);
  EXPECT_GT(count(1, K::barrier), 1);
  EXPECT_FALSE(worker(1).earlier.empty());
}

TEST_F(WatchTest, worker_that_serves_and_falls_silent_is_fenced_until_it_answers) {
  connect(2);
  request(1);
  const std::size_t fenced = fences.size();
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable), 10);
  advance(20s);
  EXPECT_EQ(worker(1).state, WorkerState::ready) << "a look or two are missed by a busy one";
  advance(30s);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).cause->code, CauseCode::unreachable);
  EXPECT_EQ(fences.size(), fenced + 1);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  flush();
  EXPECT_EQ(replayed().workers.at(url(1)).state, WorkerState::quarantined);
  const int loads = count(1, K::load);
  advance(120s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(count(1, K::load), loads) << "nothing was done to it meanwhile";
}

TEST_F(WatchTest, new_process_is_joining_and_left_alone) {
  tear_worker_1();
  restart(1);
  advance(2s);
  EXPECT_EQ(worker(1).state, WorkerState::joining);
  const int before = count(1, K::read_state);
  advance(10s);
  EXPECT_LE(count(1, K::read_state), before + 2);
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(WatchTest, new_process_that_got_its_predecessors_pause_is_held_until_an_update_brings_it_back) {
  tear_worker_1();
  engine(1).paused = false;
  silence(1, K::pause);
  advance(2s);
  restart(1);
  engine(1).paused = true;
  Outcome done;
  done.kind = OutcomeKind::ok;
  answer_silenced(1, done);
  advance(4s);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).cause->code, CauseCode::restarted);
  request(3);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(WatchTest, worker_with_a_label_of_somebody_else_is_foreign_and_not_paused) {
  tear_worker_1();
  engine(1).label = "mine-now";
  engine(1).paused = false;
  advance(3s);
  EXPECT_EQ(worker(1).state, WorkerState::foreign);
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(WatchTest, whole_worker_that_was_only_out_of_reach_serves_again) {
  connect(2);
  request(1);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  Policy all;
  all.on_failure = OnFailure::rollback_all;
  const UpdateId second = request(2, all);
  ASSERT_EQ(update(second).state, UpdateState::aborted);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  advance(10s);
  EXPECT_FALSE(engine(1).paused);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(count(1, K::load), 1);
}

TEST_F(WatchTest, worker_that_joined_is_not_stopped_before_an_update_brings_it_in) {
  connect(2);
  request(1);
  connect(3);
  ASSERT_EQ(worker(2).state, WorkerState::joining);
  advance(10s);
  EXPECT_FALSE(engine(2).paused);
  request(2);
  EXPECT_EQ(worker(2).state, WorkerState::ready);
}

TEST_F(WatchTest, worker_that_missed_a_commit_is_paused_when_it_is_back) {
  connect(3);
  request(1);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::degraded);
  ASSERT_FALSE(engine(1).paused);
  advance(3s);
  EXPECT_TRUE(engine(1).paused);
  EXPECT_EQ(told(), 1);
}

TEST_F(WatchTest, caller_that_pauses_by_itself_is_left_to_it) {
  connect(3);
  ConnectPair event;
  event.spec = state().pairs.at("actor").spec;
  event.spec.policy.pause = PauseOwner::caller;
  event.new_lineage = false;
  post(event);
  request(1, event.spec.policy);
  script(1, K::load, failed(OutcomeKind::touched, "half of it"), 2);
  request(2, event.spec.policy);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  advance(10s);
  EXPECT_EQ(count(1, K::pause), 0);
}

TEST_F(WatchTest, worker_that_an_update_identified_is_watched_though_the_update_never_paused_anyone) {
  ConnectPair event;
  event.spec.name = "actor";
  event.spec.save_path = "/shared";
  event.spec.workers = {WorkerSpec{url(0), std::nullopt}, WorkerSpec{url(1), std::nullopt}};
  event.spec.trainer_urls = {trainer(0)};
  event.spec.policy.pair_lease = Milliseconds(0);
  post(event);
  seal_error = Error{ErrorCode::checkpoint_invalid, "half of it", nullptr};
  const UpdateId id = request(1);
  ASSERT_EQ(update(id).state, UpdateState::aborted);
  ASSERT_TRUE(worker(1).dialect);
  const int before = count(1, K::read_state);
  advance(30s);
  EXPECT_GT(count(1, K::read_state), before);
}

TEST_F(WatchTest, gateway_that_stops_looks_no_more) {
  tear_worker_1();
  post(Shutdown{});
  ASSERT_TRUE(stopped);
  const int before = count(1, K::read_state);
  advance(10s);
  EXPECT_EQ(count(1, K::read_state), before);
}

}  // namespace
}  // namespace weighlock::protocol
