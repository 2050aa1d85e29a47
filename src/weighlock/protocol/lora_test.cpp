// long because each rule of a LoRA update has its own short test.
#include <algorithm>

#include "weighlock/protocol/lora_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;
using Calls = std::vector<std::string>;
using Names = std::map<std::string, std::string>;

class LoraTest : public LoraFixture {
 public:
  std::string words(const UpdateId& id) const { return update(id).error ? update(id).error->text() : ""; }
  void expect_state(const UpdateId& id, UpdateState state) {
    EXPECT_EQ(name(update(id).state), name(state)) << words(id);
  }

  // A list that shows only these; also an answer that is simply good.
  static Outcome good_list(const Names& names) {
    Outcome outcome;
    outcome.kind = OutcomeKind::ok;
    outcome.reading = StateReading{"start-1", "default", false, "/models/start"};
    outcome.reading->adapters.emplace();
    for (const auto& [name, directory] : names) outcome.reading->adapters->push_back({name, directory});
    return outcome;
  }
};

TEST_F(LoraTest, update_loads_the_versioned_name_without_a_pause_or_a_label) {
  connect_lora(2);
  const UpdateId id = request_lora(1);
  expect_state(id, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine(i).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
    EXPECT_EQ(count(i, K::pause) + count(i, K::resume) + count(i, K::set_label) + count(i, K::load), 0);
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(update(id).targets.at(url(i)).evidence, Evidence::label);
    EXPECT_EQ(known(i).version->version, 1);
  }
  EXPECT_EQ(lora().committed->version, 1);
}

TEST_F(LoraTest, window_keeps_the_last_versions_and_the_client_is_answered_before_older_ones_go) {
  connect_lora(1, 2);
  engine(0).adapters["policy-v0"] = "/elsewhere";  // loaded when the engine started
  for (std::int64_t v = 1; v <= 6; ++v) expect_state(request_lora(v), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"load policy-v1", "load policy-v2", "unload policy-v0", "load policy-v3",
                                            "unload policy-v1", "load policy-v4", "unload policy-v2", "load policy-v5",
                                            "unload policy-v3", "load policy-v6", "unload policy-v4"}));
  EXPECT_EQ(engine(0).adapters.size(), 2u);
}

TEST_F(LoraTest, refused_load_on_one_worker_is_undone_on_the_others_and_pauses_nobody) {
  connect_lora(3);
  request_lora(1);
  script(1, K::load_adapter, failed(OutcomeKind::untouched, "400 bad rank"));
  const UpdateId id = request_lora(2);
  expect_state(id, UpdateState::rolled_back);
  EXPECT_EQ(update(id).committed, false);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(engine(i).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(count(i, K::pause), 0);
  }
  EXPECT_EQ(update(id).targets.at(url(1)).cause->code, CauseCode::adapter_failed);
  EXPECT_NE(update(id).targets.at(url(1)).cause->message.find("400 bad rank"), std::string::npos);
  EXPECT_EQ(lora().committed->version, 1);
  EXPECT_TRUE(discards.empty());
  request_lora(3);
  ASSERT_EQ(discards.size(), 1u);
  EXPECT_EQ(discards[0].directory, "/shared/v2.a2");
}

TEST_F(LoraTest, policy_may_accept_a_missing_worker_and_the_next_version_is_served_there_again) {
  connect_lora(3);
  script(1, K::load_adapter, failed(OutcomeKind::untouched, "400 no"));
  const UpdateId id = request_lora(1, Policy{});
  expect_state(id, UpdateState::degraded);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(known(1).cause->code, CauseCode::adapter_failed);
  EXPECT_FALSE(known(1).version.has_value());
  expect_state(request_lora(2), UpdateState::succeeded);
  EXPECT_FALSE(known(1).cause.has_value());
  EXPECT_EQ(engine(1).adapters.size(), 2u) << "the version that it lacked is in the window";
}

