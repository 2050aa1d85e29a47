// long because each rule of an update has its own short test.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class MachineTest : public Fixture {};

// For a test that needs two.
struct World : Fixture {
  void TestBody() override {}
};

TEST_F(MachineTest, update_ends_succeeded_with_every_worker_ready_at_the_version) {
  connect(3);
  engine(2).dialect = DialectKind::vllm;
  const UpdateId id = request(1);
  ASSERT_EQ(update(id).state, UpdateState::succeeded) << (update(id).error ? update(id).error->text() : "");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(worker(i).version->version, 1);
    EXPECT_FALSE(engine(i).paused);
    EXPECT_EQ(engine(i).label, "1");
    EXPECT_EQ(count(i, K::load), 1);
  }
  EXPECT_EQ(update(id).committed, true);
  EXPECT_EQ(ended, std::vector<UpdateId>{id});
}

TEST_F(MachineTest, commit_record_stands_after_every_load_and_before_every_resume) {
  connect(2);
  request(1);
  std::size_t commit = 0;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].kind == RecordKind::commit) commit = i;
  }
  ASSERT_GT(commit, 0u);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].kind != RecordKind::intent) continue;
    const json::value body(records[i].body);
    const auto operation = find_string(body, "operation");
    if (operation == "load") {
      EXPECT_LT(i, commit);
    }
    if (operation == "resume") {
      EXPECT_GT(i, commit);
    }
  }
}

TEST_F(MachineTest, canary_of_the_first_incomparable_update_fails_before_another_worker_is_loaded) {
  connect(3);
  sealed.compared = false;
  script(0, K::verify, failed(OutcomeKind::mismatch, "garbage"));
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).error->code, ErrorCode::canary_failed);
  EXPECT_EQ(count(1, K::load), 0);
  EXPECT_EQ(count(2, K::load), 0);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(MachineTest, one_refused_load_degrades_and_the_worker_comes_back_with_the_next_version) {
  connect(3);
  request(1);
  script(1, K::load, failed(OutcomeKind::untouched, "400 no"), 2);  // and its catch-up
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::degraded);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_NE(worker(1).cause->message.find("400 no"), std::string::npos);
  EXPECT_TRUE(engine(1).paused);
  const UpdateId third = request(3);
  EXPECT_EQ(update(third).state, UpdateState::succeeded);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(engine(1).label, "3");
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(MachineTest, last_worker_to_be_verified_has_the_verify_deadline_not_what_is_left_of_the_loads) {
  connect(1);
  silence(0, K::verify);
  Policy policy;
  policy.deadlines.load = 300s;
  policy.deadlines.verify = 5s;
  const UpdateId id = request(1, policy);
  EXPECT_EQ(update(id).state, UpdateState::verifying);
  advance(6s);
  EXPECT_NE(update(id).state, UpdateState::verifying);
  EXPECT_NE(update(id).targets.begin()->second.cause->message.find("within 5000 ms"), std::string::npos);
}

TEST_F(MachineTest, catch_up_brings_a_worker_that_failed_once_to_the_committed_version) {
  connect(3);
  request(1);
  script(1, K::load, failed(OutcomeKind::touched, "500"));
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(count(1, K::load), 3);
}

TEST_F(MachineTest, lost_quorum_heals_the_touched_to_last_good_and_resumes_the_untouched) {
  connect(2);
  request(1);
  Policy all;
  all.quorum.kind = Quorum::Kind::all;
  script(1, K::load, failed(OutcomeKind::untouched, "400 no"));
  const UpdateId id = request(2, all);
  ASSERT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(update(id).committed, false);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(engine(i).label, "1");
    EXPECT_EQ(engine(i).loaded, "/shared/v1.a1");
    EXPECT_FALSE(engine(i).paused);
  }
  EXPECT_EQ(state().pairs.at("actor").committed->version, 1);
}

TEST_F(MachineTest, torn_worker_without_last_good_is_quarantined_and_never_resumed) {
  connect(1);
  sealed.reference_clean = false;
  script(0, K::load, failed(OutcomeKind::touched, "500 half"));
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::no_last_good);
  EXPECT_EQ(count(0, K::resume), 0);
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(MachineTest, pause_that_fails_for_all_but_one_still_updates_that_one_and_strands_nobody) {
  connect(3);
  script(1, K::pause, failed(OutcomeKind::untouched, "500"), 2);
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::degraded);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_FALSE(engine(0).paused);
}

