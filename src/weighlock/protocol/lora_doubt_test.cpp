// Names of adapters that may go at any time: an unload without an answer, an engine that drops them by itself, one that
// doesn't answer at all. What is said to be served is served, and the window is whole again.
#include <algorithm>

#include "weighlock/protocol/lora_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;
using Calls = std::vector<std::string>;
using Names = std::map<std::string, std::string>;

class AdapterDoubt : public LoraFixture {
 public:
  // Workers are not brought back by themselves, unless `reconciles`.
  void connect_lora(int workers, std::int64_t keep) {
    if (!reconciles) spec.policy.pair_lease = Milliseconds(0);
    LoraFixture::connect_lora(workers, keep);
  }
  void connect_anew() {
    ConnectPair event;
    event.token = 2;
    event.spec = spec;
    post(event);
  }
  void forget_calls() { engine(0).adapter_calls.clear(); }
  bool calls(const std::string& what) {
    const Calls& all = engine(0).adapter_calls;
    return std::find(all.begin(), all.end(), what) != all.end();
  }
  // Version 1 of a new run is refused time for its unload of the committed policy-v1, which may go at any time.
  void give_up_an_unload() {
    connect_lora(1, 2);
    request_lora(1);
    connect_anew();
    silence(0, K::unload_adapter);
    const UpdateId replaced = request_lora(1);
    advance(700s);
    ASSERT_EQ(update(replaced).state, UpdateState::rolled_back);
    ASSERT_TRUE(engine(0).adapters.contains("policy-v1"));
  }
};

TEST_F(AdapterDoubt, name_whose_unload_was_given_up_is_not_believed_when_it_is_listed) {
  give_up_an_unload();
  EXPECT_FALSE(known(0).version) << "it may be gone in a moment";
  ASSERT_TRUE(known(0).cause);
  forget_calls();
  EXPECT_EQ(update(request_lora(2)).state, UpdateState::succeeded);
  // The second unload is answered only when the first that was given up has run.
  Calls first = engine(0).adapter_calls;
  first.resize(4);
  EXPECT_EQ(first, (Calls{"unload policy-v1", "unload policy-v1", "load policy-v1", "load policy-v2"}));
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v1", "/shared/v1.a1"}, {"policy-v2", "/shared/v2.a3"}}));
}

TEST_F(AdapterDoubt, committed_name_that_a_failed_update_unloaded_is_loaded_again_without_an_update) {
  reconciles = true;
  connect_lora(1, 2);
  request_lora(1);
  connect_anew();
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "400 no"));
  ASSERT_EQ(update(request_lora(1)).state, UpdateState::rolled_back);
  EXPECT_FALSE(engine(0).adapters.contains("policy-v1"));
  EXPECT_FALSE(known(0).version);
  advance(20s);
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
  ASSERT_TRUE(known(0).version);
  EXPECT_FALSE(known(0).cause);
}

TEST_F(AdapterDoubt, older_name_of_the_window_that_was_unloaded_is_loaded_again_without_an_update) {
  reconciles = true;
  connect_lora(1, 3);
  for (const std::int64_t version : {1, 2}) request_lora(version);
  connect_anew();
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "400 no"));
  ASSERT_EQ(update(request_lora(1)).state, UpdateState::rolled_back);
  advance(20s);
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v1", "/shared/v1.a1"}, {"policy-v2", "/shared/v2.a2"}}));
}

TEST_F(AdapterDoubt, unload_that_is_on_its_way_when_the_gateway_dies_is_waited_for_by_two_more) {
  reconciles = true;
  connect_lora(1, 2);
  request_lora(1);
  connect_anew();
  die_at_record(RecordKind::intent, "unload_adapter", true);
  silence(0, K::unload_adapter);
  request_lora(1);
  ASSERT_TRUE(dead());
  forget_calls();
  start_again();
  EXPECT_FALSE(known(0).version);
  advance(7300s);
  EXPECT_TRUE(calls("unload policy-v1"));
  EXPECT_EQ(std::count(engine(0).adapter_calls.begin(), engine(0).adapter_calls.end(), "unload policy-v1"), 2);
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
  ASSERT_TRUE(known(0).version);
}

