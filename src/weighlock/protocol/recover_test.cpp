// What the next start makes of an update whose gateway died: the table of faults, row by row.
#include <functional>
#include <set>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class RecoveryTest : public Fixture {
 protected:
  // Two workers, version 1 served, version 2 on its way; dies when the n-th record of this kind (and operation) is on
  // the disk.
  void die_in_version_2(RecordKind kind, std::string operation = "", bool performed = true) {
    connect(2);
    request(1);
    die_at_record(kind, std::move(operation), performed);
    second = request(2);
    ASSERT_TRUE(dead());
  }
  void take_over() {
    for (int i = 0; i < 2; ++i) engine(i).operations.clear();
    start_again();
    advance(1000s);
  }
  UpdateId last() const { return state().pairs.at("actor").history.back(); }
  UpdateId second;
};

TEST_F(RecoveryTest, death_in_the_save_aborts_and_discards_the_attempt) {
  die_in_version_2(RecordKind::save_intent);
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::aborted);
  ASSERT_EQ(discards.size(), 2u) << "at once, and again when its last rank is out of it: it may have written meanwhile";
  EXPECT_EQ(discards[0].directory, "/shared/v2.a2");
  EXPECT_EQ(discards[0].save_path, "/shared");
  EXPECT_EQ(count(0, K::read_state), static_cast<int>(engine(0).operations.size()));  // it was looked at, no more
  EXPECT_NE(update(last()).error->text().find("preparing"), std::string::npos);
}

TEST_F(RecoveryTest, save_whose_answer_was_lost_keeps_its_trainer_busy_until_the_trainer_has_answered_something_else) {
  die_in_version_2(RecordKind::save_intent);
  take_over();
  std::set<std::string> ranks;
  for (const TriggerSave& save : saves) ranks.insert(save.trainer);
  EXPECT_EQ(asked_trainers.size(), ranks.size()) << "each rank of the save is asked once";
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
}

TEST_F(RecoveryTest, trainer_that_was_asked_in_vain_is_asked_by_the_next_process_again) {
  die_in_version_2(RecordKind::save_intent);
  silent_trainers = {saves.back().trainer};
  take_over();
  EXPECT_EQ(update(request(3)).error->code, ErrorCode::trainer_busy);
  silent_trainers.clear();
  start_again();
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
}

TEST_F(RecoveryTest, save_that_was_on_its_way_keeps_its_trainer_busy) {
  die_in_version_2(RecordKind::save_intent);
  for (const TriggerSave& save : saves) silent_trainers.push_back(save.trainer);
  take_over();
  EXPECT_EQ(update(request(3)).error->code, ErrorCode::trainer_busy);
  advance(7200s);
  silent_trainers.clear();
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
}

TEST_F(RecoveryTest, workers_that_were_brought_back_after_a_death_in_the_load_keep_no_cause) {
  die_in_version_2(RecordKind::intent, "load");
  take_over();
  ASSERT_EQ(update(last()).state, UpdateState::rolled_back);
  for (int i = 0; i < 2; ++i) {
    const Target& target = update(last()).targets.at(url(i));
    EXPECT_EQ(target.ended_as, WorkerState::ready);
    EXPECT_EQ(target.verdict, Verdict::verified);
    EXPECT_FALSE(target.cause) << target.cause->message;
  }
  EXPECT_NE(update(last()).error->text().find("the gateway ended in phase"), std::string::npos);
}

TEST_F(RecoveryTest, worker_that_could_not_be_brought_back_after_a_death_says_why) {
  die_in_version_2(RecordKind::intent, "load");
  start_again_with([&] { script(1, K::load, failed(OutcomeKind::touched, "half of it"), -1); });
  advance(1000s);
  const Target& target = update(last()).targets.at(url(1));
  EXPECT_NE(target.ended_as, WorkerState::ready);
  EXPECT_TRUE(target.cause);
}

TEST_F(RecoveryTest, death_in_the_pause_barriers_each_worker_and_resumes_it) {
  die_in_version_2(RecordKind::intent, "pause");
  ASSERT_TRUE(engine(0).paused);
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::rolled_back);
  EXPECT_EQ(update(last()).committed, false);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine(i).operations.front(), K::barrier);
    EXPECT_EQ(count(i, K::load), 0);
    EXPECT_FALSE(engine(i).paused);
    EXPECT_EQ(engine(i).label, "1");
    EXPECT_EQ(worker(i).state, WorkerState::ready);
  }
}