TEST_F(LoraTest, lost_answer_of_a_load_that_is_listed_is_success) {
  connect_lora(1);
  script(0, K::load_adapter, failed(OutcomeKind::unknown, "connection reset"));
  engine(0).adapters["policy-v1"] = "/shared/v1.a1";
  script(0, K::list_adapters, good_list({}));
  expect_state(request_lora(1), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"load policy-v1"}));
}

TEST_F(LoraTest, lost_load_that_is_not_listed_is_sent_again_and_already_there_is_then_success) {
  connect_lora(1);
  script(0, K::load_adapter, failed(OutcomeKind::unknown, "connection reset"));
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "already loaded", ErrorCode::adapter_exists));
  script(0, K::list_adapters, good_list({}), 2);  // it was still on its way
  engine(0).adapters["policy-v1"] = "/shared/v1.a1";
  expect_state(request_lora(1), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"load policy-v1", "load policy-v1"}));
}

TEST_F(LoraTest, load_that_never_shows_is_bounded_and_rolled_back) {
  connect_lora(2);
  script(0, K::load_adapter, failed(OutcomeKind::unknown, "connection reset"), -1);
  const UpdateId id = request_lora(1);
  expect_state(id, UpdateState::rolled_back);
  EXPECT_EQ(std::count(engine(0).adapter_calls.begin(), engine(0).adapter_calls.end(), "load policy-v1"), 3);
  EXPECT_TRUE(engine(1).adapters.empty());
}

TEST_F(LoraTest, name_with_bytes_of_somebody_else_is_unloaded_before_the_load) {
  connect_lora(1);
  engine(0).adapters["policy-v1"] = "/elsewhere";
  expect_state(request_lora(1), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"unload policy-v1", "load policy-v1"}));
  EXPECT_EQ(engine(0).adapters["policy-v1"], "/shared/v1.a1");
}

TEST_F(LoraTest, name_that_came_up_behind_the_list_is_taken_over) {
  connect_lora(1);
  engine(0).adapters["policy-v1"] = "/elsewhere";
  script(0, K::list_adapters, good_list({}));
  expect_state(request_lora(1), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapter_calls.front(), "load policy-v1");
  EXPECT_EQ(engine(0).adapters["policy-v1"], "/shared/v1.a1");
}

TEST_F(LoraTest, half_unloaded_name_is_unloaded_and_loaded) {
  connect_lora(1);
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "incomplete unload", ErrorCode::adapter_half_unloaded));
  expect_state(request_lora(1), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapters.size(), 1u);
}

TEST_F(LoraTest, name_that_could_not_be_unloaded_gets_no_other_bytes_before_it_was) {
  connect_lora(2);
  script(1, K::load_adapter, failed(OutcomeKind::untouched, "400 no"));
  silence(0, K::unload_adapter);
  const UpdateId first = request_lora(1);
  advance(10s);
  expect_state(first, UpdateState::rolled_back);
  EXPECT_NE(update(first).targets.at(url(0)).cause->message.find("could not be unloaded"), std::string::npos);
  EXPECT_TRUE(discards.empty()) << "an engine may read the directory again";
  ASSERT_TRUE(engine(0).adapters.contains("policy-v1"));
  expect_state(request_lora(1), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapters["policy-v1"], "/shared/v1.a2");
  EXPECT_EQ(engine(0).adapter_calls,
            (Calls{"load policy-v1", "unload policy-v1", "unload policy-v1", "unload policy-v1", "load policy-v1"}))
      << "in doubt it is confirmed by a second unload";
  ASSERT_EQ(discards.size(), 1u);
  EXPECT_EQ(discards[0].directory, "/shared/v1.a1");
}

