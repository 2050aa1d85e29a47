// A pair that transfers, and whose trainers another gateway may have in a group of its own since.
#include "weighlock/protocol/ownership_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

class AwexLostTest : public Fixture {
 protected:
  AwexLostTest() { by_transfer = true; }
  // Another gateway updates the same workers, and nothing but their labels shows it.
  void labels_of_another() {
    for (int i = 0; i < 2; ++i) engine(i).label = "77";
    advance(60s);
    ASSERT_EQ(worker(0).state, WorkerState::foreign);
  }
};

TEST_F(AwexLostTest, a_disconnect_of_workers_that_are_anothers_tells_no_trainer_to_leave) {
  connect(2);
  request(1);
  labels_of_another();
  post(RemovePair{7, "actor"});
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].name, builds[0].name) << "its keys go";
  EXPECT_TRUE(drops[0].trainers.empty());
}

TEST_F(AwexLostTest, a_process_that_starts_and_finds_workers_that_are_anothers_tells_no_trainer_to_leave) {
  connect(2);
  request(1);
  start_again();
  labels_of_another();
  post(RemovePair{7, "actor"});
  EXPECT_TRUE(drops.empty());
  EXPECT_TRUE(state().left_groups.empty());
}

TEST_F(AwexLostTest, an_update_of_workers_that_are_anothers_builds_a_group_anew) {
  connect(2);
  request(1);
  labels_of_another();
  EXPECT_EQ(update(request(78)).state, UpdateState::succeeded);
  ASSERT_EQ(builds.size(), 2u);
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].trainers.size(), 2u) << "they are to join the next one";
}

class AwexSupersededTest : public OwnedFixture {
 protected:
  AwexSupersededTest() { by_transfer = true; }
};

TEST_F(AwexSupersededTest, a_disconnect_of_a_pair_that_another_gateway_took_tells_no_trainer_to_leave) {
  serve_v1();
  lost_to_another();
  post(RemovePair{7, "actor"});
  EXPECT_TRUE(state().pairs.empty());
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_TRUE(drops[0].trainers.empty());
}

TEST_F(AwexSupersededTest, a_group_that_stands_when_the_pair_is_lost_is_left_to_the_other_gateway) {
  serve_v1();
  restart(1);
  builds_silent = true;
  request(2);
  lost_to_another();
  const std::size_t before = drops.size();
  post(GroupBuilt{builds.back().ask, std::nullopt});
  ASSERT_EQ(drops.size(), before + 1);
  EXPECT_TRUE(drops.back().trainers.empty());
}

}  // namespace
}  // namespace weighlock::protocol
