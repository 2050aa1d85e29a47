// A pair that was another gateway's, one that is taken back, and both over a restart.
#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/ownership_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class TakeoverTest : public OwnedFixture {};

TEST_F(TakeoverTest, connect_takes_the_next_epoch_and_brings_back_whom_the_predecessor_left_paused) {
  left_by_predecessor({{url(0), "start-1"}});
  engine(0).paused = true;
  connect(2);
  EXPECT_EQ(own().epoch, 2);
  EXPECT_FALSE(engine(0).paused);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  const std::vector<K> asked = engine(0).operations;
  const auto barrier = std::find(asked.begin(), asked.end(), K::barrier);
  EXPECT_LT(barrier, std::find(asked.begin(), asked.end(), K::resume)) << "what the other had sent has ended first";
  EXPECT_TRUE(engine(1).operations.empty()) << "it was not left paused, so nothing is asked of it";
  EXPECT_TRUE(epochs->highest().paused.empty());
}

TEST_F(TakeoverTest, each_worker_is_barriered_before_anything_is_sent_that_changes_it) {
  left_by_predecessor({});
  connect(2);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) {
    const std::vector<K>& asked = engine(i).operations;
    EXPECT_LT(std::find(asked.begin(), asked.end(), K::barrier), std::find(asked.begin(), asked.end(), K::pause)) << i;
    EXPECT_FALSE(engine(i).paused);
  }
}

TEST_F(TakeoverTest, first_update_takes_the_pair_over_too_and_undoes_the_pauses) {
  connect(2);
  left_by_predecessor({{url(0), "start-1"}, {url(1), ""}});
  engine(0).paused = engine(1).paused = true;
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_EQ(own().epoch, 2);
  EXPECT_FALSE(engine(0).paused || engine(1).paused);
}

TEST_F(TakeoverTest, epoch_that_is_only_taken_when_the_pauses_are_due_still_gets_its_barriers_first) {
  connect(2);
  left_by_predecessor({{url(0), "start-1"}});
  engine(0).paused = true;
  epochs->claims_silent = true;
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::pausing);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(count(i, K::barrier), 0);
  epochs->claims_silent = false;
  post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{2, epochs->files.at(1), std::nullopt}});
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(count(i, K::barrier), 1);
    EXPECT_FALSE(engine(i).paused);
  }
}

TEST_F(TakeoverTest, whom_the_predecessor_left_paused_comes_back_although_the_first_update_failed_in_the_save) {
  connect(2);
  left_by_predecessor({{url(0), "start-1"}});
  engine(0).paused = true;
  save_answers[trainer(0)] = SaveEnded{0, SaveOutcomeKind::failed, "out of memory"};
  EXPECT_EQ(update(request(1)).state, UpdateState::aborted);
  advance(1s);
  EXPECT_FALSE(engine(0).paused);
}

// It may have reached a later process than the one that was listed; protocol.md section 7 asks for no more than the
// list.
// It was loaded, and the former owner did not live to verify it.
TEST_F(TakeoverTest, worker_with_another_label_than_it_was_listed_with_is_not_taken_to_be_whole) {
  for (const char* listed : {"1", ""}) {
    SCOPED_TRACE(listed);
    begin_anew();
    epochs->files[1] = Epoch{1, "predecessor", "near", "", "", {{url(0), "start-1", listed}}};
    engine(0).paused = true;
    engine(0).label = "2";
    connect(2);
    EXPECT_TRUE(engine(0).paused);
    EXPECT_EQ(worker(0).state, WorkerState::quarantined);
    EXPECT_EQ(worker(0).cause->code, CauseCode::no_last_good);
    EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
    EXPECT_FALSE(engine(0).paused);
    EXPECT_EQ(worker(0).state, WorkerState::ready);
  }
}

