// What the model (docs/model) found in the recovery: doubts that the next start must not forget.
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class RecoveryDoubtTest : public Fixture {
 protected:
  static Policy everyone() {
    Policy policy;
    policy.on_failure = OnFailure::rollback_all;
    return policy;
  }
  void ignore_barriers(int i, int times) {
    for (int k = 0; k < times; ++k) silence(i, K::barrier);
  }
};

// Nothing waits for the record of a resume: it may be lost with the process, and the resume be on its way.
TEST_F(RecoveryDoubtTest, resume_whose_record_was_lost_is_still_barriered_after_the_deadline) {
  connect(2);
  request(1);
  silence(0, K::resume);
  request(2);
  ASSERT_EQ(count(0, K::resume), 2);  // one of each update
  for (int i = 0; i < 2; ++i) engine(i).operations.clear();
  start_again_with([&] { ignore_barriers(0, 100); });
  advance(600s);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  ASSERT_GE(count(0, K::barrier), 2);
  // Nothing else was sent, but for the question what it is.
  EXPECT_EQ(count(0, K::barrier) + count(0, K::identify), static_cast<int>(engine(0).operations.size()));
  start_again_with([&] { ignore_barriers(0, 100); });  // nor by the process after that one
  advance(60s);
  EXPECT_EQ(count(0, K::barrier) + count(0, K::identify), static_cast<int>(engine(0).operations.size()));
}

// Its load was refused, so it was untouched; then its process became another one, which the gateway saw and didn't live
// to heal. The next one may not take the new process for the untouched old one.
TEST_F(RecoveryDoubtTest, untouched_worker_that_restarted_before_the_death_is_healed_and_not_just_labelled) {
  connect(2);
  request(1);
  for (int i = 0; i < 2; ++i) silence(i, K::load);
  request(2, everyone());
  restart(0);
  script(0, K::set_label, failed(OutcomeKind::not_sent, "refused"));
  die_at_record(RecordKind::intent, "pause", false);
  answer_silenced(0, failed(OutcomeKind::untouched, "no"));
  ASSERT_TRUE(dead());
  start_again();
  advance(1000s);
  EXPECT_EQ(engine(0).loaded, "/shared/v1.a1");
  EXPECT_EQ(engine(0).label, "1");
  EXPECT_FALSE(engine(0).paused);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_TRUE(worker(0).version && worker(0).version->version == 1);
}

// The pause that was meant for the process before it reached a new one, and the update that sees it ends before it
// could bring it in.
TEST_F(RecoveryDoubtTest, new_process_that_got_our_pause_is_quarantined_when_a_survey_finds_it) {
  connect(2);
  request(1);
  silence(0, K::pause);
  const UpdateId second = request(2);
  advance(31s);
  ASSERT_EQ(update(second).state, UpdateState::degraded);
  restart(0);
  engine(0).paused = true;
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused"), -1);
  const UpdateId third = request(3, everyone());
  ASSERT_EQ(update(third).state, UpdateState::aborted);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::restarted);
  EXPECT_TRUE(worker(0).paused_by_us);
}

// What the barrier tells is an older label; what is read behind the resume tells that a heal had begun.
TEST_F(RecoveryDoubtTest, worker_whose_label_says_behind_its_resume_that_a_load_began_is_not_ready) {
  reconciles = true;
  const auto told = [](std::string label) {
    Outcome outcome;
    outcome.kind = OutcomeKind::ok;
    outcome.reading = StateReading{"start-1", std::move(label), true, "/models/start"};
    return outcome;
  };
  connect(2);
  request(1);
  die_at_record(RecordKind::commit, "", false);
  const UpdateId id = request(2);
  ASSERT_TRUE(dead());
  start_again_with([&] {
    script(0, K::barrier, told("loading:" + id));
    die_at_record(RecordKind::intent, "set_label", true);
  });
  ASSERT_TRUE(dead());
  ASSERT_EQ(engine(0).label, "loading:" + id);
  engine(0).loaded = "torn";
  start_again_with([&] { script(0, K::barrier, told("2")); });
  EXPECT_NE(worker(0).state, WorkerState::ready);
  EXPECT_TRUE(engine(0).paused);
  advance(30s);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(engine(0).label, "2");
  EXPECT_EQ(engine(0).loaded, "/shared/v2.a2");
  EXPECT_FALSE(engine(0).paused);
}

}  // namespace
}  // namespace weighlock::protocol
