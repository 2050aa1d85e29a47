// Workers that can't join a transfer group, and those without which it is built.
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

class AwexRefusedTest : public Fixture {
 protected:
  AwexRefusedTest() { by_transfer = true; }
  // From now on: the next bring-ups fail by themselves with these workers.
  void refuses(std::vector<int> workers, int times = 1, bool unreachable = false) {
    build_error = Error{ErrorCode::worker_failed, "worker answered 500 \"CUDA error: out of memory\"", nullptr};
    build_refused.clear();
    for (const int i : workers) build_refused.push_back({url(i), "CUDA error: out of memory", unreachable});
    build_failures = times;
  }
  // Three that serve version 1, the last of which is a new process since.
  void serve_with_a_new_process() {
    connect(3);
    ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
    restart(2);
  }
};

TEST_F(AwexRefusedTest, a_worker_that_fails_by_itself_is_out_and_the_others_are_updated) {
  serve_with_a_new_process();
  refuses({2});
  const UpdateId id = request(2);
  EXPECT_TRUE(update(id).committed.value_or(false)) << update(id).error->text();
  ASSERT_EQ(builds.size(), 3u);
  EXPECT_EQ(builds[2].workers, (std::vector<std::string>{url(0), url(1)}));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(engine(i).label, "2") << i;
  EXPECT_EQ(worker(2).state, WorkerState::quarantined);
  ASSERT_TRUE(worker(2).cause);
  EXPECT_EQ(worker(2).cause->code, CauseCode::needs_restart);
  EXPECT_NE(worker(2).cause->message.find("CUDA error: out of memory"), std::string::npos) << worker(2).cause->message;
  EXPECT_NE(worker(2).cause->message.find("restart it, or release it"), std::string::npos) << worker(2).cause->message;
}

TEST_F(AwexRefusedTest, it_costs_later_updates_nothing_until_it_is_a_new_process) {
  serve_with_a_new_process();
  refuses({2});
  request(2);
  EXPECT_TRUE(update(request(3)).committed.value_or(false));
  EXPECT_EQ(builds.size(), 3u);
  restart(2);
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
  EXPECT_EQ(worker(2).state, WorkerState::ready);
  EXPECT_EQ(builds.back().workers.size(), 3u);
}

TEST_F(AwexRefusedTest, one_that_served_and_fails_is_left_out_while_the_quorum_is_met) {
  serve_with_a_new_process();
  refuses({1});
  const UpdateId id = request(2);
  EXPECT_TRUE(update(id).committed.value_or(false));
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(2).state, WorkerState::ready);
}

TEST_F(AwexRefusedTest, one_that_could_not_be_reached_is_tried_by_the_next_update) {
  serve_with_a_new_process();
  refuses({2}, 1, true);
  EXPECT_TRUE(update(request(2)).committed.value_or(false));
  EXPECT_EQ(worker(2).cause->code, CauseCode::unreachable);
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  EXPECT_EQ(worker(2).state, WorkerState::ready);
}

TEST_F(AwexRefusedTest, where_all_are_asked_for_nobody_is_left_out) {
  serve_with_a_new_process();
  refuses({1});
  Policy policy;
  policy.quorum.kind = Quorum::Kind::all;
  const UpdateId id = request(2, policy);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(builds.size(), 2u);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  Policy strict;
  strict.on_failure = OnFailure::rollback_all;
  restart(2);
  refuses({2});
  EXPECT_EQ(update(request(3, strict)).state, UpdateState::aborted);
  EXPECT_EQ(builds.size(), 3u);
}

TEST_F(AwexRefusedTest, if_none_is_left_the_update_ends_with_their_words) {
  serve_with_a_new_process();
  refuses({0, 1, 2});
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_NE(update(id).error->text().find("CUDA error"), std::string::npos);
  EXPECT_EQ(builds.size(), 2u);
}

TEST_F(AwexRefusedTest, a_failure_that_nobody_is_named_for_is_not_tried_again) {
  serve_with_a_new_process();
  refuses({});
  EXPECT_EQ(update(request(2)).state, UpdateState::aborted);
  EXPECT_EQ(builds.size(), 2u);
}

TEST_F(AwexRefusedTest, where_devices_are_shared_there_is_no_group_of_some) {
  awex.colocate = true;
  serve_with_a_new_process();
  refuses({2});
  EXPECT_EQ(update(request(2)).state, UpdateState::aborted);
  EXPECT_EQ(builds.size(), 2u);
}

}  // namespace
}  // namespace weighlock::protocol