TEST_F(MachineTest, pause_failure_under_rollback_all_resumes_the_others) {
  connect(3);
  Policy strict;
  strict.on_failure = OnFailure::rollback_all;
  script(1, K::pause, failed(OutcomeKind::untouched, "500"));
  const UpdateId id = request(1, strict);
  EXPECT_EQ(update(id).error->code, ErrorCode::quorum_lost);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
    EXPECT_FALSE(engine(i).paused) << i;
    EXPECT_EQ(count(i, K::load), 0) << i;
  }
}

TEST_F(MachineTest, load_without_an_answer_is_barriered_before_anything_else_is_sent) {
  connect(1);
  silence(0, K::load);
  const UpdateId id = request(1);
  const int before = static_cast<int>(engine(0).operations.size());
  advance(300s);
  ASSERT_GT(engine(0).operations.size(), static_cast<std::size_t>(before));
  EXPECT_EQ(engine(0).operations[static_cast<std::size_t>(before)], K::barrier);
  EXPECT_EQ(cancels.size(), 1u);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(engine(0).label, "default");
  EXPECT_FALSE(engine(0).paused);
}

TEST_F(MachineTest, straggler_does_not_keep_the_fleet_paused) {
  connect(3);
  silence(2, K::load);
  const UpdateId id = request(1);
  advance(9s);
  EXPECT_TRUE(engine(0).paused);
  advance(2s);
  EXPECT_FALSE(engine(0).paused);
  EXPECT_EQ(update(id).state, UpdateState::degraded);
  EXPECT_EQ(worker(2).cause->code, CauseCode::load_unknown);
  answer_silenced(2, failed(OutcomeKind::touched, "late"));
  EXPECT_TRUE(worker(2).earlier.empty());
  EXPECT_EQ(worker(2).state, WorkerState::quarantined);
}

TEST_F(MachineTest, trainer_that_fails_ends_the_update_before_any_pause_with_each_ranks_words) {
  connect(2);
  save_answers[trainer(1)] = SaveEnded{0, SaveOutcomeKind::failed, "400 disk quota"};
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_NE(update(id).error->text().find("disk quota"), std::string::npos);
  EXPECT_NE(update(id).error->text().find(trainer(0)), std::string::npos);
  EXPECT_EQ(count(0, K::pause), 0);
  EXPECT_EQ(discards.size(), 1u);
}

TEST_F(MachineTest, rank_that_hangs_blocks_the_next_save_until_it_answered_and_its_directory_is_discarded_again) {
  connect(1);
  silent_trainers = {trainer(1)};
  const UpdateId first = request(1);
  advance(600s);
  EXPECT_EQ(update(first).state, UpdateState::aborted);
  EXPECT_EQ(update(first).error->code, ErrorCode::timed_out);
  const UpdateId second = request(2);
  EXPECT_EQ(update(second).state, UpdateState::rejected);
  EXPECT_EQ(update(second).error->code, ErrorCode::trainer_busy);
  const std::size_t before = discards.size();
  post(SaveEnded{saves[1].call, SaveOutcomeKind::failed, "late"});
  EXPECT_EQ(discards.size(), before + 1);
  silent_trainers.clear();
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
}

TEST_F(MachineTest, every_rank_gets_exactly_one_save_per_attempt) {
  connect(1, 4);
  request(1);
  EXPECT_EQ(saves.size(), 4u);
}

TEST_F(MachineTest, refused_checkpoint_touches_no_engine) {
  connect(2);
  seal_error = Error{ErrorCode::checkpoint_invalid, "file 'model.safetensors' is cut short", nullptr};
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(update(id).error->code, ErrorCode::checkpoint_invalid);
  EXPECT_EQ(count(0, K::pause), 0);
}

TEST_F(MachineTest, engine_found_paused_is_left_paused) {
  connect(2);
  engine(1).paused = true;
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_TRUE(engine(1).paused);
  EXPECT_TRUE(worker(1).paused_by_other);
  EXPECT_EQ(count(1, K::resume), 0);
}

TEST_F(MachineTest, same_key_is_the_same_update_and_a_lower_version_is_refused) {
  connect(1);
  const UpdateId a = request(5, {}, "key");
  EXPECT_EQ(request(5, {}, "key"), a);
  const UpdateId lower = request(4);
  EXPECT_EQ(update(lower).state, UpdateState::rejected);
  EXPECT_EQ(update(lower).error->code, ErrorCode::version_not_newer);
}

TEST_F(MachineTest, same_version_with_the_same_bytes_is_ok_without_touching_an_engine) {
  connect(1);
  request(5);
  const int loads = count(0, K::load);
  EXPECT_EQ(update(request(5)).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load), loads);
  sealed.digest = "d2";
  const UpdateId other = request(5);
  EXPECT_EQ(update(other).error->code, ErrorCode::version_reused);
}

