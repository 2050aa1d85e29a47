// Going back to a version that was committed before.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class Rollback : public Fixture {
 protected:
  // Two workers, and versions 1 to `last` committed one after the other.
  void commit_up_to(std::int64_t last, int keep_versions = 3) {
    connect(2);
    ConnectPair event;
    event.new_lineage = false;
    event.spec = state().pairs.at("actor").spec;
    event.spec.policy.keep_versions = keep_versions;
    post(event);
    for (std::int64_t version = 1; version <= last; ++version) {
      sealed.digest = "d" + std::to_string(version);
      request(version);
    }
    ASSERT_EQ(pair().committed->version, last);
    saves.clear();
    seals.clear();
  }
  const Pair& pair() const { return state().pairs.at("actor"); }
  Error refusal(std::optional<std::int64_t> to) {
    rollback(to);
    return replies.back().error.value_or(Error{ErrorCode::internal, "it was not refused", nullptr});
  }
  const Record* commit_record() const {
    const Record* found = nullptr;
    for (const Record& record : records) {
      if (record.kind == RecordKind::commit) found = &record;
    }
    return found;
  }
};

TEST_F(Rollback, goes_to_the_version_before_without_a_save_and_lowers_the_pointer) {
  commit_up_to(2);
  const UpdateId id = rollback();
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_EQ(update(id).version.version, 1);
  EXPECT_EQ(pair().committed->version, 1);
  EXPECT_EQ(pair().last_good->version, 1);
  EXPECT_TRUE(saves.empty());
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine(i).loaded, "/shared/v1.a1");
    EXPECT_EQ(engine(i).label, "1");
    EXPECT_FALSE(engine(i).paused);
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(worker(i).version->version, 1);
  }
  const json::value body(commit_record()->body);
  EXPECT_TRUE(find_bool(body, "rollback").value_or(false));
  EXPECT_EQ(find_int(body, "from"), 2);
  EXPECT_TRUE(discards.empty());
}

TEST_F(Rollback, what_is_sealed_is_looked_at_before_any_pause) {
  commit_up_to(2);
  seal_error = Error{ErrorCode::checkpoint_missing, "'/shared/v1.a1' is not sealed"};
  const int pauses = count(0, K::pause);
  const int loads = count(0, K::load);
  const UpdateId id = rollback();
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_NE(update(id).error->text().find("not sealed"), std::string::npos);
  EXPECT_EQ(count(0, K::pause), pauses);
  EXPECT_EQ(count(0, K::load), loads);
  EXPECT_EQ(pair().committed->version, 2);
  EXPECT_TRUE(discards.empty()) << "what can't be used now isn't deleted for that";
  ASSERT_EQ(seals.size(), 1U);
  EXPECT_TRUE(seals[0].stored);
  EXPECT_EQ(seals[0].digest, "d1");
  EXPECT_TRUE(seals[0].digest_now);
  EXPECT_EQ(seals[0].directory, "/shared/v1.a1");
  EXPECT_EQ(seals[0].reference_directory, "/shared/v2.a2");
}

TEST_F(Rollback, numbers_that_were_committed_are_used_up) {
  commit_up_to(3);
  rollback(1);
  ASSERT_EQ(pair().committed->version, 1);
  for (const std::int64_t used : {2, 3}) {
    const UpdateId id = request(used);
    EXPECT_EQ(update(id).state, UpdateState::rejected) << used;
    EXPECT_EQ(update(id).error->code, ErrorCode::version_not_newer) << used;
    EXPECT_NE(update(id).error->text().find("v3"), std::string::npos) << "names the highest";
  }
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
}

TEST_F(Rollback, one_after_the_other_goes_further_back_and_a_later_one_skips_what_was_gone_back_from) {
  commit_up_to(3);
  rollback();
  EXPECT_EQ(pair().committed->version, 2);
  rollback();
  EXPECT_EQ(pair().committed->version, 1);
  EXPECT_EQ(refusal(std::nullopt).code, ErrorCode::conflict);
  request(4);
  rollback();
  EXPECT_EQ(pair().committed->version, 1) << "v2 and v3 were gone back from";
}

TEST_F(Rollback, a_rollback_can_be_taken_back_by_name) {
  commit_up_to(3);
  rollback();
  rollback(3);
  EXPECT_EQ(pair().committed->version, 3);
  EXPECT_EQ(pair().previous_good->version, 2);
  EXPECT_EQ(engine(0).loaded, "/shared/v3.a3");
}