TEST_F(TakeoverTest, pause_of_a_listed_worker_is_undone_whichever_process_is_paused) {
  left_by_predecessor({{url(0), "before-it-restarted"}});
  engine(0).paused = true;
  connect(2);
  EXPECT_FALSE(engine(0).paused);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

TEST_F(TakeoverTest, pause_of_a_worker_that_is_not_listed_is_somebody_elses) {
  left_by_predecessor({{url(1), "start-1"}});
  engine(0).paused = true;
  connect(2);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_TRUE(engine(0).paused) << "a trainer's pause is left alone";
}

TEST_F(TakeoverTest, worker_that_was_left_in_a_load_stays_paused_until_it_can_be_healed) {
  left_by_predecessor({{url(0), "start-1"}});
  engine(0).paused = true;
  engine(0).label = "loading:theirs";
  connect(2);
  EXPECT_TRUE(engine(0).paused);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  ASSERT_TRUE(worker(0).cause);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_FALSE(engine(0).paused);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

TEST_F(TakeoverTest, worker_that_can_not_be_reached_at_the_takeover_is_quarantined_and_stays_listed) {
  left_by_predecessor({{url(0), "start-1"}});
  script(0, K::identify, failed(OutcomeKind::not_sent, "no route"), -1);
  connect(2);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::unreachable);
  EXPECT_EQ(epochs->highest().paused, (std::vector<HeldWorker>{{url(0), "start-1", "default"}}));
}

TEST_F(TakeoverTest, connecting_again_takes_the_pair_back) {
  serve_v1();
  taken_by_another();
  advance(limits::kEpochLookPeriod);
  ASSERT_TRUE(is_superseded(pair()));
  epochs->files[9].paused = {{url(1), "start-1"}};
  engine(1).paused = true;
  connect(2);
  EXPECT_FALSE(is_superseded(pair()));
  EXPECT_EQ(own().epoch, 10);
  EXPECT_FALSE(engine(1).paused);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
}

TEST_F(TakeoverTest, superseded_pair_is_removed_without_a_call) {
  held_up_at(K::load);
  taken_by_another();
  advance(limits::kEpochLookBusy);
  const std::size_t before = calls();
  post(RemovePair{77, "actor"});
  EXPECT_FALSE(replies.back().error);
  EXPECT_TRUE(state().pairs.empty());
  EXPECT_EQ(calls(), before);
}

TEST_F(TakeoverTest, connect_that_waits_for_a_look_is_answered_whatever_the_look_says) {
  held_up_at(K::load);
  taken_by_another();
  epochs->looks_silent = true;
  stand_still(limits::kEpochStale + 1ms);
  connect(2);
  ASSERT_EQ(own().parked.size(), 1u);
  epochs->looks_silent = false;
  storage_answers_look();
  EXPECT_EQ(replies.back().token, 1u);
  EXPECT_FALSE(replies.back().error);
  EXPECT_EQ(own().epoch, 10);
}

// --- a pair that is lost, and its workers

// Its connection is closed when nothing waits for it any more; and it may still run when the worker comes back.
TEST_F(TakeoverTest, worker_that_leaves_a_lost_pair_with_a_call_of_ours_is_barriered_when_it_comes_back) {
  held_up_at(K::load);
  taken_by_another();
  advance(limits::kEpochLookBusy);
  ASSERT_TRUE(is_superseded(pair()));
  ConnectPair event;
  event.token = 5;
  event.spec = pair().spec;
  event.spec.workers = {WorkerSpec{url(1), std::nullopt}};
  event.new_lineage = true;
  post(event);
  ASSERT_FALSE(replies.back().error);
  EXPECT_EQ(worker(0).state, WorkerState::abandoned);
  engine(0).operations.clear();
  connect(2);
  EXPECT_EQ(update(request(5)).state, UpdateState::succeeded);
  const std::vector<K>& asked = engine(0).operations;
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked.front(), K::barrier);
  EXPECT_FALSE(cancels.empty());
}

