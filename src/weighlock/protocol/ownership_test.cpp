// Gateways that know nothing of each other, and a pair that each thinks is its own.
#include "weighlock/protocol/ownership.hpp"

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/ownership_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class OwnershipTest : public OwnedFixture {
 protected:
  void expect_read_only(const UpdateId& id, UpdateState ended_as) {
    EXPECT_EQ(update(id).state, ended_as);
    ASSERT_TRUE(update(id).error);
    EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
    for (const char* named : {"another", "9", "far"})
      EXPECT_NE(update(id).error->text().find(named), std::string::npos) << update(id).error->text();
    EXPECT_TRUE(is_superseded(pair()));
    const std::size_t before = calls();
    advance(10min);
    EXPECT_EQ(calls(), before) << "it only reads a file, and not even that";
    const UpdateId refused = request(7);
    EXPECT_TRUE(refused.empty());
    ASSERT_TRUE(replies.back().error);
    EXPECT_EQ(replies.back().error->code, ErrorCode::superseded);
    EXPECT_EQ(calls(), before);
  }
};

TEST_F(OwnershipTest, epoch_is_taken_at_the_first_update_and_not_by_a_connect) {
  connect(2);
  EXPECT_TRUE(epochs->files.empty());
  EXPECT_EQ(own().epoch, 0);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_EQ(own().epoch, 1);
  EXPECT_EQ(epochs->files.at(1).owner, "me");
  request(2);
  EXPECT_EQ(epochs->files.size(), 1u);
}

TEST_F(OwnershipTest, nobody_is_paused_before_the_file_lists_whom) {
  serve_v1();
  epochs->claims_silent = true;
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::pausing);
  EXPECT_EQ(count(0, K::pause), 1);
  EXPECT_EQ(count(1, K::pause), 1);
  epochs->claims_silent = false;
  post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{1, std::nullopt, std::nullopt}});
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::pause), 2);
}

TEST_F(OwnershipTest, list_is_written_when_the_save_ends_and_names_nobody_after_the_update) {
  serve_v1();
  silent_trainers = {trainer(0)};
  epochs->written.clear();
  const UpdateId id = request(2);
  EXPECT_TRUE(epochs->written.empty());
  post(SaveEnded{saves[saves.size() - 2].call, SaveOutcomeKind::ok, ""});
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  const std::vector<HeldWorker> both{{url(0), "start-1", "1"}, {url(1), "start-1", "1"}};
  const std::vector<HeldWorker> committed{{url(0), "start-1", "2"}, {url(1), "start-1", "2"}};
  EXPECT_EQ(epochs->written, (std::vector<std::vector<HeldWorker>>{both, committed, {}}));
}

TEST_F(OwnershipTest, worker_that_its_trainer_paused_is_listed_for_its_label_alone_while_it_is_in_hand) {
  serve_v1();
  engine(1).paused = true;
  silence(0, K::load);
  const UpdateId id = request(2);
  EXPECT_EQ(epochs->highest().paused,
            (std::vector<HeldWorker>{{url(0), "start-1", "1"}, {url(1), "start-1", "1", false}}));
  answer_silenced(0, ok());
  engine(0).label = "2";
  advance(1min);
  ASSERT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_TRUE(epochs->highest().paused.empty());
}

TEST_F(OwnershipTest, worker_that_is_torn_stays_listed_while_its_trainer_holds_it_paused) {
  serve_v1();
  engine(1).paused = true;
  script(1, K::load, failed(OutcomeKind::touched, "broken"), -1);
  EXPECT_EQ(update(request(2)).state, UpdateState::degraded);
  EXPECT_EQ(epochs->highest().paused, (std::vector<HeldWorker>{{url(1), "start-1", "", false}}));
}