TEST_F(MachineTest, concurrent_requests_run_one_after_the_other) {
  connect(1);
  silence(0, K::load);
  const UpdateId a = request(1);
  const UpdateId b = request(2);
  EXPECT_EQ(update(b).state, UpdateState::queued);
  EXPECT_EQ(request(2), b);  // joined
  advance(300s);
  EXPECT_TRUE(is_terminal(update(a).state));
  EXPECT_EQ(update(b).state, UpdateState::succeeded);
}

TEST_F(MachineTest, cancel_in_the_load_restores_and_cancel_after_the_commit_is_refused) {
  connect(2);
  silence(0, K::load);
  const UpdateId id = request(1);
  post(CancelUpdate{7, id});
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_FALSE(engine(0).paused);
  EXPECT_FALSE(engine(1).paused);
  post(CancelUpdate{8, id});
  EXPECT_TRUE(replies.back().error.has_value());
}

TEST_F(MachineTest, shutdown_in_the_load_compensates_first_and_then_stops) {
  connect(2);
  silence(0, K::load);
  silence(0, K::barrier);
  request(1);
  post(Shutdown{});
  EXPECT_FALSE(stopped);
  Outcome back = good(url(0), Call{});
  answer_silenced(0, back);  // the cancelled load's own call is first: ignored
  answer_silenced(0, back);
  EXPECT_TRUE(stopped);
  EXPECT_FALSE(engine(1).paused);
}

TEST_F(MachineTest, restarted_engine_is_noticed_and_brought_to_the_version_as_an_extra) {
  connect(2);
  request(1);
  restart(1);
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(update(id).targets.at(url(1)).role, Role::extra);
  EXPECT_EQ(engine(1).label, "2");
}

TEST_F(MachineTest, engine_killed_after_its_load_counts_against_the_quorum_and_is_quarantined) {
  connect(2);
  request(1);
  script(1, K::load, failed(OutcomeKind::unknown, "connection reset"));
  script(1, K::barrier, failed(OutcomeKind::not_sent, "connection refused"), -1);
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::degraded);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_NE(worker(1).cause->message.find("connection reset"), std::string::npos);
}

TEST_F(MachineTest, worker_that_was_continued_during_its_load_is_paused_and_flushed_again) {
  connect(1);
  Outcome running = failed(OutcomeKind::ok, "");
  running.evidence = Evidence::spot;
  running.reading = StateReading{"start-1", "1", false, "/models/start"};
  script(0, K::verify, running);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::pause), 2);
  EXPECT_EQ(count(0, K::flush), 1);
}

TEST_F(MachineTest, evidence_that_cannot_be_had_is_refused_before_the_pause) {
  connect(1);
  Policy policy;
  policy.evidence = Evidence::checksum;
  const UpdateId id = request(1, policy);
  EXPECT_EQ(update(id).error->code, ErrorCode::not_supported);
  EXPECT_EQ(count(0, K::pause), 0);
}

TEST_F(MachineTest, probe_that_fails_after_the_commit_pauses_and_quarantines) {
  connect(1);
  Policy policy;
  policy.evidence = Evidence::probe;
  script(0, K::probe, failed(OutcomeKind::untouched, "NaN"));
  const UpdateId id = request(1, policy);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_EQ(update(id).committed, true);
  EXPECT_EQ(worker(0).cause->code, CauseCode::probe_failed);
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(MachineTest, disconnect_heals_a_quarantined_worker_once_and_names_what_stays) {
  connect(2);
  request(1);
  script(1, K::load, failed(OutcomeKind::untouched, "400 no"), 2);
  request(2);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  script(1, K::load, failed(OutcomeKind::untouched, "still no"));
  post(RemovePair{9, "actor"});
  ASSERT_FALSE(replies.back().error.has_value());
  ASSERT_EQ(replies.back().abandoned.size(), 1u);
  EXPECT_EQ(state().pairs.count("actor"), 0u);
  EXPECT_EQ(worker(1).state, WorkerState::abandoned);
}

TEST_F(MachineTest, reconnect_cancels_a_preparing_update_and_starts_a_lineage) {
  connect(1);
  silent_trainers = {trainer(0)};
  const UpdateId id = request(42);
  connect(1);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(state().pairs.at("actor").lineage, 2);
}

TEST_F(MachineTest, lower_version_is_welcome_in_a_new_lineage) {
  connect(1);
  request(42);
  connect(1);
  EXPECT_EQ(update(request(5)).state, UpdateState::succeeded);
}

TEST_F(MachineTest, worker_of_another_pair_is_refused_naming_the_holder) {
  connect(1);
  ConnectPair other;
  other.token = 5;
  other.spec.name = "critic";
  other.spec.workers = {WorkerSpec{url(0), std::nullopt}};
  post(other);
  ASSERT_TRUE(replies.back().error.has_value());
  EXPECT_NE(replies.back().error->text().find("'actor'"), std::string::npos);
}

TEST_F(MachineTest, vllm_that_fails_its_heal_gets_the_empty_load_and_then_the_good_one) {
  connect(1);
  engine(0).dialect = DialectKind::vllm;
  request(1);
  script(0, K::load, failed(OutcomeKind::touched, "500"), 2);
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(count(0, K::load_empty), 1);
  EXPECT_EQ(engine(0).label, "1");
}

TEST_F(MachineTest, engine_that_an_earlier_gateway_left_in_a_load_is_not_taken_for_ready) {
  connect(2);
  engine(1).label = "loading:other-7";
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).targets.at(url(1)).role, Role::extra);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(engine(1).label, "1");
}