TEST_F(RecoveryTest, label_without_a_load_is_taken_for_torn_and_healed) {
  die_in_version_2(RecordKind::intent, "set_label");
  ASSERT_TRUE(engine(0).label.starts_with("loading:"));
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::rolled_back);
  EXPECT_EQ(count(0, K::load), 1);
  EXPECT_EQ(engine(0).loaded, "/shared/v1.a1");
  EXPECT_EQ(engine(0).label, "1");
  EXPECT_FALSE(engine(0).paused);
}

// The intent of the load is recorded with the label's, so nobody can tell that it was never sent.
TEST_F(RecoveryTest, label_of_a_load_is_not_taken_back_where_there_is_nothing_to_heal_with) {
  sealed.reference_clean = false;
  connect(2);
  die_at_record(RecordKind::intent, "set_label", true);
  request(1);
  ASSERT_TRUE(dead());
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::failed);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::no_last_good);
  EXPECT_EQ(count(0, K::resume), 0);
}

TEST_F(RecoveryTest, death_in_the_load_heals_who_had_a_load_intent_to_last_good) {
  connect(2);
  request(1);
  for (int i = 0; i < 2; ++i) silence(i, K::load);
  request(2);
  for (int i = 0; i < 2; ++i) engine(i).loaded = "/shared/v2.a2";  // it went on without its gateway
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::rolled_back);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine(i).operations.front(), K::barrier);
    EXPECT_EQ(engine(i).loaded, "/shared/v1.a1");
    EXPECT_EQ(engine(i).label, "1");
    EXPECT_FALSE(engine(i).paused);
    EXPECT_EQ(worker(i).version->version, 1);
  }
}

TEST_F(RecoveryTest, load_without_last_good_ends_in_quarantine_and_is_never_resumed) {
  sealed.reference_clean = false;
  connect(1);
  die_at_record(RecordKind::intent, "load", true);
  request(1);
  ASSERT_TRUE(dead());
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::failed);
  EXPECT_EQ(worker(0).cause->code, CauseCode::no_last_good);
  EXPECT_EQ(count(0, K::resume), 0);
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(RecoveryTest, commit_record_goes_forward_whoever_reads_it) {
  die_in_version_2(RecordKind::commit, "", false);
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::succeeded);
  EXPECT_EQ(update(last()).committed, true);
  EXPECT_EQ(state().pairs.at("actor").committed->version, 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(count(i, K::load), 0);
    EXPECT_EQ(engine(i).loaded, "/shared/v2.a2");
    EXPECT_FALSE(engine(i).paused);
  }
}

TEST_F(RecoveryTest, same_key_after_the_commit_gets_the_stored_outcome) {
  connect(2);
  die_at_record(RecordKind::commit, "", false);
  request(1, {}, "key");
  start_again();
  const UpdateId first = last();
  const std::size_t before = saves.size();
  EXPECT_EQ(request(1, {}, "key"), first);
  EXPECT_EQ(update(first).state, UpdateState::succeeded);
  EXPECT_EQ(saves.size(), before);
}

Outcome wrong_shape() {
  Outcome outcome = failed(OutcomeKind::touched, "500 shapes differ");
  outcome.needs_restart = true;
  return outcome;
}

TEST_F(RecoveryTest, worker_that_only_a_restart_helps_gets_no_load_of_the_way_back) {
  connect(2);
  request(1);
  script(0, K::load, wrong_shape());
  silence(1, K::load);
  request(2);
  flush();
  take_over();
  EXPECT_EQ(count(0, K::load), 0);
  EXPECT_EQ(count(0, K::load_empty), 0);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::needs_restart);
  EXPECT_NE(worker(0).cause->message.find("shapes differ"), std::string::npos) << worker(0).cause->message;
  EXPECT_EQ(engine(1).loaded, "/shared/v1.a1");
}

TEST_F(RecoveryTest, worker_that_only_a_restart_helps_gets_no_catch_up_on_the_way_forward) {
  connect(3);
  request(1);
  script(0, K::load, wrong_shape());
  die_at_record(RecordKind::commit, "", false);
  request(2);
  ASSERT_TRUE(dead());
  engine(2).operations.clear();
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::degraded);
  EXPECT_EQ(count(0, K::load), 0);
  EXPECT_EQ(worker(0).cause->code, CauseCode::needs_restart);
  EXPECT_NE(worker(0).cause->message.find("shapes differ"), std::string::npos) << worker(0).cause->message;
}

