// Workers that an operator adds, removes, drains, quarantines and releases.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class OperateTest : public Fixture {
 protected:
  OperateTest() { reconciles = true; }
  void serve_v1(int workers) {
    connect(workers);
    ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
    fences.clear();
  }
  // Posts it; the token is the answer's.
  ReplyToken change(WorkerChange what, int i, std::string reason = "") {
    ChangeWorker event;
    event.token = ++token_;
    event.pair = "actor";
    event.change = what;
    event.worker.url = url(i);
    event.reason = std::move(reason);
    post(event);
    return event.token;
  }
  const Reply* answer(ReplyToken token) const {
    const auto it =
        std::find_if(replies.begin(), replies.end(), [&](const Reply& reply) { return reply.token == token; });
    return it == replies.end() ? nullptr : &*it;
  }
  void expect_done(ReplyToken token) {
    const Reply* reply = answer(token);
    ASSERT_TRUE(reply);
    EXPECT_FALSE(reply->error) << reply->error->text();
  }
  void expect_refused(ReplyToken token, ErrorCode code, const std::string& part) {
    const Reply* reply = answer(token);
    ASSERT_TRUE(reply);
    ASSERT_TRUE(reply->error);
    EXPECT_EQ(reply->error->code, code);
    EXPECT_NE(reply->error->text().find(part), std::string::npos) << reply->error->text();
  }
  std::size_t listed() const { return state().pairs.at("actor").spec.workers.size(); }
  void expect_as_replayed() {
    const State again = replayed();
    EXPECT_EQ(again.pairs.at("actor").spec.workers.size(), listed());
    EXPECT_EQ(again.workers.size(), state().workers.size());
    for (const auto& [url, worker] : state().workers) {
      ASSERT_TRUE(again.workers.contains(url)) << url;
      EXPECT_EQ(again.workers.at(url).state, worker.state) << url;
      EXPECT_EQ(again.workers.at(url).cause.has_value(), worker.cause.has_value()) << url;
    }
  }
  // Worker 1 can't be loaded any more and is quarantined.
  void tear_worker_1(int loads) {
    serve_v1(3);
    script(1, K::load, failed(OutcomeKind::touched, "half of it"), loads);
    ASSERT_EQ(update(request(2)).state, UpdateState::degraded);
  }

 private:
  ReplyToken token_ = 1000;
};

TEST_F(OperateTest, added_worker_joins_and_serves_the_committed_version) {
  serve_v1(2);
  const ReplyToken token = change(WorkerChange::add, 2);
  expect_done(token);
  EXPECT_EQ(worker(2).state, WorkerState::joining);
  expect_as_replayed();
  advance(5s);
  EXPECT_EQ(worker(2).state, WorkerState::ready);
  EXPECT_EQ(engine(2).loaded, engine(0).loaded);
  EXPECT_EQ(listed(), 3u);
  expect_as_replayed();
}

TEST_F(OperateTest, worker_added_before_the_first_version_serves_what_it_started_with) {
  connect(1);
  expect_done(change(WorkerChange::add, 1));
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_TRUE(engine(1).operations.empty());
}

TEST_F(OperateTest, worker_that_is_listed_or_belongs_to_another_pair_is_not_added) {
  serve_v1(2);
  expect_refused(change(WorkerChange::add, 1), ErrorCode::conflict, "listed already");
  ConnectPair other;
  other.spec = state().pairs.at("actor").spec;
  other.spec.name = "critic";
  other.spec.workers = {WorkerSpec{url(5), std::nullopt}};
  post(other);
  expect_refused(change(WorkerChange::add, 5), ErrorCode::conflict, "belongs to pair 'critic'");
  EXPECT_EQ(listed(), 2u);
}

TEST_F(OperateTest, change_of_what_is_not_there_is_refused_by_name) {
  serve_v1(2);
  for (const WorkerChange what :
       {WorkerChange::remove, WorkerChange::drain, WorkerChange::quarantine, WorkerChange::release})
    expect_refused(change(what, 7), ErrorCode::not_found, url(7));
  ChangeWorker event;
  event.token = 7;
  event.pair = "critic";
  event.worker.url = url(0);
  post(event);
  expect_refused(7, ErrorCode::not_found, "pair 'critic' not found");
}

