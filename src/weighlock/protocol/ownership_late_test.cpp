// What comes late to a gateway: a look, a claim, its own process. And what one does that has no epoch at all.
#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/ownership_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

constexpr Milliseconds kStoodStill{14s};  // longer than any limit of a look

class LateTest : public OwnedFixture {
 protected:
  // The first worker's pause is answered after the last look went stale, and the look that this asks for is under way;
  // then the process stands still.
  UpdateId stand_still_behind_a_look() {
    const UpdateId id = held_up_at(K::pause);
    epochs->looks_silent = true;
    stand_still(limits::kEpochStale + 1ms);
    engine(0).paused = true;
    looks_before = epochs->looks;
    answer_silenced(0, ok());
    before = calls();
    seen = epochs->highest();
    stand_still(kStoodStill);
    return id;
  }
  // What the storage had said of us before anybody else came.
  void answer_look() {
    ASSERT_TRUE(own().look);
    post(EpochSeen{*own().look, "actor", seen});
  }
  std::size_t before = 0;
  int looks_before = 0;
  Epoch seen;
};

// --- looks

TEST_F(LateTest, look_that_is_answered_too_late_sends_nothing_once_another_took_the_pair) {
  const UpdateId id = stand_still_behind_a_look();
  taken_by_another();
  epochs->looks_silent = false;
  answer_look();
  EXPECT_EQ(calls(), before);
  EXPECT_TRUE(is_superseded(pair()));
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
}

TEST_F(LateTest, look_that_is_answered_too_late_is_followed_by_exactly_one_more) {
  const UpdateId id = stand_still_behind_a_look();
  answer_look();
  EXPECT_EQ(epochs->looks, looks_before + 2);
  EXPECT_EQ(calls(), before) << "its answer is waited for";
  stand_still(limits::kEpochStale + 1s);
  answer_look();  // the storage is that slow
  EXPECT_GT(calls(), before) << "what waited does not wait for a third";
  epochs->looks_silent = false;
  answer_look();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
}

TEST_F(LateTest, process_that_stands_still_behind_the_second_look_too_looks_a_third_time) {
  const UpdateId id = stand_still_behind_a_look();
  answer_look();
  stand_still(kStoodStill);
  taken_by_another();
  epochs->looks_silent = false;
  answer_look();
  EXPECT_EQ(calls(), before);
  EXPECT_EQ(epochs->looks, looks_before + 3);
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
}

TEST_F(LateTest, look_whose_timer_fired_first_has_its_grace_before_anything_goes_on_without_it) {
  const UpdateId id = stand_still_behind_a_look();
  taken_by_another();
  advance(0ms);  // every timer that was due has fired, and the answer lies there unread
  EXPECT_EQ(calls(), before);
  EXPECT_FALSE(own().overdue);
  advance(limits::kEpochLookBusy - 1ms);
  EXPECT_EQ(calls(), before);
  epochs->looks_silent = false;
  answer_look();
  EXPECT_EQ(calls(), before);
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
}

TEST_F(LateTest, look_that_is_not_answered_in_its_grace_either_is_not_waited_for) {
  const UpdateId id = stand_still_behind_a_look();
  advance(0ms);
  advance(limits::kEpochLookBusy);
  EXPECT_TRUE(own().overdue);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
}

TEST_F(LateTest, process_that_stands_still_while_the_storage_says_nothing_waits_for_it_once_more) {
  const UpdateId id = held_up_at(K::load);
  epochs->looks_silent = true;
  advance(limits::kEpochLookBusy + limits::kEpochLookTimeout + 1s);
  ASSERT_TRUE(own().overdue);
  ASSERT_EQ(update(id).state, UpdateState::loading);
  before = calls();
  stand_still(kStoodStill);
  taken_by_another();
  answer_silenced(0, ok());
  advance(0ms);
  EXPECT_EQ(calls(), before);
  seen = epochs->highest();
  answer_look();
  EXPECT_EQ(calls(), before);
  ASSERT_TRUE(update(id).error);
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
}