TEST_F(TakeoverTest, worker_that_the_predecessor_left_paused_comes_back_when_it_comes_to_the_pair) {
  for (const bool dies : {false, true}) {
    SCOPED_TRACE(dies);
    begin_anew();
    left_by_predecessor({{url(1), "start-1"}});
    engine(1).paused = true;
    connect(1);
    EXPECT_EQ(own().epoch, 2);
    EXPECT_TRUE(engine(1).paused);
    flush();
    if (dies) start_again();
    ConnectPair more;
    more.token = 5;
    more.spec = pair().spec;
    more.spec.workers.push_back(WorkerSpec{url(1), std::nullopt});
    post(more);
    advance(limits::kEpochLookPeriod);
    EXPECT_FALSE(engine(1).paused);
    EXPECT_EQ(worker(1).state, WorkerState::ready);
    EXPECT_TRUE(epochs->highest().paused.empty());
  }
}

// --- over a restart

TEST_F(TakeoverTest, start_on_the_same_records_keeps_id_and_epoch) {
  serve_v1();
  flush();
  start_again();
  EXPECT_EQ(state().owner, "me");
  EXPECT_EQ(own().epoch, 1);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(epochs->files.size(), 1u);
}

TEST_F(TakeoverTest, gateway_that_died_in_a_load_and_starts_after_another_took_the_pair_touches_nobody) {
  serve_v1();
  die_at_record(RecordKind::intent, "load", true);
  request(2);
  ASSERT_TRUE(dead());
  taken_by_another();
  const std::size_t before = calls();
  start_again();
  EXPECT_EQ(calls(), before);
  EXPECT_TRUE(is_superseded(pair()));
  EXPECT_EQ(update(pair().history.back()).error->code, ErrorCode::superseded);
  advance(10min);
  EXPECT_EQ(calls(), before);
}

TEST_F(TakeoverTest, gateway_that_died_in_a_load_and_still_owns_the_pair_brings_everyone_back) {
  serve_v1();
  die_at_record(RecordKind::intent, "load", true);
  request(2);
  start_again();
  EXPECT_EQ(update(pair().history.back()).state, UpdateState::rolled_back);
  EXPECT_FALSE(engine(0).paused || engine(1).paused);
}

TEST_F(TakeoverTest, superseded_pair_is_superseded_after_a_start_too) {
  serve_v1();
  taken_by_another();
  advance(limits::kEpochLookPeriod);
  flush();
  start_again();
  ASSERT_TRUE(is_superseded(pair()));
  EXPECT_EQ(own().superseded_by->owner, "another");
  EXPECT_EQ(worker(0).state, WorkerState::foreign);
  EXPECT_TRUE(request(2).empty());
}

TEST_F(TakeoverTest, takeover_that_was_cut_short_goes_on_at_the_next_start) {
  for (int group = 1; group < 5; ++group) {
    SCOPED_TRACE(group);
    begin_anew();
    left_by_predecessor({{url(0), "start-1"}});
    engine(0).paused = true;
    die_at_group(group, true);
    connect(2);
    if (!dead()) flush();
    start_again();
    advance(1min);
    EXPECT_FALSE(engine(0).paused);
    EXPECT_EQ(worker(0).state, WorkerState::ready);
  }
}

TEST_F(TakeoverTest, listed_worker_that_runs_is_what_it_was_after_a_takeover_that_a_death_cut_short) {
  for (const K kind : {K::identify, K::barrier}) {
    SCOPED_TRACE(std::string(weighlock::name(kind)));
    begin_anew();
    left_by_predecessor({{url(0), "start-1"}});
    silence(0, kind);
    connect(2);
    flush();
    const UpdateId id = pair().active;
    start_again();
    EXPECT_EQ(update(id).state, UpdateState::rolled_back);
    EXPECT_EQ(worker(0).state, WorkerState::ready);
    EXPECT_EQ(count(0, K::pause), 0);
  }
}

