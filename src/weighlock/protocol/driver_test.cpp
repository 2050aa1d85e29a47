// What the driver makes durable, and when.
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

class GroupsTest : public Fixture {
 public:
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