TEST_F(LateTest, process_that_stands_still_in_a_looks_grace_waits_for_its_answer_once_more) {
  const UpdateId id = held_up_at(K::load);
  epochs->looks_silent = true;
  advance(limits::kEpochLookTimeout + 100ms);
  ASSERT_TRUE(own().in_grace);
  ASSERT_FALSE(own().overdue);
  before = calls();
  stand_still(kStoodStill);
  taken_by_another();
  seen = epochs->highest();
  advance(0ms);  // the grace's timer, long due, comes before what was answered meanwhile
  EXPECT_FALSE(own().overdue);
  answer_silenced(0, ok());
  EXPECT_EQ(calls(), before);
  answer_look();
  EXPECT_EQ(calls(), before);
  ASSERT_TRUE(update(id).error);
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
}

// --- claims

TEST_F(LateTest, list_that_was_written_long_ago_pauses_nobody_before_a_look) {
  for (const bool taken : {true, false}) {
    SCOPED_TRACE(taken);
    begin_anew();
    serve_v1();
    epochs->claims_silent = true;
    const UpdateId id = request(2);
    ASSERT_EQ(update(id).state, UpdateState::pausing);
    ASSERT_TRUE(own().claim);
    const int paused = count(0, K::pause) + count(1, K::pause);
    stand_still(kStoodStill);
    if (taken) taken_by_another();
    epochs->looks_silent = true;
    post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{1, std::nullopt, std::nullopt}});
    EXPECT_EQ(count(0, K::pause) + count(1, K::pause), paused) << "the process stood still behind it";
    epochs->looks_silent = epochs->claims_silent = false;
    storage_answers_look();
    if (taken) {
      EXPECT_EQ(count(0, K::pause) + count(1, K::pause), paused);
      EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
    } else {
      EXPECT_EQ(update(id).state, UpdateState::succeeded);
    }
  }
}

// --- the end of the process

TEST_F(LateTest, gateway_that_is_told_to_stop_after_it_stood_still_looks_before_it_undoes_its_update) {
  for (const bool taken : {true, false}) {
    SCOPED_TRACE(taken);
    begin_anew();
    stopped = false;
    const UpdateId id = held_up_at(K::load);
    stand_still(kStoodStill);
    if (taken) taken_by_another();
    before = calls();
    epochs->looks_silent = true;
    post(Shutdown{});
    EXPECT_EQ(calls(), before);
    EXPECT_FALSE(stopped);
    ASSERT_TRUE(own().look);
    epochs->looks_silent = false;
    storage_answers_look();
    EXPECT_TRUE(stopped);
    EXPECT_EQ(calls() == before, taken);
    EXPECT_EQ(update(id).error->code, taken ? ErrorCode::superseded : ErrorCode::shutting_down);
  }
}

TEST_F(LateTest, client_that_waits_for_a_look_is_answered_before_a_gateway_stops) {
  for (const bool taken : {true, false}) {
    SCOPED_TRACE(taken);
    begin_anew();
    stopped = false;
    serve_v1();
    silence(0, K::read_state);
    silence(1, K::read_state);
    request(2);
    epochs->looks_silent = true;
    stand_still(kStoodStill);
    if (taken) taken_by_another();
    ConnectPair again;
    again.token = 44;
    again.spec = pair().spec;
    post(again);
    ASSERT_EQ(own().parked.size(), 1u);
    post(Shutdown{});
    EXPECT_FALSE(stopped);
    epochs->looks_silent = false;
    storage_answers_look();
    advance(1min);
    EXPECT_TRUE(stopped);
    EXPECT_EQ(replies.back().token, 44u);
    EXPECT_EQ(replies.back().error->code, ErrorCode::shutting_down);
  }
}

// --- lists

// A heal ends under the label that the worker had before, whatever it did to it.
TEST_F(LateTest, worker_that_is_healed_is_listed_without_a_label) {
  serve_v1();
  script(0, K::load, failed(OutcomeKind::touched, "broken"));
  silence(0, K::load);
  Policy everyone;
  everyone.on_failure = OnFailure::rollback_all;
  const UpdateId id = request(2, everyone);
  ASSERT_EQ(update(id).state, UpdateState::restoring);
  ASSERT_FALSE(epochs->highest().paused.empty());
  EXPECT_EQ(epochs->highest().paused[0], (HeldWorker{url(0), "start-1", ""}));
}