TEST_F(LoraTest, restarted_engine_gets_the_whole_window) {
  connect_lora(2, 3);
  for (std::int64_t v = 1; v <= 4; ++v) request_lora(v);
  restart(0);
  engine(0).adapter_calls.clear();
  expect_state(request_lora(5), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapters,
            (Names{{"policy-v3", "/shared/v3.a3"}, {"policy-v4", "/shared/v4.a4"}, {"policy-v5", "/shared/v5.a5"}}));
}

TEST_F(LoraTest, older_name_that_cannot_be_had_is_told_and_fails_nothing) {
  connect_lora(1, 2);
  request_lora(1);
  restart(0);
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "400 gone", ErrorCode::checkpoint_missing));
  const UpdateId id = request_lora(2);
  expect_state(id, UpdateState::succeeded);
  ASSERT_EQ(known(0).missing.size(), 1u);
  EXPECT_NE(known(0).missing[0].find("policy-v1"), std::string::npos);
}

TEST_F(LoraTest, older_name_that_hangs_gets_a_third_of_the_deadline) {
  connect_lora(1, 2);
  request_lora(1);
  restart(0);
  silence(0, K::load_adapter);
  const UpdateId id = request_lora(2);
  advance(100s);
  expect_state(id, UpdateState::succeeded);
  EXPECT_EQ(known(0).missing.size(), 1u);
  EXPECT_TRUE(engine(0).adapters.contains("policy-v2"));
}

TEST_F(LoraTest, keep_zero_unloads_nothing_committed) {
  connect_lora(1, 0);
  for (std::int64_t v = 1; v <= 5; ++v) request_lora(v);
  EXPECT_EQ(engine(0).adapters.size(), 5u);
  EXPECT_EQ(count(0, K::unload_adapter), 0);
}

TEST_F(LoraTest, window_is_of_committed_versions_whatever_their_numbers) {
  connect_lora(1, 2);
  request_lora(1);
  request_lora(3);
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "400 no"));
  expect_state(request_lora(4), UpdateState::rolled_back);
  request_lora(5);
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v3", "/shared/v3.a2"}, {"policy-v5", "/shared/v5.a4"}}));
}

TEST_F(LoraTest, unload_that_hangs_delays_no_update_and_is_tried_again) {
  connect_lora(1, 1);
  request_lora(1);
  silence(0, K::unload_adapter);
  const UpdateId second = request_lora(2);
  expect_state(second, UpdateState::succeeded);
  EXPECT_EQ(ended.back(), second);
  const std::size_t before = cancels.size();
  expect_state(request_lora(3), UpdateState::succeeded);
  EXPECT_EQ(cancels.size(), before + 1) << "the update comes first";
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v3", "/shared/v3.a3"}}));
}

TEST_F(LoraTest, unload_that_hangs_is_given_up_after_its_limit) {
  connect_lora(1, 1);
  request_lora(1);
  silence(0, K::unload_adapter);
  request_lora(2);
  const std::size_t before = cancels.size();
  advance(9s);
  EXPECT_EQ(cancels.size(), before);
  advance(1s);
  EXPECT_EQ(cancels.size(), before + 1);
  EXPECT_TRUE(engine(0).adapters.contains("policy-v1"));
  request_lora(3);
  EXPECT_EQ(engine(0).adapters.size(), 1u);
}

TEST_F(LoraTest, refused_unload_is_tried_again_after_the_next_update) {
  connect_lora(1, 1);
  request_lora(1);
  script(0, K::unload_adapter, failed(OutcomeKind::untouched, "400 busy"));
  expect_state(request_lora(2), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapters.size(), 2u);
  request_lora(3);
  EXPECT_EQ(engine(0).adapters.size(), 1u);
}

TEST_F(LoraTest, rank_above_a_workers_limit_is_refused_before_any_load) {
  connect_lora(2);
  engine(1).rank_max = 4;
  const UpdateId id = request_lora(1);
  expect_state(id, UpdateState::aborted);
  for (const std::string& word : {url(1), std::string("up to rank 4"), std::string("has rank 8")})
    EXPECT_NE(words(id).find(word), std::string::npos) << words(id);
  EXPECT_TRUE(engine(0).adapter_calls.empty());
  EXPECT_EQ(discards.size(), 1u);
}

