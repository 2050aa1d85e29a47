// Colocated pairs: memory that goes from hand to hand around the transfer, and what is left of it when that is cut off.
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

const std::vector<HandOverStep> kWhole{HandOverStep::resume_weights, HandOverStep::transfer,
                                       HandOverStep::resume_kv_cache};
const std::vector<HandOverStep> kMemoryOnly{HandOverStep::resume_weights, HandOverStep::resume_kv_cache};

Outcome well() {
  Outcome outcome;
  outcome.kind = OutcomeKind::ok;
  return outcome;
}

Outcome refused(OutcomeKind kind = OutcomeKind::touched) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.text = "answered 500 \"no\"";
  return outcome;
}

class AwexColocatedTest : public Fixture {
 protected:
  AwexColocatedTest() {
    by_transfer = true;
    awex.colocate = true;
  }
  // With a version on storage, which heals.
  void connect_with_last_good(int workers) {
    by_transfer = false;
    connect(workers);
    ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
    by_transfer = true;
    connect(workers);
    for (int i = 0; i < workers; ++i) engine(i).operations.clear();
  }
  std::vector<HandOverStep> steps() const {
    std::vector<HandOverStep> out;
    for (const RunTransfer& run : transfers) out.push_back(run.step);
    return out;
  }
  void silence_step(const std::string& member, HandOverStep step) { step_answers[{member, step}] = std::nullopt; }
  void expect_ready(int i) {
    EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
    EXPECT_EQ(worker(i).memory, EngineMemory::whole) << i;
    EXPECT_FALSE(engine(i).paused) << i;
  }
  void expect_out(int i, CauseCode code, const std::string& word) {
    EXPECT_EQ(worker(i).state, WorkerState::quarantined) << i;
    ASSERT_TRUE(worker(i).cause) << i;
    EXPECT_EQ(worker(i).cause->code, code) << worker(i).cause->message;
    EXPECT_NE(worker(i).cause->message.find(word), std::string::npos) << worker(i).cause->message;
  }
};

TEST_F(AwexColocatedTest, each_step_is_of_all_members_before_the_next) {
  connect(2);
  silence_step(url(1), HandOverStep::resume_weights);
  const UpdateId id = request(1);
  EXPECT_EQ(steps(), (std::vector<HandOverStep>{HandOverStep::release_optimizer, HandOverStep::resume_weights}));
  EXPECT_EQ(transfers[0].trainers.size(), 2u);
  EXPECT_TRUE(transfers[0].workers.empty());
  EXPECT_TRUE(transfers[1].trainers.empty());
  answer_silenced(1, well());
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(steps().size(), 5u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine(i).steps, kWhole);
    expect_ready(i);
  }
}

TEST_F(AwexColocatedTest, a_step_is_on_record_before_it_is_sent) {
  connect(2);
  die_at_record(RecordKind::intent, "load", false);
  request(1);
  EXPECT_EQ(steps(), std::vector<HandOverStep>{HandOverStep::release_optimizer});
  EXPECT_TRUE(engine(0).steps.empty());
}

TEST_F(AwexColocatedTest, a_cancel_gives_memory_back_before_anyone_is_healed_and_transfers_nothing) {
  connect_with_last_good(2);
  silence_step(trainer(1), HandOverStep::release_optimizer);
  const UpdateId id = request(2);
  post(CancelUpdate{8, id});
  EXPECT_EQ(update(id).state, UpdateState::loading);
  EXPECT_EQ(steps().size(), 1u);
  advance(6s);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(update(id).error->code, ErrorCode::cancelled);
  ASSERT_EQ(steps(), (std::vector<HandOverStep>{HandOverStep::release_optimizer, HandOverStep::resume_weights,
                                                HandOverStep::release_weights, HandOverStep::resume_kv_cache}));
  ASSERT_EQ(transfers[2].trainers.size(), 1u);  // not the silent one
  EXPECT_EQ(transfers[2].trainers[0].url, trainer(0));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine(i).steps, kMemoryOnly);
    EXPECT_EQ(count(i, OperationKind::load), 3) << "weights, kv_cache, the heal";
    EXPECT_EQ(engine(i).loaded, "/shared/v1.a1");
    expect_ready(i);
  }
}