TEST_F(LateTest, worker_that_is_verified_at_the_commit_is_listed_with_its_new_label) {
  const UpdateId id = held_up_at(K::resume);
  ASSERT_EQ(update(id).state, UpdateState::resuming);
  ASSERT_FALSE(epochs->highest().paused.empty());
  EXPECT_EQ(epochs->highest().paused[0], (HeldWorker{url(0), "start-1", "2"}));
}

// A load under the label that it has can't be told from none.
TEST_F(LateTest, worker_that_is_loaded_under_the_label_that_it_has_is_listed_without_one) {
  serve_v1();
  ConnectPair again;
  again.token = 9;
  again.spec = pair().spec;
  again.new_lineage = true;
  post(again);
  silence(0, K::load);
  const UpdateId id = request(1);
  ASSERT_EQ(update(id).state, UpdateState::loading);
  ASSERT_EQ(epochs->highest().paused.size(), 2u);
  EXPECT_EQ(epochs->highest().paused[0], (HeldWorker{url(0), "start-1", ""}));
}

TEST_F(LateTest, worker_that_another_holds_paused_is_brought_back_only_when_the_file_lists_it) {
  reconciles = true;
  serve_v1();
  epochs->claims_silent = true;
  restart(0);
  engine(0).paused = true;
  const int loads = count(0, K::load);
  advance(30s);
  EXPECT_EQ(count(0, K::load), loads);
  ASSERT_TRUE(own().claim);
  EXPECT_EQ(own().writing, (std::vector<HeldWorker>{{url(0), engine(0).incarnation, "", false}}));
  epochs->claims_silent = false;
  post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{1, std::nullopt, std::nullopt}});
  advance(30s);
  EXPECT_EQ(count(0, K::load), loads + 1);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(LateTest, pair_whose_caller_pauses_lists_nobody_as_held) {
  connect(2);
  ConnectPair again;
  again.token = 9;
  again.spec = pair().spec;
  again.spec.policy.pause = PauseOwner::caller;
  post(again);
  request(1, again.spec.policy);
  EXPECT_TRUE(epochs->highest().paused.empty());
  change(WorkerChange::quarantine, 0);
  advance(1min);
  for (const std::vector<HeldWorker>& list : epochs->written) {
    for (const HeldWorker& one : list) EXPECT_FALSE(one.held) << one.url;
  }
}

// --- a start

TEST_F(LateTest, nobody_of_the_running_update_is_ready_while_a_start_waits_for_its_look) {
  for (const bool committed : {false, true}) {
    SCOPED_TRACE(committed);
    begin_anew();
    serve_v1();
    committed ? die_at_record(RecordKind::commit, "", true) : die_at_record(RecordKind::intent, "load", true);
    const UpdateId id = request(2);
    ASSERT_TRUE(dead());
    start_again_with([&] { epochs->looks_silent = true; });
    ASSERT_TRUE(own().recover_waits);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(worker(i).state, WorkerState::unknown) << i;
    before = calls();
    advance(1s);
    EXPECT_EQ(calls(), before);
    epochs->looks_silent = false;
    storage_answers_look();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
    EXPECT_EQ(update(id).state, committed ? UpdateState::succeeded : UpdateState::rolled_back);
  }
}

TEST_F(LateTest, update_whose_commit_was_on_disk_ends_at_the_start_of_a_gateway_that_lost_the_pair) {
  serve_v1();
  die_at_record(RecordKind::commit, "", true);
  const UpdateId id = request(2);
  ASSERT_TRUE(dead());
  start_again_with([&] { epochs->looks_silent = true; });
  ASSERT_EQ(update(id).state, UpdateState::committing);
  taken_by_another();
  epochs->looks_silent = false;
  storage_answers_look();
  EXPECT_EQ(update(id).state, UpdateState::failed);
  ASSERT_TRUE(update(id).error);
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
  EXPECT_EQ(update(id).committed, true);
  EXPECT_EQ(pair().committed->version, 2);
}

// --- without an epoch

