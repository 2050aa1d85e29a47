// Between updates: each worker is looked at, and whoever may not serve is brought back.
#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/reconcile_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

TEST_F(ReconcileTest, workers_that_serve_are_looked_at_each_ten_seconds_and_nothing_is_recorded) {
  serve_v1(3);
  advance(120s);
  EXPECT_EQ(new_records(), 0u);
  EXPECT_GE(reads.size(), 30u);
  EXPECT_LE(reads.size(), 42u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(engine(i).operations.back(), K::read_state);
}

TEST_F(ReconcileTest, one_look_of_six_reads_the_start_time_and_the_others_are_brief) {
  serve_v1(1);
  advance(240s);
  const auto whole = std::count_if(reads.begin(), reads.end(), [](const Operation& read) { return !read.brief; });
  EXPECT_GE(whole, 3);
  EXPECT_LE(static_cast<std::size_t>(whole), reads.size() / limits::kIdleLooksPerWhole + 2);
}

TEST_F(ReconcileTest, engine_that_restarts_between_updates_serves_the_version_again_without_any_request) {
  connect(3);
  engine(2).dialect = DialectKind::vllm;
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  for (const int i : {1, 2}) restart(i);
  advance(15s);
  for (const int i : {1, 2}) expect_served(i, 1);
  EXPECT_EQ(count(0, K::pause), 1);  // the other went on
  EXPECT_EQ(joins(UpdateState::succeeded), 2);
  EXPECT_EQ(pair().history.size(), 1u);  // a join is no update
  EXPECT_TRUE(fences.empty());           // a hook that deletes what restarted would never end
}

TEST_F(ReconcileTest, new_process_with_the_label_of_the_version_is_found_by_its_start_time) {
  serve_v1(2);
  restart(1);
  engine(1).label = "1";  // as an engine that was started with that label
  advance(70s);
  expect_served(1, 1);
}

TEST_F(ReconcileTest, quarantined_worker_is_brought_back_when_its_engine_takes_the_load) {
  connect(3);
  request(1);
  script(1, K::load, failed(OutcomeKind::touched, "half of it"), 4);  // the update's two, and two joins
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::degraded);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  fences.clear();
  advance(3s);
  EXPECT_EQ(joins(UpdateState::failed), 2);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).joins.failures, 2);
  EXPECT_TRUE(engine(1).paused);
  EXPECT_TRUE(fences.empty());  // it was fenced when it was quarantined first
  advance(5s);
  expect_served(1, 2);
  EXPECT_EQ(worker(1).joins.failures, 0);
}

TEST_F(ReconcileTest, worker_that_fails_again_and_again_is_tried_more_and_more_seldom) {
  serve_v1(2);
  script(1, K::load, failed(OutcomeKind::touched, "half of it"), -1);
  restart(1);
  advance(600s);
  const int tried = count(1, K::load) - 1;
  EXPECT_GE(tried, 12);  // 1, 2, 4, ... 64, and then each minute
  EXPECT_LE(tried, 20);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).joins.failures, tried);
  EXPECT_NE(worker(1).cause->message.find("half of it"), std::string::npos);
  EXPECT_LT(worker(1).cause->message.size(), 200u);
  EXPECT_EQ(fences.size(), 1u);
  flush();
  EXPECT_EQ(replayed().workers.at(url(1)).joins.failures, tried);
}

TEST_F(ReconcileTest, what_only_a_new_process_or_an_operator_cures_is_not_tried) {
  connect(3);
  request(1);
  Outcome fatal = failed(OutcomeKind::touched, "wrong shape");
  fatal.needs_restart = true;
  script(1, K::load, fatal);
  request(2);
  ASSERT_EQ(worker(1).cause->code, CauseCode::needs_restart);
  const int loads = count(1, K::load);
  advance(120s);
  EXPECT_EQ(count(1, K::load), loads);
  restart(1);
  advance(5s);
  expect_served(1, 2);
}

