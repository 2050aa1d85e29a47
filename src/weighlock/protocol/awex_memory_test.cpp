// Colocated pairs: an update that ends before its first step of memory, and what may be asked of engines between
// updates, when their memory may be in a trainer's hands.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

const std::vector<HandOverStep> kMemoryOnly{HandOverStep::resume_weights, HandOverStep::resume_kv_cache};
constexpr const char* kNextTransfer = "'weights' and 'kv_cache' is not resumed: the pair's next transfer does it";

Outcome well() {
  Outcome outcome;
  outcome.kind = OutcomeKind::ok;
  return outcome;
}

class AwexMemoryTest : public Fixture {
 protected:
  AwexMemoryTest() {
    by_transfer = true;
    awex.colocate = true;
  }
  // With a version on storage, which heals.
  void connect_with_last_good() {
    by_transfer = false;
    connect(2);
    ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
    by_transfer = true;
    connect(2);
    for (int i = 0; i < 2; ++i) engine(i).operations.clear();
    reads.clear();
  }
  void expect_ready(int i) {
    EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
    EXPECT_EQ(worker(i).memory, EngineMemory::whole) << i;
    EXPECT_FALSE(engine(i).paused) << i;
  }
  // Not continued, and told what it lacks.
  void expect_held(int i) {
    EXPECT_EQ(worker(i).state, WorkerState::quarantined) << i;
    EXPECT_EQ(worker(i).memory, EngineMemory::released) << i;
    EXPECT_EQ(count(i, OperationKind::resume), 0) << i;
    ASSERT_TRUE(worker(i).cause) << i;
    EXPECT_NE(worker(i).cause->message.find(kNextTransfer), std::string::npos) << worker(i).cause->message;
  }
  void fail_transfer_and_heal_of(int i) {
    step_answers[{trainer(0), HandOverStep::transfer}] = failed(OutcomeKind::touched, "answered 500");
    script(i, OperationKind::verify, failed(OutcomeKind::mismatch, "other weights"));
    EXPECT_EQ(update(request(2)).state, UpdateState::failed);
    ASSERT_EQ(worker(i).state, WorkerState::quarantined);
  }
};

TEST_F(AwexMemoryTest, a_label_that_one_refuses_gives_memory_back_before_anyone_is_healed) {
  connect_with_last_good();
  script(0, OperationKind::set_label, failed(OutcomeKind::untouched, "answered 500"));
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_NE(update(id).error->text().find(url(0)), std::string::npos) << update(id).error->text();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine(i).steps, kMemoryOnly) << i;
    EXPECT_EQ(engine(i).loaded, "/shared/v1.a1") << i;
    expect_ready(i);
  }
}