TEST_F(RecoveryTest, what_only_a_restart_helped_is_over_with_the_process) {
  connect(2);
  request(1);
  script(0, K::load, wrong_shape());
  silence(1, K::load);
  request(2);
  flush();
  restart(0);
  take_over();
  EXPECT_EQ(worker(0).cause->code, CauseCode::restarted);
}

// A resume may go out before its record is durable, so the next process asks after one that no record names.
TEST_F(RecoveryTest, nothing_is_sent_behind_a_resume_that_no_record_names) {
  die_in_version_2(RecordKind::commit);
  ASSERT_EQ(count(0, K::resume), 2);
  for (int i = 0; i < 2; ++i) engine(i).operations.clear();
  const auto refuse = [&] { script(0, K::barrier, failed(OutcomeKind::not_sent, "refused"), -1); };
  start_again_with(refuse);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  advance(1500ms);
  start_again_with(refuse);  // the doubt outlives another process
  advance(1500ms);
  for (const K kind : engine(0).operations) EXPECT_EQ(kind, K::barrier);
  EXPECT_GE(count(0, K::barrier), 2);
}

TEST_F(RecoveryTest, worker_without_a_barrier_answer_gets_nothing_else_sent) {
  die_in_version_2(RecordKind::intent, "load");
  for (int i = 0; i < 2; ++i) engine(i).operations.clear();
  start_again_with([&] { silence(0, K::barrier); });
  EXPECT_EQ(engine(0).operations, std::vector<K>{K::barrier});
  EXPECT_FALSE(engine(1).paused);
  advance(1000s);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::outstanding);
  EXPECT_EQ(count(0, K::load), 0);
  EXPECT_EQ(count(0, K::resume), 0);
}

TEST_F(RecoveryTest, barrier_that_is_lost_is_asked_again_and_proves_nothing_before) {
  die_in_version_2(RecordKind::intent, "load");
  for (int i = 0; i < 2; ++i) engine(i).operations.clear();
  start_again_with([&] { script(0, K::barrier, failed(OutcomeKind::unknown, "reset"), 2); });
  advance(1000s);
  EXPECT_EQ(count(0, K::barrier), 3);
  EXPECT_EQ(engine(0).loaded, "/shared/v1.a1");
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

TEST_F(RecoveryTest, engine_that_restarted_meanwhile_is_not_taken_for_what_it_was) {
  die_in_version_2(RecordKind::commit, "", false);
  restart(1);
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::degraded);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).cause->code, CauseCode::restarted);
}

TEST_F(RecoveryTest, pause_of_another_is_left_to_it) {
  connect(2);
  request(1);
  engine(1).paused = true;
  die_at_record(RecordKind::intent, "load", true);
  request(2);
  take_over();
  EXPECT_FALSE(engine(0).paused);
  EXPECT_TRUE(engine(1).paused);
  EXPECT_TRUE(worker(1).paused_by_other);
  EXPECT_EQ(engine(1).loaded, "/shared/v1.a1");
}

TEST_F(RecoveryTest, pause_of_ours_after_another_had_continued_it_is_undone) {
  connect(1);
  request(1);
  engine(0).paused = true;  // by its trainer, which continues it while it loads
  Outcome running = failed(OutcomeKind::ok, "");
  running.evidence = Evidence::spot;
  running.reading = StateReading{"start-1", "2", false, "/models/start"};
  script(0, K::verify, running);
  die_at_record(RecordKind::commit, "", false);
  request(2);
  ASSERT_EQ(count(0, K::pause), 2);  // one of each update
  take_over();
  EXPECT_EQ(update(last()).state, UpdateState::succeeded);
  EXPECT_FALSE(engine(0).paused);
}

TEST_F(RecoveryTest, stop_in_the_middle_and_a_second_start_end_what_the_first_began) {
  die_in_version_2(RecordKind::intent, "load");
  start_again_with([&] { silence(0, K::barrier); });
  post(Shutdown{});
  EXPECT_FALSE(stopped);
  start_again();
  post(Shutdown{});
  EXPECT_TRUE(stopped);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(engine(i).paused);
  EXPECT_EQ(update(last()).state, UpdateState::rolled_back);
}

TEST_F(RecoveryTest, waiting_update_is_aborted_and_the_next_start_has_no_queue) {
  connect(1);
  silence(0, K::load);
  request(1);
  const UpdateId waiting = request(2);
  start_again();
  EXPECT_EQ(update(waiting).state, UpdateState::aborted);
  EXPECT_FALSE(engine(0).paused);
}

}  // namespace
}  // namespace weighlock::protocol
