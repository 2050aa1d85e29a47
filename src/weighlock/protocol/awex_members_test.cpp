// Pairs that transfer: which processes are in a group, and who comes and goes while one is built.
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

class AwexMembersTest : public Fixture {
 protected:
  AwexMembersTest() { by_transfer = true; }
  const Pair& pair() const { return state().pairs.at("actor"); }
};

TEST_F(AwexMembersTest, a_process_that_is_replaced_after_a_reconnect_is_in_no_group) {
  connect(2);
  request(1);
  connect(3);
  EXPECT_EQ(builds.size(), 2u);
  restart(1);
  advance(120s);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 3u);
}

TEST_F(AwexMembersTest, who_answers_is_read_before_a_collective_also_where_answers_are_believed) {
  connect(2);
  script(1, OperationKind::set_label, failed(OutcomeKind::untouched, "no"));
  EXPECT_EQ(update(request(1)).state, UpdateState::rolled_back);
  restart(1);
  Policy policy;
  policy.evidence = Evidence::acknowledged;
  EXPECT_EQ(update(request(2, policy)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 2u);
}

TEST_F(AwexMembersTest, a_process_that_is_replaced_after_the_group_was_built_is_asked_nothing) {
  connect(2);
  request(1);
  restart(1);
  builds_silent = true;
  const UpdateId id = request(2);
  ASSERT_EQ(builds.size(), 2u);
  restart(1);
  post(GroupBuilt{builds[1].ask, std::nullopt});
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(transfers.size(), 1u);
  EXPECT_FALSE(pair().group);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

// Its adapters' pair knew the process before the group was built; the model's pair reads it for the first time behind
// that.
TEST_F(AwexMembersTest,
       a_process_that_only_an_adapters_pair_knew_when_the_group_was_built_is_missed_when_it_is_replaced) {
  ConnectPair event;
  event.token = 2;
  event.spec.name = "adapters";
  event.spec.save_path = "/adapters";
  event.spec.lora = LoraSpec{"ad", 0};
  event.spec.workers = {WorkerSpec{url(0), std::nullopt}, WorkerSpec{url(1), std::nullopt}};
  event.spec.trainer_urls.push_back(trainer(9));
  post(event);
  RequestUpdate adapter;
  adapter.token = 3;
  adapter.pair = "adapters";
  adapter.version = 1;
  post(adapter);
  ASSERT_EQ(worker(1).incarnation, "start-1");
  connect(2);
  restart(1);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 2u);
  EXPECT_EQ(transfers.at(0).name, builds.at(1).name);
}

TEST_F(AwexMembersTest, a_member_that_was_not_reached_before_a_death_is_not_taken_for_untouched) {
  connect(2);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  script(1, OperationKind::load, failed(OutcomeKind::not_sent, "connection refused"));
  silent_trainers = {trainer(0)};
  request(2);
  flush();
  start_again();
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_FALSE(worker(1).version);
  EXPECT_TRUE(engine(1).paused);
}

TEST_F(AwexMembersTest, a_version_has_its_label_also_where_answers_are_believed) {
  connect(2);
  Policy policy;
  policy.evidence = Evidence::acknowledged;
  EXPECT_EQ(update(request(1, policy)).state, UpdateState::succeeded);
  EXPECT_EQ(engine(0).label, "1");
  EXPECT_EQ(engine(1).label, "1");
}

TEST_F(AwexMembersTest, a_worker_that_a_reconnect_leaves_out_is_the_pairs_no_more) {
  connect(3);
  request(1);
  connect(2);
  EXPECT_FALSE(state().workers.contains(url(2)));
  EXPECT_FALSE(pair().reconnect);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
}

TEST_F(AwexMembersTest, a_gateway_that_stops_refuses_who_waits_for_a_group) {
  builds_silent = true;
  connect(2);
  post(Shutdown{});
  ASSERT_EQ(replies.size(), 1u);
  ASSERT_TRUE(replies[0].error);
  EXPECT_EQ(replies[0].error->code, ErrorCode::shutting_down);
  EXPECT_TRUE(stopped);
}

TEST_F(AwexMembersTest, an_adapter_pair_may_come_beside_a_pair_that_is_being_connected) {
  builds_silent = true;
  connect(2);
  ConnectPair event;
  event.token = 2;
  event.spec.name = "adapters";
  event.spec.save_path = "/adapters";
  event.spec.lora = LoraSpec{"ad", 0};
  event.spec.workers.push_back(WorkerSpec{url(0), std::nullopt});
  event.spec.trainer_urls.push_back(trainer(0));
  post(event);
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_FALSE(replies[0].error);
}

}  // namespace
}  // namespace weighlock::protocol