TEST_F(OperateTest, removed_worker_that_serves_is_let_go_and_runs) {
  serve_v1(3);
  expect_done(change(WorkerChange::remove, 1));
  EXPECT_EQ(listed(), 2u);
  EXPECT_FALSE(state().workers.contains(url(1)));
  EXPECT_FALSE(engine(1).paused);
  expect_as_replayed();
  const int before = static_cast<int>(engine(1).operations.size());
  advance(60s);
  EXPECT_EQ(static_cast<int>(engine(1).operations.size()), before);
  EXPECT_EQ(update(request(2)).targets.size(), 2u);
}

TEST_F(OperateTest, last_worker_and_one_that_the_quorum_needs_are_not_removed) {
  serve_v1(1);
  expect_refused(change(WorkerChange::remove, 0), ErrorCode::conflict, "remove the pair instead");
  connect(3);
  ConnectPair settings;
  settings.spec = state().pairs.at("actor").spec;
  settings.spec.policy.quorum = Quorum{Quorum::Kind::count, 3};
  settings.new_lineage = false;
  post(settings);
  expect_refused(change(WorkerChange::remove, 0), ErrorCode::conflict, "quorum of 3");
  EXPECT_EQ(listed(), 3u);
}

TEST_F(OperateTest, removed_worker_that_is_held_paused_is_healed_first) {
  tear_worker_1(2);
  const ReplyToken token = change(WorkerChange::remove, 1);
  expect_done(token);
  EXPECT_TRUE(answer(token)->abandoned.empty());
  EXPECT_FALSE(state().workers.contains(url(1)));
  EXPECT_FALSE(engine(1).paused);
  EXPECT_EQ(engine(1).loaded, engine(0).loaded);
  expect_as_replayed();
}

TEST_F(OperateTest, removed_worker_that_can_not_be_healed_is_abandoned_named_and_kept_until_it_is_released) {
  tear_worker_1(-1);
  const ReplyToken token = change(WorkerChange::remove, 1);
  expect_done(token);
  ASSERT_EQ(answer(token)->abandoned.size(), 1u);
  EXPECT_NE(answer(token)->abandoned[0].find(url(1)), std::string::npos);
  EXPECT_EQ(worker(1).state, WorkerState::abandoned);
  EXPECT_EQ(listed(), 2u);
  expect_as_replayed();
  advance(100s);
  EXPECT_EQ(worker(1).state, WorkerState::abandoned);
  expect_done(change(WorkerChange::release, 1));
  EXPECT_FALSE(state().workers.contains(url(1)));
  expect_as_replayed();
}

TEST_F(OperateTest, change_that_comes_during_an_update_is_done_and_answered_when_it_has_ended) {
  serve_v1(3);
  silence(0, K::load);
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::loading);
  const ReplyToken removed = change(WorkerChange::remove, 1);
  const ReplyToken added = change(WorkerChange::add, 3);
  const ReplyToken quarantined = change(WorkerChange::quarantine, 2, "bad fan");
  EXPECT_FALSE(answer(removed));
  EXPECT_EQ(listed(), 3u);
  advance(400s);
  ASSERT_EQ(update(second).state, UpdateState::degraded);
  for (const ReplyToken token : {removed, added, quarantined}) expect_done(token);
  EXPECT_EQ(listed(), 3u);
  EXPECT_FALSE(state().workers.contains(url(1)));
  EXPECT_EQ(worker(2).state, WorkerState::quarantined);
  advance(60s);
  EXPECT_EQ(worker(3).state, WorkerState::ready);
  EXPECT_EQ(worker(3).version->version, 2);
}

TEST_F(OperateTest, drained_worker_goes_on_with_what_it_holds_and_gets_nothing_new) {
  serve_v1(3);
  expect_done(change(WorkerChange::drain, 1, "new driver"));
  EXPECT_EQ(worker(1).state, WorkerState::draining);
  EXPECT_NE(worker(1).cause->message.find("new driver"), std::string::npos);
  expect_as_replayed();
  const UpdateId second = request(2);
  EXPECT_EQ(update(second).state, UpdateState::succeeded);
  EXPECT_EQ(update(second).targets.size(), 2u);
  advance(100s);
  EXPECT_EQ(worker(1).state, WorkerState::draining);
  EXPECT_EQ(count(1, K::pause), 1);
  EXPECT_EQ(count(1, K::load), 1);
  EXPECT_FALSE(engine(1).paused);
  EXPECT_TRUE(fences.empty());
  expect_done(change(WorkerChange::remove, 1));
  EXPECT_FALSE(engine(1).paused);
  EXPECT_EQ(count(1, K::load), 1);
}