TEST_F(AwexMemoryTest, a_label_that_is_under_way_is_waited_for_since_memory_is_owed_behind_it) {
  connect_with_last_good();
  script(0, OperationKind::set_label, failed(OutcomeKind::untouched, "answered 500"));
  silence(1, OperationKind::set_label);
  const UpdateId id = request(2);
  EXPECT_TRUE(transfers.empty());
  answer_silenced(1, well());
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

TEST_F(AwexMemoryTest, without_a_storage_they_have_their_memory_and_wait_for_the_next_update) {
  connect(2);
  script(0, OperationKind::set_label, failed(OutcomeKind::untouched, "answered 500"));
  EXPECT_EQ(update(request(1)).state, UpdateState::failed);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(worker(i).state, WorkerState::quarantined) << i;
    EXPECT_EQ(worker(i).cause->code, CauseCode::no_last_good) << i;
    EXPECT_EQ(worker(i).memory, EngineMemory::whole) << i;
  }
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

TEST_F(AwexMemoryTest, one_that_could_not_be_paused_is_not_let_serve_and_the_other_gets_its_memory) {
  connect_with_last_good();
  script(0, OperationKind::pause, failed(OutcomeKind::untouched, "answered 500"));
  EXPECT_EQ(update(request(2)).state, UpdateState::failed);
  EXPECT_TRUE(engine(0).steps.empty());
  expect_held(0);
  EXPECT_EQ(engine(1).steps, kMemoryOnly);
  expect_ready(1);
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

TEST_F(AwexMemoryTest, a_cancel_while_they_are_being_paused_continues_nobody_without_memory) {
  connect_with_last_good();
  silence(0, OperationKind::pause);
  const UpdateId id = request(2);
  ASSERT_EQ(update(id).state, UpdateState::pausing);
  post(CancelUpdate{8, id});
  advance(10s);
  EXPECT_EQ(update(id).error->code, ErrorCode::cancelled);
  expect_held(0);
  expect_ready(1);
}

TEST_F(AwexMemoryTest, a_group_that_can_not_be_built_leaves_nobody_ready_without_memory) {
  connect_with_last_good();
  ASSERT_EQ(update(request(2)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) engine(i).operations.clear();
  restart(0);
  build_error = Error{ErrorCode::worker_failed, "trainer http://trainer0:9000: no", nullptr};
  const UpdateId id = request(3);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_NE(update(id).error->text().find("was not handed back"), std::string::npos) << update(id).error->text();
  expect_held(1);
  EXPECT_FALSE(fences.empty());
  EXPECT_NE(worker(0).state, WorkerState::ready);
  EXPECT_EQ(replayed().workers.at(url(1)).memory, EngineMemory::released);
  EXPECT_EQ(replayed().workers.at(url(1)).state, WorkerState::quarantined);
  build_error.reset();
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

TEST_F(AwexMemoryTest, a_death_while_they_are_being_paused_continues_nobody_without_memory) {
  connect_with_last_good();
  silence(0, OperationKind::pause);
  request(2);
  start_again();
  for (int i = 0; i < 2; ++i) expect_held(i);
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

TEST_F(AwexMemoryTest, a_death_before_anyone_is_paused_leaves_nobody_ready_without_memory) {
  connect_with_last_good();
  silence(0, OperationKind::read_state);
  const UpdateId id = request(2);
  ASSERT_EQ(update(id).state, UpdateState::preparing);
  flush();
  start_again();
  for (int i = 0; i < 2; ++i) expect_held(i);
}

TEST_F(AwexMemoryTest, an_update_that_is_not_taken_up_changes_nothing) {
  connect(2);
  ASSERT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(update(request(1)).state, UpdateState::rejected);
  for (int i = 0; i < 2; ++i) expect_ready(i);
}

// --- all or none

TEST_F(AwexMemoryTest, one_that_is_out_ends_the_update_with_its_reason_before_anything_is_sent) {
  connect(2);
  step_answers[{url(0), HandOverStep::resume_weights}] = failed(OutcomeKind::touched, "answered 500");
  request(1);
  step_answers.clear();
  ASSERT_EQ(worker(0).cause->code, CauseCode::needs_restart);
  const std::size_t built = builds.size();
  const std::size_t sent = transfers.size();
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::rejected);
  EXPECT_EQ(builds.size(), built);
  EXPECT_EQ(transfers.size(), sent);
  const std::string text = update(id).error->text();
  EXPECT_NE(text.find("1 of 2 can; worker " + url(0)), std::string::npos) << text;
  EXPECT_NE(text.find("restart it"), std::string::npos) << text;
  EXPECT_EQ(text.find(url(1)), std::string::npos) << "the healthy one isn't blamed";
}

TEST_F(AwexMemoryTest, one_that_is_drained_ends_it_too_and_is_named) {
  connect(2);
  request(1);
  ChangeWorker drain;
  drain.token = 9;
  drain.pair = "actor";
  drain.change = WorkerChange::drain;
  drain.worker.url = url(1);
  post(drain);
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::rejected);
  EXPECT_NE(update(id).error->text().find(url(1) + ": draining"), std::string::npos) << update(id).error->text();
}

// --- between updates

TEST_F(AwexMemoryTest, nothing_is_loaded_into_one_that_is_out_between_updates) {
  reconciles = true;
  connect_with_last_good();
  fail_transfer_and_heal_of(1);
  const int loads = count(1, OperationKind::load);
  advance(300s);
  EXPECT_EQ(count(1, OperationKind::load), loads);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  step_answers.clear();
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  expect_ready(1);
}

TEST_F(AwexMemoryTest, a_disconnect_loads_nothing_and_names_who_is_left_as_it_was) {
  connect_with_last_good();
  fail_transfer_and_heal_of(1);
  const int loads = count(1, OperationKind::load);
  post(RemovePair{7, "actor"});
  EXPECT_TRUE(state().pairs.empty());
  EXPECT_EQ(count(1, OperationKind::load), loads);
  ASSERT_EQ(replies.back().abandoned.size(), 1u);
  EXPECT_NE(replies.back().abandoned[0].find(url(1)), std::string::npos);
}

TEST_F(AwexMemoryTest, a_rollback_and_a_handed_directory_are_refused_with_a_way_out) {
  connect_with_last_good();
  ASSERT_EQ(update(request(2)).state, UpdateState::succeeded);
  const int loads = count(0, OperationKind::load);
  rollback(1);
  ASSERT_TRUE(replies.back().error);
  EXPECT_EQ(replies.back().error->code, ErrorCode::not_supported);
  RequestUpdate event;
  event.token = 9;
  event.pair = "actor";
  event.version = 3;
  event.path = "/shared/handed";
  post(event);
  ASSERT_TRUE(replies.back().error);
  EXPECT_EQ(replies.back().error->code, ErrorCode::not_supported);
  EXPECT_NE(replies.back().error->text().find("mode 'disk'"), std::string::npos);
  EXPECT_EQ(count(0, OperationKind::load), loads);
}

TEST_F(AwexMemoryTest, no_token_is_asked_of_engines_to_see_whether_they_are_paused) {
  connect_with_last_good();
  advance(120s);
  fail_transfer_and_heal_of(1);
  ASSERT_FALSE(reads.empty());
  EXPECT_TRUE(std::none_of(reads.begin(), reads.end(), [](const Operation& read) { return read.doubt_pause; }));
}

}  // namespace
}  // namespace weighlock::protocol