TEST_F(MachineTest, quorum_that_the_members_cannot_reach_is_refused_before_anyone_is_paused) {
  connect(3);
  engine(1).label = "loading:other-7";
  Policy three;
  three.quorum = Quorum{Quorum::Kind::count, 3};
  const UpdateId id = request(1, three);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(update(id).error->code, ErrorCode::quorum_lost);
  EXPECT_EQ(count(0, K::pause), 0);
}

TEST_F(MachineTest, version_whose_digest_fails_after_the_commit_heals_nobody) {
  connect(2);
  request(1);
  sealed.digest = "";
  const UpdateId second = request(2);
  post(DigestDone{second, Error{ErrorCode::storage_failed, "file 'a.safetensors' is cut short", nullptr}});
  EXPECT_EQ(state().pairs.at("actor").committed->version, 2);
  EXPECT_EQ(state().pairs.at("actor").last_good->version, 1);
}

// v2 is committed and its files can't be read, so v3 is undone by way of v1.
TEST_F(MachineTest, worker_that_could_only_be_healed_to_an_older_version_serves_within_max_lag_only) {
  for (const int lag : {0, 1}) {
    World world;
    world.connect(1);
    world.request(1);
    world.sealed.digest = "";
    const UpdateId second = world.request(2);
    world.post(DigestDone{second, Error{ErrorCode::storage_failed, "file 'a.safetensors' is cut short", nullptr}});
    world.script(0, K::load, failed(OutcomeKind::touched, "half of it"));
    Policy policy;
    policy.max_lag = lag;
    world.request(3, policy);
    EXPECT_EQ(world.engine(0).loaded, "/shared/v1.a1");
    EXPECT_EQ(world.worker(0).state, lag == 0 ? WorkerState::quarantined : WorkerState::ready);
    EXPECT_EQ(world.engine(0).paused, lag == 0);
    EXPECT_EQ(lag == 0, world.worker(0).cause && world.worker(0).cause->code == CauseCode::lagging);
  }
}

TEST_F(MachineTest, rank_behind_a_proxy_that_gave_up_still_owns_its_engine) {
  connect(1);
  save_answers[trainer(1)] = SaveEnded{0, SaveOutcomeKind::unknown, "504", true};
  EXPECT_EQ(update(request(1)).state, UpdateState::aborted);
  save_answers.clear();
  EXPECT_EQ(update(request(2)).error->code, ErrorCode::trainer_busy);
}

TEST_F(MachineTest, request_while_a_reconnect_waits_is_refused) {
  connect(1);
  request(41);
  silence(0, K::load);
  request(42);
  connect(1);  // waits for v42, which is loading
  EXPECT_EQ(request(43), UpdateId{});
  EXPECT_EQ(replies.back().error->code, ErrorCode::conflict);
}

TEST_F(MachineTest, wrong_shape_in_vllm_needs_a_restart_and_is_not_healed) {
  connect(1);
  engine(0).dialect = DialectKind::vllm;
  request(1);
  Outcome shape = failed(OutcomeKind::touched, "start (0) + length (128) exceeds");
  shape.needs_restart = true;
  script(0, K::load, shape);
  request(2);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  EXPECT_EQ(worker(0).cause->code, CauseCode::needs_restart);
  const UpdateId third = request(3);
  EXPECT_EQ(update(third).state, UpdateState::rejected);
  restart(0);
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
}

}  // namespace
}  // namespace weighlock::protocol