TEST_F(Rollback, a_version_that_engines_died_of_is_skipped_and_refused_by_name_with_the_deaths) {
  commit_up_to(3);
  const auto die_of = [&](std::int64_t version, int incarnation) {
    const std::string who = url(1) + " start-" + std::to_string(incarnation);
    records.push_back(Record{
        RecordKind::death, "actor", "", url(1), {{"version", "1/" + std::to_string(version)}, {"incarnation", who}}});
  };
  flush();
  die_of(2, 7);
  start_again();
  ASSERT_EQ(pair().deaths.size(), 1u);
  EXPECT_EQ(update(rollback(2)).state, UpdateState::succeeded) << "one engine may die of anything";
  rollback(3);
  ASSERT_EQ(pair().committed->version, 3);
  flush();
  die_of(2, 8);
  start_again();
  const Error named = refusal(2);
  EXPECT_EQ(named.code, ErrorCode::conflict);
  EXPECT_NE(named.message.find("v2 was the last thing sent to 2 engines that died"), std::string::npos)
      << named.message;
  EXPECT_NE(named.message.find(url(1) + " start-7, " + url(1) + " start-8"), std::string::npos) << named.message;
  EXPECT_EQ(update(rollback()).state, UpdateState::succeeded);
  EXPECT_EQ(pair().committed->version, 1);
}

TEST_F(Rollback, nothing_but_versions_that_engines_died_of_is_refused_and_says_so) {
  commit_up_to(2);
  flush();
  for (const char* const who : {"http://a 1", "http://b 2"})
    records.push_back(Record{RecordKind::death, "actor", "", url(1), {{"version", "1/1"}, {"incarnation", who}}});
  start_again();
  const Error none = refusal(std::nullopt);
  EXPECT_EQ(none.code, ErrorCode::conflict);
  EXPECT_NE(none.message.find("v1 was the last thing sent to 2 engines that died (http://a 1, http://b 2)"),
            std::string::npos)
      << none.message;
}

TEST_F(Rollback, a_version_that_engines_die_of_while_its_rollback_waits_is_refused_at_its_turn) {
  commit_up_to(2);
  silence(0, K::load);
  request(3);
  const UpdateId waits = rollback(1);
  ASSERT_NE(waits, "");
  // As two engines that were healed with it and died would leave it.
  const_cast<Pair&>(pair()).deaths["1/1"] = {"http://a 1", "http://b 2"};
  advance(2000s);
  EXPECT_EQ(update(waits).state, UpdateState::rejected);
  EXPECT_EQ(update(waits).error->code, ErrorCode::conflict);
}

TEST_F(Rollback, refusals_name_what_there_is) {
  connect(2);
  EXPECT_NE(refusal(std::nullopt).message.find("no version is committed"), std::string::npos);
  request(1);
  const Error none = refusal(std::nullopt);
  EXPECT_EQ(none.code, ErrorCode::conflict);
  EXPECT_NE(none.message.find("stored: v1"), std::string::npos) << none.message;
  request(2);
  const Error same = refusal(2);
  EXPECT_EQ(same.code, ErrorCode::conflict);
  EXPECT_NE(same.message.find("v2 is the committed version"), std::string::npos) << same.message;
  const Error strange = refusal(7);
  EXPECT_EQ(strange.code, ErrorCode::not_found);
  EXPECT_NE(strange.message.find("v1, v2"), std::string::npos) << strange.message;
  EXPECT_TRUE(pair().active.empty());
}

TEST_F(Rollback, a_version_whose_update_was_undone_is_nothing_to_go_to) {
  commit_up_to(1);
  for (int i = 0; i < 2; ++i) script(i, K::load, failed(OutcomeKind::untouched, "refused"));
  ASSERT_EQ(update(request(2)).state, UpdateState::rolled_back);
  EXPECT_EQ(refusal(2).code, ErrorCode::not_found);
  EXPECT_EQ(refusal(std::nullopt).code, ErrorCode::conflict);
}