TEST_F(TakeoverTest, heal_of_a_takeover_that_a_death_cut_short_is_done_again_although_somebody_continued_the_worker) {
  serve_v1();
  taken_by_another();
  advance(limits::kEpochLookPeriod);
  epochs->files[9].paused = {{url(1), "start-1"}};
  engine(1).paused = true;
  die_at_record(RecordKind::intent, "load", true);
  connect(2);
  ASSERT_TRUE(dead());
  engine(1).paused = false;
  engine(1).loaded = "half";
  start_again();
  EXPECT_EQ(engine(1).loaded, "/shared/v1.a1");
  EXPECT_EQ(worker(1).state, WorkerState::ready) << (worker(1).cause ? worker(1).cause->message : "");
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(TakeoverTest, what_a_takeover_must_know_is_known_again_after_a_start) {
  left_by_predecessor({{url(0), "start-1"}});
  silence(0, K::identify);
  connect(2);
  flush();
  const State again = replayed();
  EXPECT_EQ(again.pairs.at("actor").ownership.epoch, 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(again.workers.at(url(i)).earlier.size(), 1u);
  ASSERT_TRUE(again.workers.at(url(0)).taken_over);
  EXPECT_TRUE(again.workers.at(url(0)).taken_over->held);
  EXPECT_FALSE(again.workers.at(url(1)).taken_over->held);
}

// It may take effect at any time, and nobody else would undo it.
TEST_F(TakeoverTest, pause_that_came_after_the_pair_was_lost_and_taken_back_is_undone) {
  held_up_at(K::pause);
  lost_to_another();
  connect(2);
  ASSERT_EQ(own().epoch, 10);
  engine(0).paused = true;
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  EXPECT_FALSE(engine(0).paused);
}

TEST_F(TakeoverTest, workers_of_a_pair_that_is_taken_back_are_looked_at_again) {
  reconciles = true;
  serve_v1();
  lost_to_another();
  connect(3);
  EXPECT_EQ(worker(2).state, WorkerState::joining);
  advance(60s);
  EXPECT_EQ(worker(2).state, WorkerState::ready);
  ASSERT_TRUE(worker(2).version);
  EXPECT_EQ(worker(2).version->version, 1);
}

TEST_F(TakeoverTest, nobody_is_brought_back_before_the_pair_is_known_to_be_ours_whoever_paused_them) {
  reconciles = true;
  serve_v1();
  lost_to_another();
  epochs->claims_silent = true;
  engine(2).paused = true;
  connect(3);
  ASSERT_EQ(worker(2).state, WorkerState::joining);
  advance(60s);
  EXPECT_EQ(count(2, K::set_label) + count(2, K::load), 0);
  epochs->claims_silent = false;
  ASSERT_TRUE(own().claim);
  post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{10, epochs->highest(), std::nullopt}});
  advance(60s);
  EXPECT_EQ(worker(2).state, WorkerState::ready);
}

TEST_F(TakeoverTest, drained_worker_that_the_predecessor_held_paused_is_out_with_its_cause) {
  connect(2);
  advance(15s);
  change(WorkerChange::drain, 0);
  ASSERT_EQ(worker(0).state, WorkerState::draining);
  left_by_predecessor({{url(0), "start-1"}});
  engine(0).paused = true;
  silent_trainers = {trainer(0)};
  request(1);
  advance(60s);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  ASSERT_TRUE(worker(0).cause);
  EXPECT_EQ(worker(0).cause->code, CauseCode::operator_hold);
}

TEST_F(TakeoverTest, released_worker_is_not_ready_before_the_pair_is_known_to_be_ours) {
  reconciles = true;
  serve_v1();
  lost_to_another();
  epochs->claims_silent = true;
  connect(2);
  change(WorkerChange::release, 0);
  ASSERT_EQ(worker(0).state, WorkerState::joining);
  advance(20s);
  EXPECT_EQ(worker(0).state, WorkerState::joining);
  epochs->claims_silent = false;
  ASSERT_TRUE(own().claim);
  post(EpochClaimed{*own().claim, "actor", ClaimedEpoch{10, epochs->highest(), std::nullopt}});
  advance(60s);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  ASSERT_TRUE(worker(0).version);
}

}  // namespace
}  // namespace weighlock::protocol
