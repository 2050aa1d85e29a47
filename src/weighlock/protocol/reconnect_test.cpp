// A pair that is connected again or removed in the moment that only the machine sees: while the commit is on its way.
// The other states are tested over real sockets (gateway/reconnect_test.cpp).
#include <algorithm>
#include <utility>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

class ReconnectTest : public Fixture {
 protected:
  UpdateId commit_on_its_way() {
    connect(2);
    hold_commit = true;
    const UpdateId id = request(42);
    EXPECT_TRUE(held_durable);
    EXPECT_EQ(update(id).state, UpdateState::committing);
    return id;
  }
  void becomes_durable() {
    hold_commit = false;
    const auto durable = std::exchange(held_durable, nullptr);
    durable();
    settle();
  }
};

TEST_F(ReconnectTest, pair_connected_again_during_the_commit_finds_it_committed_and_5_after_42_is_welcome) {
  const UpdateId id = commit_on_its_way();
  ConnectPair event;
  event.token = 7;
  event.spec = state().pairs.at("actor").spec;
  event.spec.workers.pop_back();
  post(event);
  EXPECT_NE(replies.back().token, 7u);
  becomes_durable();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(replies.back().token, 7u);
  EXPECT_FALSE(replies.back().error);
  EXPECT_EQ(state().pairs.at("actor").lineage, 2);
  EXPECT_EQ(state().workers.size(), 1u);
  EXPECT_FALSE(engine(1).paused);  // it left, and runs
  EXPECT_EQ(update(request(5)).state, UpdateState::succeeded);
}

TEST_F(ReconnectTest, pair_removed_during_the_commit_ends_it_first) {
  const UpdateId id = commit_on_its_way();
  post(RemovePair{8, "actor"});
  becomes_durable();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(replies.back().token, 8u);
  EXPECT_TRUE(replies.back().abandoned.empty());
  EXPECT_TRUE(state().pairs.empty());
  EXPECT_FALSE(engine(0).paused);
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(ReconnectTest, cancel_that_comes_during_the_commit_is_refused) {
  const UpdateId id = commit_on_its_way();
  post(CancelUpdate{9, id});
  becomes_durable();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(replies.back().token, 9u);
  ASSERT_TRUE(replies.back().error);
  EXPECT_EQ(replies.back().error->code, ErrorCode::conflict);
}

TEST_F(ReconnectTest, worker_taken_by_another_pair_while_the_connect_waited_is_refused_and_the_pair_stays_as_it_was) {
  const UpdateId id = commit_on_its_way();
  ConnectPair more;
  more.token = 7;
  more.spec = state().pairs.at("actor").spec;
  more.spec.workers.push_back(WorkerSpec{url(5), std::nullopt});
  post(more);
  ConnectPair other;
  other.token = 8;
  other.spec = more.spec;
  other.spec.name = "critic";
  other.spec.workers = {WorkerSpec{url(5), std::nullopt}};
  post(other);
  becomes_durable();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(state().workers.at(url(5)).pair, "critic");
  EXPECT_EQ(state().pairs.at("actor").spec.workers.size(), 2u);
  EXPECT_EQ(state().pairs.at("actor").lineage, 1);
  const bool refused = std::any_of(replies.begin(), replies.end(), [](const Reply& reply) {
    return reply.token == 7 && reply.error && reply.error->code == ErrorCode::conflict;
  });
  EXPECT_TRUE(refused);
}

}  // namespace
}  // namespace weighlock::protocol