TEST_F(OperateTest, drained_worker_that_is_released_serves_at_once_what_is_still_committed) {
  serve_v1(2);
  change(WorkerChange::drain, 1);
  expect_done(change(WorkerChange::release, 1));
  advance(1s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(count(1, K::load), 1);
  change(WorkerChange::drain, 1);
  request(2);
  expect_done(change(WorkerChange::release, 1));
  advance(2s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(worker(1).version->version, 2);
  expect_as_replayed();
}

TEST_F(OperateTest, pair_whose_workers_are_all_drained_rejects_an_update_at_once) {
  serve_v1(1);
  expect_done(change(WorkerChange::drain, 0));
  const UpdateId second = request(2);
  EXPECT_EQ(update(second).state, UpdateState::rejected);
  EXPECT_FALSE(engine(0).paused);
}

TEST_F(OperateTest, worker_that_does_not_serve_can_not_be_drained) {
  tear_worker_1(-1);
  expect_refused(change(WorkerChange::drain, 1), ErrorCode::conflict, "quarantine or remove it");
}

TEST_F(OperateTest, quarantined_worker_is_paused_fenced_and_held_through_updates_and_restarts_until_it_is_released) {
  serve_v1(3);
  expect_done(change(WorkerChange::quarantine, 1, "bad fan"));
  advance(1s);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).cause->code, CauseCode::operator_hold);
  EXPECT_TRUE(engine(1).paused);
  ASSERT_EQ(fences.size(), 1u);
  EXPECT_NE(fences[0].cause.message.find("bad fan"), std::string::npos);
  expect_as_replayed();
  EXPECT_EQ(update(request(2)).state, UpdateState::degraded);
  EXPECT_EQ(count(1, K::load), 1);
  restart(1);
  advance(5s);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).cause->code, CauseCode::operator_hold);
  EXPECT_TRUE(engine(1).paused);
  start_again();
  advance(60s);
  EXPECT_EQ(worker(1).cause->code, CauseCode::operator_hold);
  EXPECT_EQ(count(1, K::load), 1);
  expect_done(change(WorkerChange::release, 1));
  advance(3s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(worker(1).version->version, 2);
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(OperateTest, operator_who_releases_a_worker_has_it_tried_at_once_whatever_it_failed_of) {
  tear_worker_1(6);
  advance(12s);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  ASSERT_GE(worker(1).joins.failures, 3);
  expect_done(change(WorkerChange::release, 1));
  EXPECT_EQ(worker(1).joins.failures, 0);
  advance(1s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
}

TEST_F(OperateTest, release_of_a_worker_that_serves_is_refused) {
  serve_v1(2);
  expect_refused(change(WorkerChange::release, 1), ErrorCode::conflict, "nothing holds it back");
}

TEST_F(OperateTest, foreign_worker_that_is_released_is_brought_back) {
  serve_v1(2);
  engine(1).label = "theirs";
  advance(15s);
  ASSERT_EQ(worker(1).state, WorkerState::foreign);
  expect_done(change(WorkerChange::release, 1));
  advance(5s);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(engine(1).label, "1");
}

TEST_F(OperateTest, changes_that_wait_are_answered_when_the_pair_is_removed_or_the_gateway_stops) {
  for (const bool stop : {false, true}) {
    connect(2);
    silence(0, K::load);
    request(1);
    const ReplyToken token = change(WorkerChange::quarantine, 1);
    if (stop)
      post(Shutdown{});
    else
      post(RemovePair{5, "actor"});
    expect_refused(token, stop ? ErrorCode::shutting_down : ErrorCode::conflict, stop ? "shutting" : "removed");
    advance(1000s);
  }
}

TEST_F(OperateTest, join_of_a_worker_that_its_operator_quarantines_ends_and_nothing_goes_out_behind_its_load) {
  serve_v1(2);
  restart(1);
  silence(1, K::load);
  advance(15s);
  ASSERT_EQ(count(1, K::load), 2);
  expect_done(change(WorkerChange::quarantine, 1));
  EXPECT_TRUE(state().pairs.at("actor").joins.empty());
  advance(30s);
  EXPECT_GE(count(1, K::barrier), 1);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_TRUE(engine(1).paused);
  EXPECT_EQ(count(1, K::load), 2);
}

}  // namespace
}  // namespace weighlock::protocol
