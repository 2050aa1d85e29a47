// The answer to a load is lost: the engine is asked before anything is sent again.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using K = OperationKind;

class LostAnswerTest : public Fixture {
 protected:
  // What the lost load did: all of it, or nothing.
  UpdateId lose(bool took_it, DialectKind dialect = DialectKind::sglang) {
    for (int i = 0; i < 2; ++i) engine(i).dialect = dialect;
    connect(2);
    script(0, K::load, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost));
    if (took_it) {
      Outcome whole;
      whole.kind = OutcomeKind::ok;
      whole.reading = StateReading{"start-1", "1", true, "/models/start"};
      script(0, K::barrier, whole);
      engine(0).loaded = "/shared/v1.a1";
    }
    return request(1);
  }
};

TEST_F(LostAnswerTest, engine_that_shows_the_old_version_is_sent_the_load_once_more) {
  const UpdateId id = lose(false);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load), 2);
  EXPECT_EQ(count(1, K::load), 1);
  EXPECT_EQ(update(id).targets.at(url(0)).verdict, Verdict::verified);
}

TEST_F(LostAnswerTest, vllm_whose_label_is_a_step_of_its_own_is_sent_the_load_once_more) {
  const UpdateId id = lose(false, DialectKind::vllm);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load), 2);
}

// What it showed is long ago: it may have ended since, and a new process would take the load unlabelled and unpaused.
TEST_F(LostAnswerTest, second_load_behind_an_answer_that_took_long_waits_for_a_reading) {
  for (int i = 0; i < 2; ++i) engine(i).dialect = DialectKind::vllm;
  connect(2);
  script(0, K::load, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost));
  silence(0, K::barrier);
  request(1);
  ASSERT_EQ(count(0, K::barrier), 1);
  Outcome old;
  old.kind = OutcomeKind::ok;
  old.reading = StateReading{engine(0).incarnation, engine(0).label, true, "/models/start"};
  advance(std::chrono::seconds(5));
  restart(0);
  const std::size_t before = engine(0).operations.size();
  answer_silenced(0, old);
  ASSERT_GT(engine(0).operations.size(), before);
  EXPECT_EQ(engine(0).operations[before], K::read_state);
  EXPECT_EQ(worker(0).incarnation, engine(0).incarnation);
}

TEST_F(LostAnswerTest, engine_that_proves_the_new_version_is_not_sent_it_again) {
  Outcome proven;
  proven.kind = OutcomeKind::ok;
  proven.reading = StateReading{"start-1", "1", true, "/models/start"};
  proven.evidence = Evidence::spot;
  script(0, K::verify, proven);
  Outcome continued;
  continued.kind = OutcomeKind::ok;
  continued.reading = StateReading{"start-1", "1", false, "/models/start"};
  script(0, K::resume, continued);
  const UpdateId id = lose(true);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load), 1);
}

TEST_F(LostAnswerTest, new_label_alone_is_no_proof_and_the_load_is_sent_again) {
  Outcome labelled;
  labelled.kind = OutcomeKind::ok;
  labelled.reading = StateReading{"start-1", "1", true, "/models/start"};
  labelled.evidence = Evidence::spot;
  labelled.vacuous = true;
  script(0, K::verify, labelled);
  const UpdateId id = lose(true);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load), 2);
}

// The first load may have run: then the engine holds weights that nobody committed, and it is healed.
TEST_F(LostAnswerTest, refused_second_load_doesnt_make_the_first_one_undone) {
  connect(2);
  request(1);
  Policy all;
  all.on_failure = OnFailure::rollback_all;
  script(0, K::load, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost));
  script(0, K::load, failed(OutcomeKind::untouched, "400 no"));
  Outcome whole;
  whole.kind = OutcomeKind::ok;
  whole.reading = StateReading{"start-1", "2", true, "/models/start"};
  script(0, K::barrier, whole);
  Outcome labelled = whole;
  labelled.evidence = Evidence::spot;
  labelled.vacuous = true;
  script(0, K::verify, labelled);
  engine(0).loaded = "/shared/v2.a2";
  const UpdateId id = request(2, all);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(engine(0).loaded, "/shared/v1.a1");
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

TEST_F(LostAnswerTest, label_is_no_answer_where_only_answers_are_believed) {
  connect(2);
  Policy trusting;
  trusting.evidence = Evidence::acknowledged;
  script(0, K::load, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost));
  Outcome whole;
  whole.kind = OutcomeKind::ok;
  whole.reading = StateReading{"start-1", "1", true, "/models/start"};
  script(0, K::barrier, whole);
  const UpdateId id = request(1, trusting);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load), 2);
}

TEST_F(LostAnswerTest, engine_that_is_gone_is_no_verdict_for_the_others) {
  script(0, K::barrier, failed(OutcomeKind::not_sent, "refused"), -1);
  const UpdateId id = lose(false);
  EXPECT_EQ(update(id).state, UpdateState::degraded);
  EXPECT_EQ(count(0, K::load), 1);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
}