TEST_F(AdapterDoubt, unload_that_waits_is_dropped_when_the_pair_keeps_more) {
  connect_lora(1, 3);
  for (const std::int64_t version : {1, 2, 3}) request_lora(version);
  spec.lora->keep = 1;
  post(ConnectPair{3, spec, false});
  silence(0, K::unload_adapter);
  request_lora(4);
  spec.lora->keep = 3;
  post(ConnectPair{4, spec, false});
  Outcome done;
  done.kind = OutcomeKind::ok;
  answer_silenced(0, done);
  EXPECT_TRUE(calls("unload policy-v1"));
  EXPECT_FALSE(calls("unload policy-v2"));
  EXPECT_FALSE(calls("unload policy-v3"));
}

// Its last process was identified for the adapter's sake, and its own pair has never asked it for anything.
TEST_F(AdapterDoubt, worker_of_a_full_model_pair_that_never_had_an_update_gets_its_adapters_back_too) {
  reconciles = true;
  connect(1);
  connect_lora(1, 2);
  request_lora(1);
  restart(0);
  advance(90s);
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
}

TEST_F(AdapterDoubt, worker_of_adapters_alone_that_restarted_is_brought_back_once) {
  reconciles = true;
  connect_lora(1, 2);
  request_lora(1);
  restart(0);
  advance(120s);
  EXPECT_EQ(lora().joins_ended.size(), 1u);
}

TEST_F(AdapterDoubt, worker_that_comes_to_a_pair_with_a_version_gets_it_without_an_update) {
  reconciles = true;
  connect_lora(1, 2);
  request_lora(1);
  connect(1);
  post(RemovePair{9, "actor"});
  spec.workers.push_back(WorkerSpec{url(1), DialectKind::sglang});
  post(ConnectPair{3, spec, false});
  restart(0);
  advance(90s);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(engine(i).adapters, (Names{{"policy-v1", "/shared/v1.a1"}})) << i;
}

TEST_F(AdapterDoubt, engine_with_fewer_places_than_the_window_serves_the_new_version_and_the_rest_is_told) {
  connect_lora(1, 3);
  engine(0).adapter_places = 2;
  for (const std::int64_t version : {1, 2, 3, 4}) {
    forget_calls();
    EXPECT_EQ(update(request_lora(version)).state, UpdateState::succeeded) << version;
    EXPECT_TRUE(engine(0).adapters.contains("policy-v" + std::to_string(version)));
    EXPECT_LE(engine(0).adapter_calls.size(), 6u) << version;
  }
  ASSERT_FALSE(known(0).missing.empty());
  EXPECT_NE(known(0).missing.front().find("--max-loaded-loras"), std::string::npos);
  for (const auto& [name, adapter] : known(0).names)
    EXPECT_TRUE(!adapter.certain || engine(0).adapters.contains(name)) << name;
}

TEST_F(AdapterDoubt, name_that_the_engine_dropped_is_not_said_to_be_served_once_it_was_listed) {
  connect_lora(2, 2);
  for (const std::int64_t version : {1, 2}) request_lora(version);
  engine(0).adapters.erase("policy-v2");
  script(1, K::load_adapter, failed(OutcomeKind::untouched, "400 no"), -1);
  script(0, K::load_adapter, failed(OutcomeKind::untouched, "400 no"), -1);
  EXPECT_EQ(update(request_lora(3)).state, UpdateState::rolled_back);
  EXPECT_FALSE(known(0).version);
  EXPECT_TRUE(known(0).cause);
  EXPECT_TRUE(known(1).version);
}

// Its process was another one already, and nobody had listed it yet.
TEST_F(AdapterDoubt, new_process_that_got_the_load_may_read_its_directory_until_it_has_unloaded_the_name) {
  connect_lora(1, 2);
  spec.policy.keep_versions = 1;
  post(ConnectPair{3, spec, false});
  script(0, K::unload_adapter, failed(OutcomeKind::untouched, "400 no"));
  request_lora(1);
  silence(0, K::load_adapter);
  const UpdateId second = request_lora(2);
  restart(0);
  engine(0).adapters["policy-v2"] = "/shared/v2.a2";
  Outcome done;
  done.kind = OutcomeKind::ok;
  answer_silenced(0, done);
  EXPECT_NE(update(second).state, UpdateState::succeeded);
  EXPECT_TRUE(engine(0).adapters.contains("policy-v2"));
  ASSERT_TRUE(known(0).names.contains("policy-v2"));
  EXPECT_FALSE(known(0).names.at("policy-v2").certain);
  EXPECT_EQ(known(0).names.at("policy-v2").directory, "/shared/v2.a2");
  request_lora(3);
  EXPECT_FALSE(engine(0).adapters.contains("policy-v2"));
}

