// A worker that restarted gets its adapters back between updates, after its own model.
#include <algorithm>

#include "weighlock/protocol/lora_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;
using Names = std::map<std::string, std::string>;

class AdapterJoinTest : public LoraFixture {
 public:
  AdapterJoinTest() {
    reconciles = true;
    spec.policy = {};
  }
  // Version 1 of the model, and two of the adapter, on two workers.
  void serve(Milliseconds lease = Milliseconds(3'600'000)) {
    connect(2);
    request(1);
    spec.policy.pair_lease = lease;
    connect_lora(2);
    for (const std::int64_t version : {1, 2}) request_lora(version);
  }
  void expect_served(int i) {
    EXPECT_EQ(engine(i).adapters, (Names{{"policy-v1", "/shared/v1.a1"}, {"policy-v2", "/shared/v2.a2"}}));
    const WorkerAdapters& known = lora().adapters.at(url(i));
    ASSERT_TRUE(known.version);
    EXPECT_EQ(known.version->version, 2);
    EXPECT_FALSE(known.cause);
    EXPECT_EQ(worker(i).state, WorkerState::ready);
  }
};

TEST_F(AdapterJoinTest, engine_that_restarts_gets_its_model_first_and_then_the_window) {
  serve();
  expect_served(1);
  restart(1);
  engine(1).operations.clear();
  advance(30s);
  expect_served(1);
  const auto& did = engine(1).operations;
  const auto model = std::find(did.begin(), did.end(), K::load);
  const auto adapter = std::find(did.begin(), did.end(), K::load_adapter);
  ASSERT_NE(model, did.end());
  ASSERT_NE(adapter, did.end());
  EXPECT_LT(model - did.begin(), adapter - did.begin());
  EXPECT_EQ(std::count(did.begin(), did.end(), K::pause), 1);
  EXPECT_EQ(lora().history.size(), 2u);
  EXPECT_EQ(lora().joins_ended.size(), 1u);
  advance(100s);
  EXPECT_EQ(std::count(did.begin(), did.end(), K::load_adapter), 2);  // it is done once
}

TEST_F(AdapterJoinTest, engine_that_only_adapters_are_loaded_into_gets_them_back_too) {
  connect_lora(2);
  for (const std::int64_t version : {1, 2}) request_lora(version);
  expect_served(1);
  restart(1);
  engine(1).operations.clear();
  advance(90s);
  expect_served(1);
  const auto& did = engine(1).operations;
  EXPECT_EQ(std::count(did.begin(), did.end(), K::load_adapter), 2);
  EXPECT_EQ(std::count(did.begin(), did.end(), K::load) + std::count(did.begin(), did.end(), K::pause), 0);
  engine(1).label = "of-somebody-else";
  engine(1).paused = true;
  advance(90s);
  EXPECT_EQ(worker(1).state, WorkerState::ready) << "its model is nobody's here";
}

TEST_F(AdapterJoinTest, engine_whose_dialect_was_found_after_the_commit_is_looked_at_from_then_on) {
  connect_lora(2);
  script(1, K::identify, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  ASSERT_EQ(update(request_lora(1)).state, UpdateState::degraded);
  ASSERT_FALSE(worker(1).dialect);
  seal_error = Error{ErrorCode::checkpoint_invalid, "no such file", nullptr};
  ASSERT_EQ(update(request_lora(2)).state, UpdateState::aborted);
  ASSERT_TRUE(worker(1).dialect);
  advance(60s);
  EXPECT_EQ(engine(1).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
}

TEST_F(AdapterJoinTest, look_at_an_engine_that_only_adapters_were_loaded_into_ends_when_their_pair_is_removed) {
  connect_lora(2);
  request_lora(1);
  silence(1, K::read_state);
  advance(12s);
  ASSERT_TRUE(worker(1).watch.call);
  const std::size_t before = cancels.size();
  post(RemovePair{60, "lora"});
  EXPECT_TRUE(state().workers.empty());
  EXPECT_EQ(cancels.size(), before + 1);
}

TEST_F(AdapterJoinTest, update_that_comes_meanwhile_waits_for_it) {
  serve();
  restart(1);
  silence(1, K::load_adapter);
  advance(30s);
  ASSERT_EQ(lora().joins.size(), 1u);
  const UpdateId third = request_lora(3);
  EXPECT_EQ(update(third).state, UpdateState::preparing);
  advance(400s);
  EXPECT_EQ(update(third).state, UpdateState::succeeded);
  EXPECT_TRUE(engine(1).adapters.contains("policy-v3"));
  EXPECT_EQ(worker(1).joins.failures, 0);  // the worker itself is as before
}

TEST_F(AdapterJoinTest, what_can_not_be_loaded_is_told_and_left_to_the_next_update) {
  serve();
  restart(1);
  script(1, K::load_adapter, failed(OutcomeKind::untouched, "rank too high"), 4);
  advance(100s);
  ASSERT_TRUE(lora().adapters.at(url(1)).cause);
  EXPECT_NE(lora().adapters.at(url(1)).cause->message.find("rank too high"), std::string::npos);
  EXPECT_EQ(lora().joins_ended.size(), 1u);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
}

TEST_F(AdapterJoinTest, pair_that_is_not_in_use_is_left_alone) {
  serve(Milliseconds(0));
  restart(1);
  advance(60s);
  EXPECT_TRUE(engine(1).adapters.empty());
  EXPECT_EQ(worker(1).version->version, 1);
}

TEST_F(AdapterJoinTest, gateway_that_dies_meanwhile_lists_and_loads_again) {
  for (int n = 1; n < 60; ++n) {
    for (const bool performed : {false, true}) {
      SCOPED_TRACE(std::to_string(n) + (performed ? " performed" : ""));
      struct World : AdapterJoinTest {
        void TestBody() override {}
      } world;
      world.serve();
      world.restart(1);
      world.die_at_group(n, performed);
      world.advance(40s);
      if (!world.dead()) {
        EXPECT_GT(n, 4);
        return world.expect_served(1);
      }
      world.start_again();
      world.advance(60s);
      world.expect_served(1);
      EXPECT_TRUE(world.lora().joins.empty());
    }
  }
  FAIL() << "it never ended";
}

}  // namespace
}  // namespace weighlock::protocol