TEST_F(LostAnswerTest, engine_that_restarted_is_not_taken_for_the_one_that_was_sent_the_load) {
  Outcome other;
  other.kind = OutcomeKind::ok;
  other.reading = StateReading{"start-2", "default", false, "/models/start"};
  script(0, K::barrier, other);
  const UpdateId id = lose(false);
  ASSERT_TRUE(update(id).targets.contains(url(0)));
  EXPECT_NE(update(id).state, UpdateState::failed);
  EXPECT_NE(update(id).targets.at(url(0)).verdict, Verdict::loaded);
}

// It did its work, and the next one was refused: the worker is as the first one left it.
void lose_then_refuse(Fixture& fixture) {
  fixture.connect(1);
  fixture.script(0, K::load, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost));
  fixture.script(0, K::load, failed(OutcomeKind::untouched, "no such directory"));
  fixture.request(1);
}

TEST_F(LostAnswerTest, load_that_is_refused_after_a_lost_one_leaves_the_worker_touched) {
  lose_then_refuse(*this);
  EXPECT_EQ(count(0, K::load), 3);
  EXPECT_EQ(engine(0).loaded, "/models/start");
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

// Nobody knows what it holds while the second load waits for its directory.
TEST_F(LostAnswerTest, worker_whose_load_was_lost_is_healed_when_the_update_is_cancelled_before_it_is_sent_again) {
  connect(1);
  script(0, K::load, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost));
  script(0, K::load, failed(OutcomeKind::untouched, "no such directory", ErrorCode::checkpoint_missing));
  const UpdateId id = request(1);
  ASSERT_EQ(count(0, K::load), 2);
  engine(0).loaded = "/shared/v1.a1";
  post(CancelUpdate{0, id});
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(engine(0).loaded, "/models/start");
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

struct World : Fixture {
  void TestBody() override {}
};

TEST(LostAnswer, load_that_is_refused_after_a_lost_one_is_remembered_by_the_next_process) {
  bool lived = false;
  for (int n = 1; !lived; ++n) {
    World world;
    world.die_at_group(n, true);
    lose_then_refuse(world);
    lived = !world.dead();
    if (lived) continue;
    const int loads = world.count(0, K::load);
    if (loads == 1 || loads == 2) world.engine(0).loaded = "half of v1";
    world.start_again();
    world.advance(std::chrono::seconds(1000));
    EXPECT_EQ(world.engine(0).loaded, "/models/start") << n;
    EXPECT_FALSE(world.engine(0).paused) << n;
  }
}

// Where answers are believed no `loading:` is written, so the label may have stood there before.
TEST_F(LostAnswerTest, label_that_stood_there_before_proves_no_load) {
  engine(0).label = "1";
  engine(0).loaded = "v1 of another life";
  connect(1);
  script(0, K::load, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost));
  Policy policy;
  policy.evidence = Evidence::acknowledged;
  request(1, policy);
  EXPECT_EQ(count(0, K::load), 2);
  EXPECT_EQ(engine(0).loaded, "/shared/v1.a1");
}

// To whoever reads the journal a new intent ends what was planned before it.
TEST_F(LostAnswerTest, step_behind_a_repeated_load_has_an_intent_of_its_own) {
  engine(0).dialect = DialectKind::vllm;
  connect(1);
  silence(0, K::load);
  request(1);
  silence(0, K::set_label);
  answer_silenced(0, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost));
  ASSERT_TRUE(worker(0).in_flight);
  ASSERT_EQ(worker(0).in_flight->kind, K::set_label);
  const CallId call = worker(0).in_flight->call;
  const State next = replayed();
  const auto& earlier = next.workers.at(url(0)).earlier;
  EXPECT_TRUE(std::any_of(earlier.begin(), earlier.end(), [&](const EarlierCall& one) { return one.call == call; }));
}

TEST_F(LostAnswerTest, label_of_the_way_back_has_an_intent_of_its_own) {
  engine(0).dialect = DialectKind::vllm;
  connect(1);
  request(1);
  silence(0, K::set_label);
  const UpdateId second = request(2);  // the label of its version is planned behind this one
  silence(0, K::set_label);
  post(CancelUpdate{0, second});
  ASSERT_TRUE(worker(0).in_flight && worker(0).in_flight->kind == K::set_label);
  const CallId call = worker(0).in_flight->call;
  const State next = replayed();
  const auto& earlier = next.workers.at(url(0)).earlier;
  EXPECT_TRUE(std::any_of(earlier.begin(), earlier.end(), [&](const EarlierCall& one) { return one.call == call; }));
}

TEST_F(LostAnswerTest, second_loss_is_unknown) {
  connect(2);
  script(0, K::load, failed(OutcomeKind::unknown, "the connection was lost", ErrorCode::connection_lost), 2);
  const UpdateId id = request(1);
  EXPECT_EQ(count(0, K::load), 2);
  EXPECT_NE(worker(0).state, WorkerState::ready);
  EXPECT_TRUE(update(id).committed == true);
}

}  // namespace
}  // namespace weighlock::protocol