TEST_F(LoraTest, evidence_above_a_list_is_refused) {
  connect_lora(1);
  Policy policy = all();
  policy.evidence = Evidence::spot;
  const UpdateId id = request_lora(1, policy);
  expect_state(id, UpdateState::rejected);
  EXPECT_EQ(update(id).error->code, ErrorCode::not_supported);
}

TEST_F(LoraTest, names_are_compared_with_what_the_full_model_pair_committed) {
  connect_lora(2);
  request_lora(1);
  EXPECT_EQ(seals.back().adapter_base, "/models/start");
  connect(2);
  request(7);
  request_lora(2);
  EXPECT_TRUE(seals.back().is_adapter);
  EXPECT_EQ(seals.back().adapter_base, "/shared/v7.a1");
  EXPECT_EQ(seals.back().reference_directory, "/shared/v1.a1");
  connect_lora(2);  // a new run may have another rank
  request_lora(1);
  EXPECT_EQ(seals.back().reference_directory, "");
}

TEST_F(LoraTest, full_model_update_waits_for_the_adapter_and_the_adapter_for_it) {
  connect(2);
  connect_lora(2);
  silence(0, K::load_adapter);
  const UpdateId adapter = request_lora(1);
  expect_state(adapter, UpdateState::loading);
  const UpdateId model = request(1);
  EXPECT_EQ(count(0, K::pause), 0) << "the adapter's load runs";
  engine(0).adapters["policy-v1"] = "/shared/v1.a1";
  silence(1, K::load);
  answer_silenced(0, good_list({}));
  expect_state(adapter, UpdateState::succeeded);
  expect_state(model, UpdateState::loading);
  const UpdateId next = request_lora(2);
  EXPECT_EQ(count(0, K::load_adapter), 1) << "the engines are paused for the model";
  engine(1).loaded = "/shared/v1.a1";
  engine(1).label = "1";
  answer_silenced(1, good_list({}));
  expect_state(model, UpdateState::succeeded);
  expect_state(next, UpdateState::succeeded);
}

TEST_F(LoraTest, worker_in_a_model_update_is_listed_and_judged_when_it_is_free) {
  connect(2);
  connect_lora(2);
  request(1);
  silence(1, K::load);
  const UpdateId model = request(2);
  engine(1).rank_max = 4;
  const int lists = count(1, K::list_adapters);
  const UpdateId adapter = request_lora(1, Policy{});
  EXPECT_EQ(count(1, K::list_adapters), lists) << "it loads, and may be silent";
  engine(1).loaded = "/shared/v2.a2";
  engine(1).label = "2";
  answer_silenced(1, good_list({}));
  expect_state(model, UpdateState::succeeded);
  expect_state(adapter, UpdateState::degraded);
  EXPECT_TRUE(engine(0).adapters.contains("policy-v1"));
  EXPECT_EQ(count(1, K::load_adapter), 0);
  EXPECT_NE(known(1).cause->message.find("up to rank 4"), std::string::npos);
}

TEST_F(LoraTest, failing_adapter_changes_nothing_for_the_full_model_pair) {
  connect(2);
  request(1);
  connect_lora(2);
  script(0, K::load_adapter, failed(OutcomeKind::unknown, "reset"), -1);
  script(0, K::unload_adapter, failed(OutcomeKind::unknown, "reset"), -1);
  script(1, K::list_adapters, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable), -1);
  const int pauses = count(0, K::pause);
  request_lora(1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(worker(i).version->version, 1);
    EXPECT_TRUE(worker(i).locked_by.empty());
  }
  EXPECT_EQ(count(0, K::pause), pauses);
  expect_state(request(2), UpdateState::succeeded);
}