TEST_F(Rollback, without_a_target_it_does_not_guess_what_a_running_update_will_commit) {
  commit_up_to(2);
  silent_trainers = {trainer(0)};
  const UpdateId running = request(3);
  const Error refused = refusal(std::nullopt);
  EXPECT_EQ(refused.code, ErrorCode::conflict);
  EXPECT_NE(refused.message.find(running), std::string::npos) << refused.message;
  const UpdateId queued = rollback(1);
  ASSERT_EQ(replies.back().error, std::nullopt);
  const CallId save = saves[0].call;
  silent_trainers.clear();
  post(SaveEnded{save, SaveOutcomeKind::ok, "", false});
  EXPECT_EQ(update(running).state, UpdateState::succeeded);
  EXPECT_EQ(update(queued).state, UpdateState::succeeded);
  EXPECT_EQ(pair().committed->version, 1);
  EXPECT_EQ(commit_record()->body.at("from").to_number<int>(), 3);
}

TEST_F(Rollback, what_it_goes_to_is_leased_while_it_waits) {
  commit_up_to(2, 1);
  silent_trainers = {trainer(0)};
  request(3, pair().spec.policy);
  const UpdateId queued = rollback(1);
  const CallId save = saves[0].call;
  post(SaveEnded{save, SaveOutcomeKind::ok, "", false});
  EXPECT_EQ(update(queued).state, UpdateState::succeeded);
  for (const Discard& one : discards) EXPECT_NE(one.directory, "/shared/v1.a1");
  EXPECT_EQ(pair().committed->version, 1);
}

TEST_F(Rollback, asked_twice_while_it_runs_is_one) {
  commit_up_to(3);
  silence(0, K::pause);
  const UpdateId first = rollback();
  EXPECT_EQ(rollback(), first);
  EXPECT_EQ(rollback(2), first);
  EXPECT_NE(request(2), first) << "an update of that number isn't the rollback to it";
}

TEST_F(Rollback, the_same_key_gets_the_same_outcome) {
  commit_up_to(3);
  const UpdateId first = rollback(std::nullopt, "k");
  EXPECT_EQ(rollback(std::nullopt, "k"), first);
  EXPECT_EQ(pair().committed->version, 2) << "not one further";
  rollback(1, "k");
  ASSERT_TRUE(replies.back().error.has_value());
  EXPECT_EQ(replies.back().error->code, ErrorCode::conflict);
  request(2, {}, "k");
  ASSERT_TRUE(replies.back().error.has_value());
  EXPECT_NE(replies.back().error->message.find("rollback to v2"), std::string::npos);
}

TEST_F(Rollback, one_that_fails_is_undone_and_its_target_stays_and_may_be_tried_again) {
  commit_up_to(2);
  for (int i = 0; i < 2; ++i) script(i, K::load, failed(OutcomeKind::touched, "500 no"));
  const UpdateId id = rollback();
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(pair().committed->version, 2);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(engine(i).loaded, "/shared/v2.a2");
  EXPECT_TRUE(discards.empty());
  EXPECT_EQ(pair().stored.size(), 2U);
  EXPECT_EQ(update(rollback()).state, UpdateState::succeeded);
  EXPECT_EQ(pair().committed->version, 1);
}

TEST_F(Rollback, a_number_that_left_workers_quarantined_on_its_way_back_may_be_gone_back_to_again) {
  commit_up_to(2);
  for (int i = 0; i < 2; ++i) script(i, K::load, failed(OutcomeKind::touched, "500 no"), 2);
  ASSERT_EQ(update(rollback()).state, UpdateState::failed);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(worker(i).state, WorkerState::quarantined);
  EXPECT_EQ(update(rollback()).state, UpdateState::succeeded);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
}

TEST_F(Rollback, what_was_gone_back_from_stays_while_a_worker_holds_it) {
  commit_up_to(3, 1);
  script(1, K::read_state, failed(OutcomeKind::not_sent, "no route"), -1);
  rollback();
  ASSERT_TRUE(worker(1).version && worker(1).version->version == 3);
  request(4, pair().spec.policy);
  request(5, pair().spec.policy);
  request(6, pair().spec.policy);
  for (const Discard& one : discards) EXPECT_NE(one.directory, "/shared/v3.a3");
  EXPECT_GE(discards.size(), 2U);
}