TEST_F(OwnershipTest, nobody_is_loaded_before_the_file_lists_whom_whoever_paused_them) {
  connect(2);
  ConnectPair again;
  again.token = 9;
  again.spec = pair().spec;
  again.spec.policy.pause = PauseOwner::caller;
  post(again);
  ASSERT_EQ(update(request(1, again.spec.policy)).state, UpdateState::succeeded);
  epochs->claims_silent = true;
  const UpdateId id = request(2, again.spec.policy);
  EXPECT_EQ(count(0, K::load) + count(1, K::load), 2);
  ASSERT_TRUE(own().claim);
  const std::vector<HeldWorker> both{{url(0), "start-1", "1", false}, {url(1), "start-1", "1", false}};
  EXPECT_EQ(own().writing, both);
  epochs->claims_silent = false;
  post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{1, std::nullopt, std::nullopt}});
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::pause) + count(1, K::pause), 0);
}

TEST_F(OwnershipTest, worker_that_is_listed_for_its_label_alone_is_not_listed_as_held) {
  const HeldWorker paused{url(0), "start-1", "1"};
  HeldWorker for_its_label = paused;
  for_its_label.held = false;
  HeldWorker torn = paused;
  torn.label.clear();
  EXPECT_TRUE(covers({paused}, {paused}));
  EXPECT_TRUE(covers({paused}, {for_its_label}));
  EXPECT_FALSE(covers({for_its_label}, {paused}));
  EXPECT_FALSE(covers({paused}, {torn}));
  EXPECT_FALSE(covers({}, {for_its_label}));
}

TEST_F(OwnershipTest, quarantined_worker_stays_listed_while_it_is_held_paused) {
  serve_v1();
  script(1, K::load, failed(OutcomeKind::touched, "broken"), -1);
  EXPECT_EQ(update(request(2)).state, UpdateState::degraded);
  EXPECT_EQ(epochs->highest().paused, (std::vector<HeldWorker>{{url(1), "start-1"}}));
}

TEST_F(OwnershipTest, update_of_a_pair_that_another_took_ends_in_every_phase_and_calls_nobody_any_more) {
  for (const K kind : {K::pause, K::set_label, K::load, K::verify, K::resume}) {
    SCOPED_TRACE(std::string(weighlock::name(kind)));
    begin_anew();
    const UpdateId id = held_up_at(kind);
    EXPECT_FALSE(is_terminal(update(id).state));
    taken_by_another();
    advance(limits::kEpochLookBusy);
    expect_read_only(id, UpdateState::failed);
    for (const char* url_of : {"http://worker0:30000", "http://worker1:30000"}) {
      EXPECT_EQ(state().workers.at(url_of).state, WorkerState::foreign);
      EXPECT_FALSE(state().workers.at(url_of).paused_by_us);
    }
  }
}

TEST_F(OwnershipTest, update_that_saves_is_aborted_and_its_directory_discarded) {
  serve_v1();
  silent_trainers = {trainer(0)};
  const UpdateId id = request(2);
  taken_by_another();
  advance(limits::kEpochLookPeriod);
  expect_read_only(id, UpdateState::aborted);
  EXPECT_EQ(discards.back().update, id);
}