TEST_F(ReconcileTest, version_that_killed_two_processes_is_not_loaded_a_third_time) {
  serve_v1(2);
  for (int death = 0; death < 2; ++death) {
    restart(1);
    script(1, K::load, failed(OutcomeKind::unknown, "connection reset", ErrorCode::connection_lost));
    for (const int loads = count(1, K::load); count(1, K::load) == loads;) advance(100ms);
  }
  restart(1);
  const int loads = count(1, K::load);
  advance(300s);
  EXPECT_EQ(count(1, K::load), loads);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).cause->code, CauseCode::suspect);
  EXPECT_FALSE(fences.empty());
  request(2);
  expect_served(1, 2);
}

TEST_F(ReconcileTest, quarantined_worker_tells_that_its_version_became_suspect) {
  serve_v1(3);
  script(2, K::load, failed(OutcomeKind::untouched, "400 no"), -1);
  restart(2);
  advance(15s);
  ASSERT_EQ(worker(2).state, WorkerState::quarantined);
  ASSERT_EQ(worker(2).cause->code, CauseCode::heal_failed);
  for (int death = 0; death < 2; ++death) {
    restart(1);
    script(1, K::load, failed(OutcomeKind::unknown, "connection reset", ErrorCode::connection_lost));
    for (const int loads = count(1, K::load); count(1, K::load) == loads;) advance(100ms);
  }
  restart(1);
  advance(300s);
  EXPECT_EQ(worker(1).cause->code, CauseCode::suspect);
  EXPECT_EQ(worker(2).cause->code, CauseCode::suspect);
  flush();
  EXPECT_EQ(replayed().workers.at(url(2)).cause->code, CauseCode::suspect);
}

TEST_F(ReconcileTest, worker_that_was_only_out_of_reach_serves_again_after_a_read_and_no_load) {
  connect(2);
  request(1);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  Policy all;
  all.on_failure = OnFailure::rollback_all;
  ASSERT_EQ(update(request(2, all)).state, UpdateState::aborted);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  advance(3s);
  expect_served(1, 1);
  EXPECT_EQ(count(1, K::load), 1);
  EXPECT_EQ(count(1, K::pause), 1);
}

TEST_F(ReconcileTest, worker_that_missed_a_commit_is_brought_to_it_when_it_is_back) {
  connect(3);
  request(1);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable), 3);
  ASSERT_EQ(update(request(2)).state, UpdateState::degraded);
  advance(30s);
  expect_served(1, 2);
}

TEST_F(ReconcileTest, worker_that_joins_the_pair_is_brought_to_the_committed_version) {
  serve_v1(2);
  connect(3);
  EXPECT_EQ(worker(2).state, WorkerState::joining);
  advance(5s);
  expect_served(2, 1);
}

TEST_F(ReconcileTest, joins_of_one_pair_run_at_the_same_time_up_to_its_load_window) {
  for (const int window : {0, 2}) {
    SCOPED_TRACE(window);
    connect(6);
    ConnectPair settings;
    settings.spec = pair().spec;
    settings.spec.policy.load_window = window;
    settings.new_lineage = false;
    post(settings);
    request(window + 1);
    for (int i = 0; i < 5; ++i) {
      restart(i);
      silence(i, K::load);
    }
    advance(20s);
    EXPECT_EQ(pair().joins.size(), window == 0 ? 5u : 2u);
    advance(3000s);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
  }
}

TEST_F(ReconcileTest, pair_that_is_not_in_use_is_watched_and_not_touched) {
  serve_v1(2);
  advance(3700s);
  restart(1);
  advance(20s);
  EXPECT_EQ(worker(1).state, WorkerState::joining);
  EXPECT_TRUE(is_dormant(pair(), now()));
  advance(600s);
  EXPECT_EQ(count(1, K::load), 1);
  EXPECT_EQ(count(1, K::pause), 1);
  connect(2);  // it is in use again
  advance(15s);
  expect_served(1, 1);
}

TEST_F(ReconcileTest, lease_grows_with_the_time_between_two_updates) {
  serve_v1(2);
  advance(3000s);
  request(2);
  advance(4 * 3000s - 60s);
  EXPECT_FALSE(is_dormant(pair(), now()));
  advance(120s);
  EXPECT_TRUE(is_dormant(pair(), now()));
  flush();
  EXPECT_EQ(replayed().pairs.size(), 1u);
}

