// When workers are read, and how long a reading counts.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class SurveyTest : public Fixture {
 protected:
  // The pair has a version, which was sealed at once; the next one's save stays under way.
  UpdateId begin_long_save(Policy policy = {}) {
    connect(3, 1);
    request(1, policy);
    for (int i = 0; i < 3; ++i) engine(i).operations.clear();
    return begin_save(2, policy);
  }
  // Under way for long enough that workers are read, if they are to be.
  UpdateId begin_save(std::int64_t version, Policy policy = {}) {
    silent_trainers = {trainer(0)};
    const UpdateId id = request(version, policy);
    advance(25ms);
    return id;
  }
  void end_save() { post(SaveEnded{saves.back().call, SaveOutcomeKind::ok, ""}); }
};

TEST_F(SurveyTest, workers_are_read_while_the_trainers_save_where_the_last_save_was_short) {
  const UpdateId id = begin_long_save();
  ASSERT_EQ(update(id).state, UpdateState::preparing);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(engine(i).operations, std::vector<K>{K::read_state});
  advance(900ms);
  end_save();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine(i).operations.at(1), K::pause) << "it was not read twice";
    EXPECT_FALSE(engine(i).paused);
  }
}

TEST_F(SurveyTest, reading_that_is_old_when_the_save_ends_is_made_again) {
  const UpdateId id = begin_long_save();
  advance(1001ms);
  engine(0).paused = true;  // its trainer paused it
  end_save();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(engine(1).operations.at(1), K::read_state);
  EXPECT_EQ(count(0, K::pause), 0) << "a pause that was there is left to whom it belongs";
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(SurveyTest, after_a_long_save_workers_are_read_beside_the_next_seal_and_no_earlier) {
  const UpdateId second = begin_long_save();
  advance(5s);
  end_save();
  ASSERT_EQ(update(second).state, UpdateState::succeeded);
  for (int i = 0; i < 3; ++i) engine(i).operations.clear();
  const UpdateId third = begin_save(3);
  EXPECT_TRUE(engine(0).operations.empty());
  seal_error = Error{ErrorCode::checkpoint_invalid, "no shard", nullptr};
  end_save();
  EXPECT_EQ(update(third).state, UpdateState::aborted);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(engine(i).operations, std::vector<K>{K::read_state}) << "beside the seal";
}

TEST_F(SurveyTest, worker_that_was_away_when_the_save_began_is_asked_again_before_the_pause) {
  connect(3, 1);
  request(1);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "refused"));
  const UpdateId id = begin_save(2);
  end_save();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(worker(1).version->version, 2);
}

TEST_F(SurveyTest, worker_that_restarted_after_its_reading_serves_the_new_version_or_nothing) {
  for (const bool trusts : {false, true}) {
    Policy policy;
    if (trusts) policy.evidence = Evidence::acknowledged;
    const std::int64_t version = trusts ? 4 : 2;
    if (!trusts) begin_long_save(policy);
    if (trusts) begin_save(version, policy);
    restart(1);
    end_save();
    const bool serves = worker(1).state == WorkerState::ready;
    EXPECT_EQ(engine(1).paused, !serves);
    if (serves) {
      EXPECT_EQ(worker(1).incarnation, engine(1).incarnation);
      EXPECT_EQ(engine(1).label, std::to_string(version));
      EXPECT_EQ(worker(1).version->version, version);
    }
    silent_trainers.clear();
    request(version + 1, policy);
    EXPECT_EQ(worker(1).state, WorkerState::ready);
  }
}

// Its trainer had paused it; the process that answers now runs, and nobody paused that one.
TEST_F(SurveyTest, new_process_in_the_place_of_one_found_paused_is_fenced) {
  connect(3, 1);
  engine(1).paused = true;
  sealed.reference_clean = false;  // nothing to heal it with
  Policy all;
  all.on_failure = OnFailure::rollback_all;
  const UpdateId id = begin_save(1, all);
  restart(1);
  end_save();
  EXPECT_TRUE(is_terminal(update(id).state));
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_TRUE(engine(1).paused);
}

TEST_F(SurveyTest, answer_that_is_still_missing_when_the_pause_begins_is_waited_for) {
  connect(3, 1);
  request(1);
  silence(1, K::read_state);
  const UpdateId id = begin_save(2);
  advance(500ms);
  end_save();
  EXPECT_EQ(update(id).state, UpdateState::pausing);
  EXPECT_EQ(count(0, K::pause), 1) << "of the first version";
  Outcome outcome;
  outcome.reading = StateReading{engine(1).incarnation, engine(1).label, false, "/models/start"};
  outcome.kind = OutcomeKind::ok;
  answer_silenced(1, outcome);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
}

TEST_F(SurveyTest, quarantined_worker_is_watched_while_the_trainers_save) {
  connect(3, 1);
  request(1);
  script(1, K::load, failed(OutcomeKind::touched, "half of it"), 2);
  request(2);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  const UpdateId id = begin_save(3);
  engine(1).paused = false;  // somebody continues it
  advance(2s);
  EXPECT_TRUE(engine(1).paused);
  end_save();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
}

TEST_F(SurveyTest, cancel_while_workers_are_read_beside_the_save_touches_nobody) {
  connect(3, 1);
  request(1);
  silence(2, K::read_state);
  const UpdateId id = begin_save(2);
  post(CancelUpdate{7, id});
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(worker(i).state, WorkerState::ready);
  silent_trainers.clear();
  end_save();
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
}

}  // namespace
}  // namespace weighlock::protocol
