// Pause mode `keep`: running requests go on, so the cache can be flushed only when the engine is idle for once.
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class KeepModeTest : public Fixture {
 protected:
  static Policy keeping() {
    Policy policy;
    policy.pause_mode = PauseMode::keep;
    return policy;
  }
  static Outcome busy() {
    Outcome outcome;
    outcome.kind = OutcomeKind::untouched;
    outcome.text = "answered 400 \"Flush cache failed.\"";
    return outcome;
  }
  const Target& target(const UpdateId& id, int i) const { return update(id).targets.at(url(i)); }
};

TEST_F(KeepModeTest, an_engine_that_is_never_idle_serves_with_what_it_could_not_flush_told) {
  connect(2);
  script(0, K::flush, busy(), -1);
  const UpdateId id = request(1, keeping());
  advance(20s);
  EXPECT_EQ(update(id).state, UpdateState::resuming);
  advance(20s);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_GT(count(0, K::flush), 20);
  EXPECT_EQ(target(id, 0).verdict, Verdict::verified);
  ASSERT_TRUE(target(id, 0).cause) << "its old prefixes are told";
  EXPECT_EQ(target(id, 0).cause->code, CauseCode::flush_failed);
  EXPECT_FALSE(worker(0).cause);
  EXPECT_FALSE(target(id, 1).cause);
}

TEST_F(KeepModeTest, an_engine_that_is_idle_in_time_is_flushed_and_nothing_is_told) {
  connect(1);
  script(0, K::flush, busy(), 2);
  const UpdateId id = request(1, keeping());
  EXPECT_EQ(update(id).state, UpdateState::resuming);
  advance(3s);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::flush), 3);
  EXPECT_FALSE(target(id, 0).cause);
}

TEST_F(KeepModeTest, what_was_told_of_old_prefixes_outlives_the_process) {
  connect(1);
  script(0, K::flush, busy(), -1);
  const UpdateId id = request(1, keeping());
  advance(40s);
  ASSERT_EQ(update(id).state, UpdateState::succeeded);
  flush();
  const Update again = replayed().updates.at(id);
  ASSERT_TRUE(again.targets.at(url(0)).cause);
  EXPECT_EQ(again.targets.at(url(0)).cause->code, CauseCode::flush_failed);
}

}  // namespace
}  // namespace weighlock::protocol