TEST_F(AwexColocatedTest, after_its_end_no_step_of_an_update_is_sent_whoever_answers_late) {
  connect_with_last_good(2);
  silence_step(trainer(1), HandOverStep::release_optimizer);
  const UpdateId id = request(2);
  const CallId late = transfers[0].trainers[1].call;
  post(CancelUpdate{8, id});
  advance(6s);
  ASSERT_EQ(update(id).state, UpdateState::rolled_back);
  const std::size_t sent = transfers.size();
  const int loads = count(0, OperationKind::load);
  post(SaveEnded{late, SaveOutcomeKind::ok, ""});
  advance(30s);
  EXPECT_EQ(transfers.size(), sent);
  EXPECT_EQ(count(0, OperationKind::load), loads);
}

TEST_F(AwexColocatedTest, a_member_that_is_silent_to_the_deadline_ends_it_and_memory_comes_back) {
  connect(2);
  silence_step(trainer(1), HandOverStep::release_optimizer);
  const UpdateId id = request(1);
  advance(299s);
  EXPECT_EQ(update(id).state, UpdateState::loading);
  advance(2s);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_NE(update(id).error->text().find("not done within 300000 ms"), std::string::npos);
  EXPECT_NE(update(id).error->text().find(trainer(1) + ": no answer yet"), std::string::npos);
  EXPECT_EQ(engine(0).steps, kMemoryOnly);
  expect_out(0, CauseCode::no_last_good, "on a storage");
}

TEST_F(AwexColocatedTest, a_shutdown_gives_memory_back_before_it_ends) {
  connect_with_last_good(1);
  silence_step(url(0), HandOverStep::transfer);
  request(2);
  post(Shutdown{});
  EXPECT_FALSE(stopped);
  answer_silenced(0, refused());
  EXPECT_TRUE(stopped);
  EXPECT_EQ(engine(0).steps, kWhole);
  expect_ready(0);
}

TEST_F(AwexColocatedTest, a_worker_that_is_silent_in_the_transfer_gets_its_cache_when_it_is_out_of_it) {
  connect_with_last_good(2);
  silence_step(url(1), HandOverStep::transfer);
  silence(1, OperationKind::barrier);
  const UpdateId id = request(2);
  post(CancelUpdate{8, id});
  advance(6s);
  expect_ready(0);
  EXPECT_EQ(engine(1).steps, (std::vector<HandOverStep>{HandOverStep::resume_weights, HandOverStep::transfer}));
  EXPECT_EQ(update(id).state, UpdateState::restoring);
  Outcome out = well();
  out.reading = StateReading{engine(1).incarnation, engine(1).label, true, "/models/start"};
  answer_silenced(1, refused());  // its part: a reset connection's, which nobody waits for
  answer_silenced(1, out);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(engine(1).steps, kWhole);
  expect_ready(1);
}

TEST_F(AwexColocatedTest, a_worker_that_is_never_out_of_the_transfer_stays_out_of_everything) {
  connect_with_last_good(2);
  silence_step(url(1), HandOverStep::transfer);
  silence(1, OperationKind::barrier);
  const UpdateId id = request(2);
  post(CancelUpdate{8, id});
  advance(1000s);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  expect_ready(0);
  EXPECT_EQ(engine(1).steps, (std::vector<HandOverStep>{HandOverStep::resume_weights, HandOverStep::transfer}));
  expect_out(1, CauseCode::outstanding, "memory of 'kv_cache' is not resumed");
  EXPECT_EQ(count(1, OperationKind::resume), 0);
}

TEST_F(AwexColocatedTest, a_worker_that_could_not_resume_its_weights_is_out_until_it_is_a_new_process) {
  connect_with_last_good(2);
  step_answers[{url(1), HandOverStep::resume_weights}] = refused();
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_NE(update(id).error->text().find(url(1)), std::string::npos);
  expect_ready(0);
  EXPECT_EQ(engine(1).steps, std::vector<HandOverStep>{HandOverStep::resume_weights});
  expect_out(1, CauseCode::needs_restart, "'weights'");
  step_answers.clear();
  EXPECT_EQ(update(request(3)).state, UpdateState::rejected);
  EXPECT_EQ(engine(1).steps.size(), 1u);
  restart(1);
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
  expect_ready(1);
}

