// Evidence `acknowledged`: an update asks no more than is needed, and knows as much of who serves.
#include "weighlock/protocol/fixture_test.hpp"
#include "weighlock/protocol/worker_calls.hpp"

namespace weighlock::protocol {
namespace {

using K = OperationKind;

class AcknowledgedTest : public Fixture {
 public:
  AcknowledgedTest() { policy.evidence = Evidence::acknowledged; }
  Policy policy;
};

TEST_F(AcknowledgedTest, each_worker_is_read_paused_loaded_and_resumed_and_nothing_else) {
  connect(3);
  request(1, policy);
  for (int i = 0; i < 3; ++i) engine(i).operations.clear();
  const UpdateId id = request(2, policy);
  ASSERT_EQ(update(id).state, UpdateState::succeeded);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine(i).operations, (std::vector<K>{K::read_state, K::pause, K::load, K::resume}));
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(worker(i).evidence, Evidence::acknowledged);
    EXPECT_EQ(update(id).targets.at(url(i)).verdict, Verdict::verified);
  }
}

TEST_F(AcknowledgedTest, where_the_caller_pauses_each_worker_is_read_and_loaded_and_nothing_else) {
  policy.pause = PauseOwner::caller;
  connect(3);
  request(1, policy);
  for (int i = 0; i < 3; ++i) engine(i).operations.clear();
  script(1, K::load, failed(OutcomeKind::untouched, "busy"));
  const UpdateId id = request(2, policy);
  for (int i = 0; i < 3; i += 2) {
    EXPECT_EQ(engine(i).operations, (std::vector<K>{K::read_state, K::load}));
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(worker(i).version->version, 2);
  }
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(engine(1).operations,
            (std::vector<K>{K::read_state, K::load, K::read_state, K::set_label, K::load, K::verify, K::read_state}))
      << "one that was brought up to date later is looked at";
}

TEST_F(AcknowledgedTest, an_engine_whose_load_sets_no_label_gets_one_and_is_flushed) {
  connect(1);
  engine(0).dialect = DialectKind::vllm;
  request(1, policy);
  engine(0).operations.clear();
  const UpdateId id = request(2, policy);
  ASSERT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(engine(0).operations,
            (std::vector<K>{K::read_state, K::pause, K::load, K::set_label, K::flush, K::resume}));
  EXPECT_EQ(engine(0).label, "2");
}

TEST_F(AcknowledgedTest, a_worker_that_restarted_between_updates_is_known_by_its_label) {
  connect(2);
  request(1, policy);
  restart(1);
  engine(1).operations.clear();
  const UpdateId id = request(2, policy);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(worker(1).incarnation, engine(1).incarnation);
  EXPECT_EQ(update(id).targets.at(url(1)).role, Role::extra);
  EXPECT_EQ(count(1, K::read_state), 2) << "the brief reading left a doubt, the whole one ended it";
}

TEST_F(AcknowledgedTest, a_process_that_did_not_load_is_never_ready) {
  connect(3);
  request(1, policy);
  Outcome resumed;
  resumed.kind = OutcomeKind::ok;
  resumed.reading = StateReading{"", "default", false, "/models/start"};
  script(2, K::resume, resumed);
  silence(2, K::load);
  const UpdateId id = request(2, policy);
  restart(2);
  Outcome loaded;
  loaded.kind = OutcomeKind::ok;
  answer_silenced(2, loaded);  // of the old process
  EXPECT_EQ(update(id).state, UpdateState::degraded);
  EXPECT_EQ(worker(2).state, WorkerState::quarantined);
  ASSERT_TRUE(worker(2).cause);
  EXPECT_EQ(worker(2).cause->code, CauseCode::restarted);
}

TEST_F(AcknowledgedTest, failed_loads_still_cost_the_quorum) {
  connect(3);
  request(1, policy);
  script(0, K::load, failed(OutcomeKind::touched, "half"));
  script(1, K::load, failed(OutcomeKind::touched, "half"));
  const UpdateId id = request(2, policy);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(update(id).error->code, ErrorCode::quorum_lost);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(worker(i).version->version, 1);
}

// What the next reading finds, if it is of a process that nobody has read, after a load that got this answer.
Worker new_process_after(OutcomeKind answer, const std::string& label_before) {
  Worker worker;
  if (!label_before.empty()) note_sent(worker, {1, K::set_label}, label_before, true);
  worker.in_flight.reset();
  const EarlierCall load{2, K::load};
  note_sent(worker, load, "2", true);
  Outcome outcome;
  outcome.kind = answer;
  note_ended(worker, load, outcome, true);
  note_new_process(worker);
  return worker;
}

TEST(Announced, a_new_process_may_have_got_a_load_that_no_label_announced) {
  EXPECT_TRUE(new_process_after(OutcomeKind::touched, "").touched);
  EXPECT_TRUE(new_process_after(OutcomeKind::ok, "").touched);
  EXPECT_EQ(new_process_after(OutcomeKind::unknown, "").earlier.size(), 1U) << "it may still run there";
}

TEST(Announced, a_new_process_without_the_label_did_not_get_the_load_that_the_label_announced) {
  EXPECT_FALSE(new_process_after(OutcomeKind::touched, "loading:u1").touched);
  EXPECT_TRUE(new_process_after(OutcomeKind::unknown, "loading:u1").earlier.empty());
}

class AnnouncedTest : public Fixture {};

TEST_F(AnnouncedTest, a_new_process_with_the_labels_of_the_load_got_the_load_too) {
  connect(2);
  request(1);
  silence(0, K::pause);
  const UpdateId id = request(2);
  restart(0);  // nobody has read it yet, and what follows the pause reaches it
  Outcome paused;
  paused.kind = OutcomeKind::ok;
  answer_silenced(0, paused);
  ASSERT_GE(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(worker(0).start_label, "default") << "what we wrote isn't what it started with";
  EXPECT_FALSE(worker(0).state == WorkerState::ready && !worker(0).version) << "it doesn't hold its start model";
  EXPECT_TRUE(worker(0).touched || worker(0).version);
}

}  // namespace
}  // namespace weighlock::protocol