TEST_F(OwnershipTest, worker_of_a_taken_pair_that_a_survey_found_held_is_continued_before_it_leaves) {
  connect(2);
  epochs->files[1] = Epoch{1, "predecessor", "near", "", "", {{url(1), "start-1", "default"}}};
  engine(1).paused = true;
  silent_trainers = {trainer(0)};
  const UpdateId id = request(1);
  ASSERT_EQ(own().epoch, 2);
  ASSERT_FALSE(worker(1).taken_over) << "the survey has read it";
  ASSERT_EQ(worker(1).state, WorkerState::ready);
  connect(1);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_FALSE(state().workers.contains(url(1)));
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(OwnershipTest, queued_updates_are_refused) {
  held_up_at(K::load);
  const UpdateId queued = request(3);
  taken_by_another();
  advance(limits::kEpochLookBusy);
  EXPECT_EQ(update(queued).state, UpdateState::rejected);
  EXPECT_EQ(update(queued).error->code, ErrorCode::superseded);
}

TEST_F(OwnershipTest, idle_pair_finds_out_within_five_seconds) {
  serve_v1();
  taken_by_another();
  advance(limits::kEpochLookPeriod);
  EXPECT_TRUE(is_superseded(pair()));
}

// SIGSTOP: no timer fired, and the answer waits in the socket. What follows from it would be a load over another's
// version.
TEST_F(OwnershipTest, process_that_stood_still_looks_before_it_acts_on_an_answer) {
  for (const K kind : {K::pause, K::set_label, K::load, K::verify, K::resume}) {
    SCOPED_TRACE(std::string(weighlock::name(kind)));
    begin_anew();
    const UpdateId id = held_up_at(kind);
    taken_by_another();
    stand_still(limits::kEpochStale + 1ms);
    const std::size_t before = calls();
    answer_silenced(0, ok());
    EXPECT_EQ(calls(), before);
    expect_read_only(id, UpdateState::failed);
  }
}

TEST_F(OwnershipTest, process_that_stood_still_and_owns_the_pair_goes_on) {
  const UpdateId id = held_up_at(K::load);
  stand_still(10min);
  answer_silenced(0, failed(OutcomeKind::unknown, "lost"));
  advance(10min);
  EXPECT_TRUE(is_terminal(update(id).state));
  EXPECT_FALSE(is_superseded(pair()));
}

TEST_F(OwnershipTest, storage_that_tells_nothing_holds_an_update_up_for_a_moment_only) {
  const UpdateId id = held_up_at(K::pause);
  epochs->looks_silent = true;
  stand_still(limits::kEpochStale + 1ms);
  engine(0).paused = true;
  answer_silenced(0, ok());
  EXPECT_EQ(update(id).state, UpdateState::pausing) << "its answer waits";
  advance(limits::kEpochLookTimeout);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_TRUE(own().look_trouble);
}

TEST_F(OwnershipTest, looks_that_fail_stop_nobody_and_are_told) {
  serve_v1();
  epochs->look_error = Error{ErrorCode::storage_failed, "input/output error", nullptr};
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  ASSERT_TRUE(own().look_trouble);
  EXPECT_EQ(own().look_trouble->code, ErrorCode::storage_failed);
  epochs->look_error.reset();
  advance(limits::kEpochLookPeriod);
  EXPECT_FALSE(own().look_trouble);
}

TEST_F(OwnershipTest, engines_are_held_paused_with_a_look_every_half_second) {
  held_up_at(K::load);
  const int before = epochs->looks;
  advance(10 * limits::kEpochLookBusy);
  EXPECT_GE(epochs->looks - before, 10);
}

TEST_F(OwnershipTest, blind_storage_keeps_no_epoch_and_the_update_goes_on) {
  epochs->look_error = epochs->claim_error = Error{ErrorCode::storage_not_visible, "no such mount", nullptr};
  connect(2);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_EQ(own().epoch, 0);
  EXPECT_EQ(own().none_because, "no such mount");
  epochs->look_error = epochs->claim_error = std::nullopt;
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(own().epoch, 1) << "it has become visible";
}

TEST_F(OwnershipTest, update_whose_pauses_can_not_be_written_down_is_aborted_before_anyone_is_paused) {
  for (const bool first : {true, false}) {
    begin_anew();
    connect(2);
    if (!first) request(1);
    const int pauses = count(0, K::pause);
    epochs->claim_error = Error{ErrorCode::storage_full, "no space left", nullptr};
    const UpdateId id = request(2);
    EXPECT_EQ(update(id).state, UpdateState::aborted);
    EXPECT_EQ(update(id).error->code, ErrorCode::storage_full);
    EXPECT_NE(update(id).error->text().find("no space left"), std::string::npos);
    EXPECT_EQ(count(0, K::pause), pauses);
    epochs->claim_error.reset();
    EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  }
}

TEST_F(OwnershipTest, storage_that_does_not_take_the_list_is_waited_for_so_long_and_no_longer) {
  serve_v1();
  epochs->claims_silent = true;
  const UpdateId id = request(2);
  advance(limits::kEpochWriteTimeout - 1ms);
  EXPECT_EQ(update(id).state, UpdateState::pausing);
  advance(1ms);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(update(id).error->code, ErrorCode::timed_out);
  EXPECT_EQ(count(0, K::pause), 1);
}

TEST_F(OwnershipTest, file_that_vanished_or_was_torn_is_written_again) {
  serve_v1();
  epochs->files.clear();
  advance(limits::kEpochLookPeriod);
  EXPECT_EQ(epochs->highest().owner, "me");
  epochs->files[1].owner = "";
  advance(limits::kEpochLookPeriod);
  EXPECT_EQ(epochs->highest().owner, "me");
  EXPECT_FALSE(is_superseded(pair()));
}

TEST_F(OwnershipTest, higher_file_that_can_not_be_read_is_somebody_elses) {
  serve_v1();
  epochs->files[2] = Epoch{2, "", "", "", "'epoch.2' is torn", {}};
  advance(limits::kEpochLookPeriod);
  ASSERT_TRUE(is_superseded(pair()));
  request(2);
  EXPECT_NE(replies.back().error->text().find("torn"), std::string::npos);
}

TEST_F(OwnershipTest, commit_that_is_on_its_way_to_the_disk_is_decided_and_its_workers_are_anothers) {
  serve_v1();
  hold_commit = true;
  const UpdateId id = request(2);
  taken_by_another();
  EXPECT_EQ(update(id).state, UpdateState::committing);
  stand_still(10s);
  const std::size_t before = calls();
  held_durable();
  settle();
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
  EXPECT_EQ(update(id).committed, true);
  EXPECT_EQ(pair().committed->version, 2);
  EXPECT_EQ(calls(), before);
}

TEST_F(OwnershipTest, transfer_whose_workers_were_read_before_the_process_stood_still_pauses_nobody_before_a_look) {
  by_transfer = true;
  const UpdateId id = held_up_at(K::read_state);
  ASSERT_EQ(update(id).state, UpdateState::preparing);
  const int paused = count(0, K::pause) + count(1, K::pause);
  stand_still(14s);
  taken_by_another();
  Outcome read;
  read.kind = OutcomeKind::ok;
  read.reading = StateReading{"start-1", "1", false, "/models/start"};
  answer_silenced(0, read);
  EXPECT_EQ(count(0, K::pause) + count(1, K::pause), paused);
  ASSERT_TRUE(update(id).error);
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
}

TEST_F(OwnershipTest, worker_whose_load_has_no_answer_when_the_update_is_undone_is_listed_without_a_label) {
  serve_v1();
  silence(0, K::load);
  silence(0, K::barrier);
  script(1, K::load, failed(OutcomeKind::touched, "broken"));
  Policy everyone;
  everyone.on_failure = OnFailure::rollback_all;
  const UpdateId id = request(2, everyone);
  ASSERT_EQ(update(id).state, UpdateState::restoring);
  ASSERT_FALSE(epochs->highest().paused.empty());
  EXPECT_EQ(epochs->highest().paused[0], (HeldWorker{url(0), "start-1", ""}));
}

// The end of an update writes a list without it; until that has come, either of the two may stand there.
TEST_F(OwnershipTest, worker_is_not_paused_on_the_word_of_a_list_that_is_being_replaced) {
  held_up_at(K::resume);
  epochs->claims_silent = true;
  engine(0).paused = false;
  Outcome resumed;
  resumed.kind = OutcomeKind::ok;
  answer_silenced(0, resumed);
  ASSERT_TRUE(pair().active.empty());
  ASSERT_TRUE(own().claim);
  change(WorkerChange::quarantine, 0);
  const int paused = count(0, K::pause);
  advance(5s);
  EXPECT_EQ(count(0, K::pause), paused);
  epochs->claims_silent = false;
  epochs->files[1].paused = own().writing;
  post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{1, std::nullopt, std::nullopt}});
  advance(5s);
  EXPECT_TRUE(engine(0).paused);
  EXPECT_EQ(epochs->highest().paused, (std::vector<HeldWorker>{{url(0), "start-1", ""}}));
}

TEST_F(OwnershipTest, worker_that_was_out_of_reach_is_ready_again_where_no_epoch_can_be_kept) {
  epochs->look_error = epochs->claim_error = Error{ErrorCode::storage_not_visible, "no such mount", nullptr};
  connect(1);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  script(0, K::read_state, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable), limits::kSilentLooks);
  for (int i = 0; i < 120 && worker(0).state == WorkerState::ready; ++i) advance(1s);
  ASSERT_EQ(worker(0).state, WorkerState::quarantined);
  advance(60s);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

}  // namespace
}  // namespace weighlock::protocol
