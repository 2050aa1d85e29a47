// What the driver makes durable, and when.
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

class GroupsTest : public Fixture {
 public:
  void stepping(const State& /*state*/, const Event& event) override { stepped_at.push_back(event.now); }
  std::vector<Instant> stepped_at;
  std::size_t groups_of_an_update(int workers, Policy policy) {
    connect(workers);
    request(1, policy);
    groups.clear();
    const UpdateId id = request(2, policy);
    EXPECT_EQ(update(id).state, UpdateState::succeeded);
    return groups.size();
  }
};

constexpr std::size_t kGroupsMax = 6;  // a checkpoint's two fsyncs may come on top

TEST_F(GroupsTest, an_update_of_one_worker_costs_few_groups) {
  EXPECT_LE(groups_of_an_update(1, {}), kGroupsMax);
}

TEST_F(GroupsTest, a_hundred_workers_cost_no_more) {
  EXPECT_LE(groups_of_an_update(100, {}), kGroupsMax);
}

TEST_F(GroupsTest, a_hundred_workers_whose_answers_are_trusted_cost_no_more) {
  Policy policy;
  policy.evidence = Evidence::acknowledged;
  EXPECT_LE(groups_of_an_update(100, policy), kGroupsMax);
}

TEST_F(GroupsTest, what_is_held_is_announced_and_can_be_flushed) {
  connect(2);
  held = false;
  silence(0, OperationKind::load);
  request(1);
  EXPECT_TRUE(held);
  const std::size_t before = records.size();
  flush();
  EXPECT_GT(records.size(), before) << "what the others answered meanwhile";
  const std::size_t flushed = records.size();
  flush();
  EXPECT_EQ(records.size(), flushed);
}

// What is stale is stale then, whenever the edge heard of it.
TEST_F(GroupsTest, an_event_that_waited_for_the_disk_is_stepped_with_the_time_of_its_step) {
  connect(2);
  request(1);
  hold_commit = true;
  const UpdateId id = request(2);
  ASSERT_TRUE(held_durable);
  stepped_at.clear();
  post(CancelUpdate{7, id});
  EXPECT_TRUE(stepped_at.empty());
  stand_still(Milliseconds(10'000));
  held_durable();
  ASSERT_FALSE(stepped_at.empty());
  EXPECT_EQ(stepped_at.front(), now());
}

TEST_F(GroupsTest, the_end_of_an_update_holds_nothing_back) {
  connect(2);
  request(1);
  ASSERT_FALSE(records.empty());
  EXPECT_EQ(records.back().kind, RecordKind::update_ended);
  const std::size_t before = records.size();
  flush();
  EXPECT_EQ(records.size(), before);
}

}  // namespace
}  // namespace weighlock::protocol