TEST_F(ReconcileTest, label_of_somebody_else_makes_a_worker_foreign_which_is_told_once_and_never_written_to) {
  serve_v1(2);
  engine(1).label = "theirs";
  engine(1).paused = true;
  advance(300s);
  EXPECT_EQ(worker(1).state, WorkerState::foreign);
  EXPECT_EQ(remarks("foreign"), 1);
  for (const K kind : {K::pause, K::resume, K::load, K::set_label, K::flush})
    EXPECT_LE(count(1, kind), kind == K::set_label || kind == K::pause || kind == K::load || kind == K::resume ? 1 : 0);
  EXPECT_TRUE(engine(1).paused);
  request(2);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
}

TEST_F(ReconcileTest, pause_of_somebody_else_is_told_once_and_left_alone) {
  serve_v1(1);
  engine(0).paused = true;
  advance(120s);
  EXPECT_EQ(remarks(kPausedByOther), 1);
  EXPECT_TRUE(worker(0).paused_by_other);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_TRUE(engine(0).paused);
  const auto doubts = std::count_if(reads.begin(), reads.end(), [](const Operation& read) { return read.doubt_pause; });
  EXPECT_LE(doubts, 2);  // an engine that is only unwell is asked for a token, and not each time
  engine(0).paused = false;
  advance(25s);
  EXPECT_FALSE(worker(0).paused_by_other);
  engine(0).paused = true;
  advance(25s);
  EXPECT_EQ(remarks(kPausedByOther), 2);
}

TEST_F(ReconcileTest, engine_that_misses_a_few_looks_stays_ready_and_is_looked_at_again_sooner) {
  serve_v1(2);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable), 4);
  advance(60s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(new_records(), 0u);
  const auto asked =
      static_cast<int>(std::count(engine(1).operations.begin(), engine(1).operations.end(), K::read_state));
  const auto other =
      static_cast<int>(std::count(engine(0).operations.begin(), engine(0).operations.end(), K::read_state));
  EXPECT_GT(asked, other);
}

// --- after a start

TEST_F(ReconcileTest, after_a_start_each_worker_is_read_before_it_is_believed) {
  serve_v1(4);
  restart(1);
  engine(2).label = "57";  // somebody went on without us
  start_again();
  reads.clear();
  advance(2s);
  EXPECT_EQ(std::count_if(reads.begin(), reads.end(), [](const Operation& read) { return !read.brief; }),
            static_cast<std::ptrdiff_t>(reads.size()));
  EXPECT_GE(reads.size(), 4u);
  advance(5s);
  EXPECT_EQ(worker(2).state, WorkerState::foreign);
  EXPECT_EQ(engine(2).label, "57");
  expect_served(1, 1);
  expect_served(0, 1);
}

TEST_F(ReconcileTest, gateway_that_dies_at_any_point_of_a_join_barriers_reads_and_joins_again) {
  for (int n = 1; n < 40; ++n) {
    for (const bool performed : {false, true}) {
      struct World : ReconcileTest {
        void TestBody() override {}
        using ReconcileTest::expect_served;
        using ReconcileTest::pair;
      } world;
      world.connect(2);
      world.request(1);
      world.restart(1);
      world.die_at_group(n, performed);
      world.advance(15s);
      if (!world.dead()) {
        ASSERT_GT(n, 3);  // a join has several groups
        world.expect_served(1, 1);
        return;
      }
      world.engine(1).operations.clear();
      const bool began = !world.replayed().pairs.at("actor").joins.empty();
      world.start_again();
      if (began) {
        EXPECT_EQ(world.engine(1).operations.front(), K::barrier) << n;
      }
      world.advance(60s);
      SCOPED_TRACE(std::to_string(n) + (performed ? " performed" : ""));
      world.expect_served(1, 1);
      EXPECT_TRUE(world.pair().joins.empty());
      EXPECT_TRUE(world.pair().active.empty());
      EXPECT_EQ(world.pair().history.size(), 1u);
      EXPECT_EQ(world.update(world.request(2)).state, UpdateState::succeeded);
    }
  }
  FAIL() << "the join never ended";
}

}  // namespace
}  // namespace weighlock::protocol