TEST_F(AdapterDoubt, worker_that_is_removed_while_it_gets_its_adapters_back_is_let_go) {
  reconciles = true;
  connect_lora(2, 2);
  request_lora(1);
  restart(1);
  silence(1, K::load_adapter);
  for (int i = 0; i < 100 && lora().joins.empty(); ++i) advance(1s);
  ASSERT_EQ(lora().joins.size(), 1u);
  post(ChangeWorker{7, "lora", WorkerChange::remove, WorkerSpec{url(1), std::nullopt}, ""});
  EXPECT_TRUE(lora().joins.empty());
  EXPECT_FALSE(state().workers.contains(url(1)));
  advance(600s);
  EXPECT_EQ(update(request_lora(2)).state, UpdateState::succeeded);
}

// It was another pair's when the workers were listed, and is free when all have answered.
TEST_F(AdapterDoubt, worker_that_another_update_lets_go_of_during_the_survey_is_part_of_the_update) {
  connect(1);
  connect_lora(2, 2);
  request(1);
  silence(0, K::load);
  request(2);
  ASSERT_FALSE(worker(0).locked_by.empty());
  silence(1, K::identify);
  spec.policy.quorum = {};
  const UpdateId id = request_lora(1);
  Outcome answer;
  answer.kind = OutcomeKind::ok;
  answer_silenced(0, answer);
  ASSERT_TRUE(worker(0).locked_by.empty());
  advance(60s);
  ASSERT_TRUE(update(id).targets.contains(url(0))) << update(id).error->text();
  EXPECT_TRUE(update(id).targets.at(url(0)).included);
  EXPECT_TRUE(engine(0).adapters.contains("policy-v1"));
}

TEST_F(AdapterDoubt, directory_goes_when_the_last_engine_has_unloaded_its_name) {
  connect_lora(1, 2);
  spec.policy.keep_versions = 1;
  post(ConnectPair{3, spec, false});
  for (const std::int64_t version : {1, 2, 3}) request_lora(version);
  ASSERT_EQ(discards.size(), 1u);
  EXPECT_EQ(discards[0].directory, "/shared/v1.a1");
  silence(0, K::unload_adapter);
  request_lora(4);
  EXPECT_EQ(discards.size(), 1u);
  Outcome done;
  done.kind = OutcomeKind::ok;
  engine(0).adapters.erase("policy-v2");
  answer_silenced(0, done);
  ASSERT_EQ(discards.size(), 2u);
  EXPECT_EQ(discards[1].directory, "/shared/v2.a2");
}

TEST_F(AdapterDoubt, engine_of_adapters_alone_that_falls_silent_is_fenced_once_and_serves_nothing_until_it_answers) {
  reconciles = true;
  connect_lora(2, 2);
  request_lora(1);
  script(1, K::read_state, failed(OutcomeKind::unknown, "no answer"), 7);
  script(1, K::identify, failed(OutcomeKind::unknown, "no answer"));  // asked in between what it is
  advance(60s);
  ASSERT_EQ(fences.size(), 1u);
  EXPECT_EQ(fences[0].worker, url(1));
  EXPECT_EQ(fences[0].pair, "lora");
  EXPECT_EQ(fences[0].cause.code, CauseCode::unreachable);
  EXPECT_EQ(worker(1).state, WorkerState::ready) << "its model is nobody's here";
  ASSERT_TRUE(known(1).cause);
  EXPECT_EQ(known(1).cause->code, CauseCode::unreachable);
  EXPECT_FALSE(known(0).cause);
  advance(120s);
  EXPECT_FALSE(known(1).cause) << "the same process answers, and has what it had";
  EXPECT_EQ(count(1, K::load_adapter), 1);
  EXPECT_EQ(fences.size(), 1u);
}

}  // namespace
}  // namespace weighlock::protocol