TEST_F(LoraTest, worker_that_is_away_leaves_the_count_and_gets_the_window_when_it_is_back) {
  connect_lora(2);
  script(1, K::identify, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  const UpdateId id = request_lora(1);
  expect_state(id, UpdateState::degraded);
  EXPECT_EQ(known(1).cause->code, CauseCode::unreachable);
  expect_state(request_lora(2), UpdateState::succeeded);
  EXPECT_EQ(engine(1).adapters.size(), 2u);
}

TEST_F(LoraTest, no_worker_at_all_is_a_refusal) {
  connect_lora(1);
  script(0, K::identify, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable));
  const UpdateId id = request_lora(1);
  expect_state(id, UpdateState::rejected);
  EXPECT_EQ(update(id).error->code, ErrorCode::unreachable);
  EXPECT_EQ(discards.size(), 1u);
}

TEST_F(LoraTest, engine_that_restarts_behind_its_load_is_loaded_once_more) {
  connect_lora(1);
  silence(0, K::load_adapter);
  const UpdateId id = request_lora(1);
  restart(0);
  answer_silenced(0, good_list({}));
  expect_state(id, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load_adapter), 2);
  EXPECT_TRUE(engine(0).adapters.contains("policy-v1"));
}

TEST_F(LoraTest, load_without_an_answer_ends_at_the_deadline_and_is_undone) {
  connect_lora(2);
  silence(0, K::load_adapter);
  const UpdateId id = request_lora(1);
  advance(300s);
  expect_state(id, UpdateState::rolled_back);
  EXPECT_EQ(cancels.size(), 1u) << "its connection is closed before the unload";
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"load policy-v1", "unload policy-v1", "unload policy-v1"}));
  EXPECT_TRUE(engine(1).adapters.empty());
}

TEST_F(LoraTest, list_without_an_answer_is_asked_again_and_then_the_load_is_undone) {
  connect_lora(1);
  engine(0);
  script(0, K::list_adapters, good_list({}));
  script(0, K::list_adapters, failed(OutcomeKind::unknown, "reset"), 3);
  const UpdateId id = request_lora(1);
  advance(10s);
  expect_state(id, UpdateState::rolled_back);
  EXPECT_TRUE(engine(0).adapters.empty());
}

TEST_F(LoraTest, directory_that_is_not_visible_yet_is_tried_again) {
  connect_lora(1);
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "404", ErrorCode::checkpoint_missing), 2);
  const UpdateId id = request_lora(1);
  advance(2s);
  expect_state(id, UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load_adapter), 3);
}

TEST_F(LoraTest, cancel_in_loading_undoes_the_name) {
  connect_lora(2);
  silence(1, K::load_adapter);
  const UpdateId id = request_lora(1);
  post(CancelUpdate{7, id});
  expect_state(id, UpdateState::rolled_back);
  EXPECT_TRUE(engine(0).adapters.empty());
  EXPECT_EQ(update(id).error->code, ErrorCode::cancelled);
}

TEST_F(LoraTest, shutdown_in_loading_undoes_the_name_and_stops) {
  connect_lora(1);
  silence(0, K::load_adapter);
  request_lora(1);
  post(Shutdown{});
  EXPECT_TRUE(stopped);
  EXPECT_EQ(engine(0).adapter_calls.back(), "unload policy-v1");
}

TEST_F(LoraTest, disconnect_calls_no_engine_and_a_pair_that_comes_back_keeps_nothing_in_mind) {
  connect_lora(1);
  request_lora(1);
  const std::size_t before = engine(0).operations.size();
  post(RemovePair{9, "lora"});
  EXPECT_EQ(engine(0).operations.size(), before);
  EXPECT_TRUE(state().workers.empty());
  engine(0).adapters["policy-v1"] = "/shared/of-the-run-before";
  connect_lora(1);
  expect_state(request_lora(1), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"load policy-v1", "unload policy-v1", "load policy-v1"}));
}