TEST_F(AwexColocatedTest, a_worker_whose_cache_did_not_come_back_is_not_healed) {
  connect_with_last_good(1);
  step_answers[{url(0), HandOverStep::resume_kv_cache}] = refused();
  EXPECT_EQ(update(request(2)).state, UpdateState::failed);
  EXPECT_EQ(count(0, OperationKind::load), 3);
  expect_out(0, CauseCode::needs_restart, "'kv_cache'");
  // Whoever releases it has seen to that.
  ChangeWorker release;
  release.token = 9;
  release.pair = "actor";
  release.change = WorkerChange::release;
  release.worker.url = url(0);
  post(release);
  EXPECT_EQ(worker(0).memory, EngineMemory::whole);
  EXPECT_EQ(replayed().workers.at(url(0)).memory, EngineMemory::whole);
}

TEST_F(AwexColocatedTest, a_death_before_engines_are_asked_leaves_their_memory_to_the_next_transfer) {
  connect_with_last_good(2);
  silence_step(trainer(1), HandOverStep::release_optimizer);
  request(2);
  step_answers.clear();
  start_again();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(count(i, OperationKind::load), 0);
    EXPECT_TRUE(engine(i).paused);
    expect_out(i, CauseCode::load_unknown, "the pair's next transfer does it");
  }
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

class AwexColocatedDeathTest : public AwexColocatedTest, public ::testing::WithParamInterface<HandOverStep> {};

TEST_P(AwexColocatedDeathTest, a_death_in_a_step_of_engines_keeps_them_out_until_they_are_new_processes) {
  connect_with_last_good(2);
  for (int i = 0; i < 2; ++i) silence_step(url(i), GetParam());
  request(2);
  step_answers.clear();
  const std::size_t asked = engine(0).steps.size();
  const int loads = count(0, OperationKind::load);
  start_again();
  for (int i = 0; i < 2; ++i) {
    expect_out(i, CauseCode::needs_restart, "memory of");
    EXPECT_TRUE(engine(i).paused);
    EXPECT_EQ(engine(i).steps.size(), asked);
    EXPECT_EQ(count(i, OperationKind::load), loads);
  }
  start_again();  // the next process knows it, too
  expect_out(0, CauseCode::needs_restart, "memory of");
  EXPECT_EQ(update(request(3)).state, UpdateState::rejected);
  EXPECT_EQ(engine(0).steps.size(), asked);
  for (int i = 0; i < 2; ++i) restart(i);
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

INSTANTIATE_TEST_SUITE_P(Steps, AwexColocatedDeathTest,
                         ::testing::Values(HandOverStep::resume_weights, HandOverStep::transfer,
                                           HandOverStep::resume_kv_cache),
                         [](const auto& one) { return std::string(name(one.param)); });

TEST_F(AwexColocatedTest, a_death_after_the_last_step_owes_nobody_anything) {
  connect_with_last_good(2);
  silence(0, OperationKind::verify);
  request(2);
  EXPECT_EQ(engine(0).steps, kWhole);
  start_again();
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

TEST_F(AwexColocatedTest, a_worker_that_was_out_of_reach_and_answers_again_does_not_serve_without_memory) {
  connect(2);
  step_answers[{url(1), HandOverStep::resume_weights}] = refused(OutcomeKind::not_sent);
  request(1);
  expect_out(1, CauseCode::unreachable, "memory of 'weights' and 'kv_cache' is not resumed");
  advance(60s);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  step_answers.clear();
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  expect_ready(1);
}

TEST_F(AwexColocatedTest, a_load_from_a_directory_waits_for_memory_too) {
  connect_with_last_good(1);
  silence_step(trainer(0), HandOverStep::release_optimizer);
  request(2);
  step_answers.clear();
  start_again();
  const UpdateId back = rollback(1);
  EXPECT_TRUE(back.empty() || update(back).state == UpdateState::rejected);
  EXPECT_EQ(count(0, OperationKind::load), 0);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
}

}  // namespace
}  // namespace weighlock::protocol
