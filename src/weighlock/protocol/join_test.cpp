// A join beside an update: who waits for whom, and what becomes of the worker.
#include "weighlock/protocol/reconcile_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

class JoinTest : public ReconcileTest {};

TEST_F(JoinTest, update_that_begins_drops_a_join_that_does_not_load_yet_and_takes_its_worker_along) {
  serve_v1(3);
  restart(1);
  silence(1, K::set_label);
  advance(15s);
  ASSERT_EQ(pair().joins.size(), 1u);
  const UpdateId second = request(2);
  EXPECT_EQ(joins(UpdateState::aborted), 1);
  EXPECT_TRUE(pair().joins.empty());
  EXPECT_EQ(update(second).state, UpdateState::succeeded);
  EXPECT_EQ(update(second).targets.at(url(1)).role, Role::extra);
  EXPECT_EQ(count(1, K::barrier), 1);
  expect_served(1, 2);
  EXPECT_EQ(worker(1).joins.failures, 0);
}

TEST_F(JoinTest, worker_that_can_not_give_the_evidence_of_its_pair_stays_out_until_less_is_asked_for) {
  engine(0).dialect = DialectKind::vllm;
  serve_v1(1);
  ConnectPair settings;
  settings.spec = pair().spec;
  settings.spec.policy.evidence = Evidence::checksum;
  settings.new_lineage = false;
  post(settings);
  ChangeWorker add;
  add.pair = "actor";
  add.worker.url = url(1);  // nobody knows yet that it is of the other dialect
  post(add);
  advance(60s);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  ASSERT_TRUE(worker(1).cause);
  EXPECT_NE(worker(1).cause->message.find("'checksum' can't be had of sglang"), std::string::npos);
  EXPECT_TRUE(engine(1).paused);
  EXPECT_EQ(fences.size(), 1u);
  EXPECT_EQ(count(1, K::load), 0);
  settings.spec.workers = pair().spec.workers;
  settings.spec.policy.evidence = Evidence::label;
  post(settings);
  advance(60s);
  expect_served(1, 1);
}

TEST_F(JoinTest, join_that_loads_is_left_out_of_an_update_and_begins_anew_after_it) {
  serve_v1(3);
  restart(1);
  silence(1, K::load);
  advance(15s);
  ASSERT_EQ(count(1, K::load), 2);
  const UpdateId second = request(2);
  EXPECT_EQ(update(second).state, UpdateState::succeeded);
  EXPECT_FALSE(update(second).targets.contains(url(1)));
  ASSERT_EQ(pair().joins.size(), 1u);
  Outcome done;
  done.kind = OutcomeKind::ok;
  engine(1).label = "1";
  engine(1).loaded = first;
  answer_silenced(1, done);  // v1, which is not what is committed any more
  advance(200s);
  expect_served(1, 2);
}

TEST_F(JoinTest, load_of_a_join_that_ends_while_an_update_runs_leaves_its_worker_paused_until_that_has_ended) {
  serve_v1(3);
  restart(1);
  silence(1, K::load);
  advance(15s);
  silence(0, K::load);
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::loading);
  Outcome done;
  done.kind = OutcomeKind::ok;
  engine(1).label = "1";
  answer_silenced(1, done);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_TRUE(engine(1).paused);
  advance(5s);
  ASSERT_LT(update(second).state, UpdateState::committing);
  EXPECT_TRUE(engine(1).paused);
  EXPECT_EQ(count(1, K::resume), 1);  // of v1
  advance(400s);
  EXPECT_EQ(update(second).state, UpdateState::degraded);
  expect_served(1, 2);
}

TEST_F(JoinTest, update_of_a_pair_whose_one_worker_is_being_loaded_waits_for_that_load) {
  serve_v1(1);
  restart(0);
  silence(0, K::load);
  advance(15s);
  ASSERT_EQ(count(0, K::load), 2);
  const UpdateId second = request(2);
  EXPECT_EQ(update(second).state, UpdateState::preparing);
  Outcome done;
  done.kind = OutcomeKind::ok;
  answer_silenced(0, done);
  EXPECT_EQ(update(second).state, UpdateState::succeeded);
  expect_served(0, 2);
}

TEST_F(JoinTest, join_begins_while_an_update_is_prepared) {
  serve_v1(2);
  silent_trainers = {trainer(0)};
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::preparing);
  restart(1);
  advance(15s);
  expect_served(1, 1);
  EXPECT_EQ(update(second).state, UpdateState::preparing);
}

TEST_F(JoinTest, pair_that_is_removed_during_a_join_leaves_nobody_paused) {
  serve_v1(2);
  restart(1);
  silence(1, K::load);
  advance(15s);
  ASSERT_TRUE(engine(1).paused);
  post(RemovePair{9, "actor"});
  advance(700s);
  EXPECT_TRUE(state().pairs.empty());
  EXPECT_FALSE(engine(1).paused);
  EXPECT_EQ(engine(1).loaded, first);
  EXPECT_EQ(replies.back().token, 9u);
}

TEST_F(JoinTest, gateway_that_stops_ends_its_joins_first) {
  serve_v1(2);
  restart(1);
  silence(1, K::load);
  advance(15s);
  post(Shutdown{});
  EXPECT_FALSE(stopped);
  Outcome done;
  done.kind = OutcomeKind::ok;
  engine(1).label = "1";
  engine(1).loaded = first;
  answer_silenced(1, done);
  EXPECT_TRUE(stopped);
  expect_served(1, 1);
}

}  // namespace
}  // namespace weighlock::protocol