TEST_F(LoraTest, worker_stays_registered_while_another_pair_uses_it) {
  connect(1);
  connect_lora(1);
  request(1);
  post(RemovePair{9, "actor"});
  ASSERT_TRUE(state().workers.contains(url(0)));
  EXPECT_EQ(worker(0).pair, "");
  expect_state(request_lora(1), UpdateState::succeeded);
  connect(1);
  expect_state(request(2), UpdateState::succeeded);
  post(RemovePair{9, "lora"});
  EXPECT_EQ(worker(0).pair, "actor");
}

TEST_F(LoraTest, adapter_that_is_on_its_way_outlives_the_full_model_pair) {
  connect(1);
  connect_lora(1);
  silence(0, K::load_adapter);
  const UpdateId id = request_lora(1);
  post(RemovePair{9, "actor"});
  post(CancelUpdate{7, id});
  expect_state(id, UpdateState::rolled_back);
  EXPECT_EQ(engine(0).adapter_calls.back(), "unload policy-v1");
}

TEST_F(LoraTest, new_lineage_may_use_a_name_again_after_it_was_unloaded) {
  connect_lora(1);
  request_lora(41);
  request_lora(42);
  connect_lora(1);
  expect_state(request_lora(42), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v41", "/shared/v41.a1"}, {"policy-v42", "/shared/v42.a3"}}));
  request_lora(43);
  EXPECT_FALSE(engine(0).adapters.contains("policy-v41"));
}

TEST_F(LoraTest, same_version_with_the_same_bytes_is_ok_without_a_load) {
  connect_lora(1);
  request_lora(1);
  expect_state(request_lora(1), UpdateState::succeeded);
  EXPECT_EQ(count(0, K::load_adapter), 1);
  sealed.digest = "d2";
  const UpdateId other = request_lora(1);
  expect_state(other, UpdateState::rejected);
  EXPECT_EQ(update(other).error->code, ErrorCode::version_reused);
}

TEST_F(LoraTest, name_of_another_pair_on_the_same_worker_and_a_change_of_kind_are_refused) {
  connect_lora(1);
  ConnectPair event;
  event.token = 3;
  event.spec = spec;
  event.spec.name = "other";
  post(event);
  ASSERT_TRUE(replies.back().error.has_value());
  EXPECT_EQ(replies.back().error->code, ErrorCode::conflict);
  EXPECT_NE(replies.back().error->message.find("lora.name"), std::string::npos);
  event.spec = spec;
  event.spec.lora.reset();
  post(event);
  ASSERT_TRUE(replies.back().error.has_value());
  EXPECT_EQ(replies.back().error->code, ErrorCode::conflict);
}

TEST_F(LoraTest, directories_of_the_window_outlive_keep_versions) {
  connect_lora(1, 3);
  Policy policy = all();
  policy.keep_versions = 1;
  spec.policy.keep_versions = 1;
  post(ConnectPair{1, spec, false});
  for (std::int64_t v = 1; v <= 5; ++v) request_lora(v, policy);
  for (const Discard& discard : discards) {
    EXPECT_NE(discard.directory, "/shared/v3.a3");
    EXPECT_NE(discard.directory, "/shared/v4.a4");
  }
  ASSERT_EQ(discards.size(), 2u);
  EXPECT_EQ(discards[0].directory, "/shared/v1.a1");
  EXPECT_EQ(discards[1].directory, "/shared/v2.a2") << "when it was unloaded, after v5 was committed";
}

TEST_F(LoraTest, canary_that_fails_loads_no_other_worker) {
  connect_lora(3);
  Policy policy = all();
  policy.canary = 1;
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "400 no"));
  const UpdateId id = request_lora(1, policy);
  expect_state(id, UpdateState::rolled_back);
  EXPECT_TRUE(engine(1).adapter_calls.empty());
  EXPECT_TRUE(engine(2).adapter_calls.empty());
}

}  // namespace
}  // namespace weighlock::protocol