// Nobody asked this gateway for the pair since another took it: the word keeps the worker out here, and no more.
TEST_F(LateTest, operators_quarantine_at_a_gateway_that_never_had_the_pair_pauses_no_worker_of_another) {
  connect(2);
  advance(2s);  // what its look at the connect found is old by now
  epochs->files[1] = Epoch{1, "another", "far", "", "", {}};
  change(WorkerChange::quarantine, 0);
  advance(10min);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(count(0, K::pause), 0);
  EXPECT_FALSE(engine(0).paused);
  EXPECT_EQ(own().epoch, 0);
  EXPECT_EQ(epochs->highest().owner, "another");
}

TEST_F(LateTest, operators_quarantine_of_a_pair_that_is_nobodys_takes_its_epoch_and_pauses) {
  connect(2);
  change(WorkerChange::quarantine, 0);
  advance(10s);
  EXPECT_TRUE(engine(0).paused);
  EXPECT_EQ(own().epoch, 1);
  EXPECT_EQ(epochs->highest().paused, (std::vector<HeldWorker>{{url(0), "start-1", ""}}));
}

TEST_F(LateTest, operators_quarantine_pauses_where_no_epoch_can_be_kept) {
  epochs->look_error = epochs->claim_error = Error{ErrorCode::storage_not_visible, "no such mount", nullptr};
  connect(2);
  change(WorkerChange::quarantine, 0);
  advance(10s);
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(LateTest, worker_that_is_quarantined_between_updates_is_listed_before_it_is_paused) {
  serve_v1();
  const int paused = count(0, K::pause);
  epochs->claims_silent = true;
  change(WorkerChange::quarantine, 0);
  advance(5s);
  EXPECT_EQ(count(0, K::pause), paused);
  epochs->claims_silent = false;
  ASSERT_TRUE(own().claim);
  epochs->files[1].paused = own().writing;
  post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{1, std::nullopt, std::nullopt}});
  advance(5s);
  EXPECT_TRUE(engine(0).paused);
  EXPECT_EQ(epochs->highest().paused, (std::vector<HeldWorker>{{url(0), "start-1", ""}}));
}

TEST_F(LateTest, storage_that_goes_on_refusing_the_list_keeps_no_worker_out_of_service_for_long) {
  serve_v1();
  const int paused = count(0, K::pause);
  epochs->claim_error = Error{ErrorCode::storage_full, "no space left", nullptr};
  change(WorkerChange::quarantine, 0);
  advance(2s);
  EXPECT_EQ(count(0, K::pause), paused) << "it is asked again first";
  advance(1min);
  EXPECT_TRUE(engine(0).paused);
}

// Where no label says that a load has begun, the former one says nothing.
TEST_F(LateTest, worker_of_a_pair_that_never_pauses_is_listed_without_a_label_while_it_may_be_loaded) {
  serve_v1();
  Policy never = pair().spec.policy;
  never.pause = PauseOwner::never;
  silence(0, K::load);
  const UpdateId id = request(2, never);
  ASSERT_EQ(update(id).state, UpdateState::loading);
  for (const HeldWorker& one : epochs->highest().paused) EXPECT_EQ(one.label, "") << one.url;
}

TEST_F(LateTest, pause_of_a_worker_that_its_trainer_had_paused_and_continued_is_listed) {
  serve_v1();
  engine(0).paused = true;
  silence(0, K::load);
  request(2);
  ASSERT_EQ(epochs->highest().paused.size(), 2u);
  ASSERT_FALSE(epochs->highest().paused[0].held);
  engine(0).paused = false;  // its trainer continues it
  engine(0).loaded = "/shared/v2.a2";
  engine(0).label = "2";
  silence(0, K::pause);
  Outcome done = ok();
  done.reading = StateReading{"start-1", "2", false, "/models/start"};
  answer_silenced(0, done);
  advance(1s);
  ASSERT_FALSE(epochs->highest().paused.empty());
  EXPECT_EQ(epochs->highest().paused[0].url, url(0));
  EXPECT_TRUE(epochs->highest().paused[0].held);
}

TEST_F(LateTest, worker_that_was_seen_before_its_barrier_is_still_taken_over_after_a_start) {
  connect(2);
  epochs->files[1] = Epoch{1, "predecessor", "near", "", "", {{url(0), "start-1", "default"}}};
  engine(0).paused = true;
  silence(0, K::barrier);
  request(1);
  flush();
  start_again();
  advance(1min);
  EXPECT_FALSE(engine(0).paused);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

}  // namespace
}  // namespace weighlock::protocol