TEST_F(Rollback, a_worker_that_was_left_on_the_newer_version_may_not_lag_there) {
  commit_up_to(1);
  Policy lax;
  lax.max_lag = 5;
  ConnectPair event;
  event.new_lineage = false;
  event.spec = pair().spec;
  event.spec.policy = lax;
  post(event);
  request(2, lax);
  script(1, K::pause, failed(OutcomeKind::untouched, "busy"), 1);
  rollback();
  EXPECT_EQ(pair().committed->version, 1);
  EXPECT_EQ(engine(1).loaded, "/shared/v1.a1") << "caught up, not left";
}

TEST_F(Rollback, an_adapter_is_refused_with_what_to_do_instead) {
  ConnectPair event;
  event.spec.name = "actor";
  event.spec.save_path = "/shared";
  event.spec.workers = {WorkerSpec{url(0), DialectKind::sglang}};
  event.spec.trainer_urls = {trainer(0)};
  event.spec.lora = LoraSpec{"policy", 2};
  post(event);
  request(1);
  request(2);
  const Error refused = refusal(std::nullopt);
  EXPECT_EQ(refused.code, ErrorCode::not_supported);
  EXPECT_NE(refused.message.find("own name"), std::string::npos) << refused.message;
}

TEST_F(Rollback, it_can_be_cancelled_until_its_commit) {
  commit_up_to(2);
  silence(0, K::pause);
  const UpdateId id = rollback();
  post(CancelUpdate{9, id});
  advance(100s);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(pair().committed->version, 2);
}

TEST_F(Rollback, a_handed_directory_is_gone_back_to_as_well_until_it_is_handed_over_anew) {
  connect(2);
  for (std::int64_t version = 1; version <= 3; ++version) {
    RequestUpdate event;
    event.pair = "actor";
    event.version = version;
    event.path = version == 3 ? "/handed/b" : version == 2 ? "/handed/b" : "/handed/a";
    post(event);
  }
  EXPECT_EQ(refusal(2).code, ErrorCode::not_found) << "its directory holds v3 now";
  const UpdateId id = rollback();
  EXPECT_EQ(update(id).version.directory, "/handed/a");
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_TRUE(seals.back().foreign);
  EXPECT_TRUE(discards.empty());
}

TEST_F(Rollback, one_of_an_earlier_lineage_is_the_one_before_and_numbers_go_on_in_the_present_one) {
  commit_up_to(2);
  ConnectPair event;
  event.spec = pair().spec;
  post(event);
  request(1);
  ASSERT_EQ(pair().committed->lineage, 2);
  rollback();
  EXPECT_EQ(pair().committed->lineage, 1);
  EXPECT_EQ(pair().committed->version, 2);
  EXPECT_EQ(update(request(1)).error->code, ErrorCode::version_not_newer) << "lineage 2 has used it";
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
}

TEST_F(Rollback, after_a_restart_the_next_number_must_still_be_new) {
  commit_up_to(3);
  rollback(1);
  start_again();
  EXPECT_EQ(pair().committed->version, 1);
  EXPECT_EQ(update(request(3)).error->code, ErrorCode::version_not_newer);
  EXPECT_EQ(update(request(4)).state, UpdateState::succeeded);
}

TEST_F(Rollback, collecting_deletes_what_retention_would_and_a_dry_run_only_tells) {
  commit_up_to(3);
  ConnectPair event;
  event.new_lineage = false;
  event.spec = pair().spec;
  event.spec.policy.keep_versions = 1;
  post(event);
  post(CollectVersions{7, "actor", true});
  ASSERT_EQ(replies.back().collected, std::vector<std::string>{"/shared/v1.a1"});
  EXPECT_TRUE(discards.empty());
  post(CollectVersions{7, "actor", false});
  EXPECT_EQ(replies.back().collected, std::vector<std::string>{"/shared/v1.a1"}) << "v2 is what a bad v3 is undone to";
  ASSERT_EQ(discards.size(), 1U);
  EXPECT_EQ(discards[0].directory, "/shared/v1.a1");
  EXPECT_EQ(refusal(1).code, ErrorCode::not_found);
  EXPECT_EQ(replayed().pairs.at("actor").stored.size(), 2U);
  silent_trainers = {trainer(0)};
  request(4);
  post(CollectVersions{7, "actor", false});
  EXPECT_EQ(replies.back().error->code, ErrorCode::conflict);
}

}  // namespace
}  // namespace weighlock::protocol
