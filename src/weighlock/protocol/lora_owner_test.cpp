// A LoRA pair that another gateway takes, and that is taken back; and one whose model is another gateway's.
#include <memory>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora_fixture_test.hpp"
#include "weighlock/protocol/ownership.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;
using Calls = std::vector<std::string>;
using Names = std::map<std::string, std::string>;

class LoraOwnerTest : public LoraFixture {
 public:
  LoraOwnerTest() {
    begin();
    reconciles = true;
  }
  void begin() { keep_epochs("me", std::make_shared<FakeEpochs>()); }
  void taken_by_another() { epochs->files[9] = Epoch{9, "another", "far", "", "", {}}; }
  void lose_it() {
    taken_by_another();
    advance(limits::kEpochLookPeriod);
    ASSERT_TRUE(is_superseded(lora()));
  }
};

TEST_F(LoraOwnerTest, names_are_unloaded_twice_and_loaded_anew_when_the_pair_is_taken_back) {
  connect_lora(1);
  request_lora(1);
  lose_it();
  EXPECT_FALSE(known(0).version);
  ASSERT_TRUE(known(0).cause);
  EXPECT_EQ(known(0).cause->code, CauseCode::foreign);
  engine(0).adapters["policy-v1"] = "/of-another/v1";
  engine(0).adapter_calls.clear();
  connect_lora(1);
  EXPECT_EQ(lora().ownership.epoch, 10);
  advance(30s);
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"unload policy-v1", "unload policy-v1", "load policy-v1"}));
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
  ASSERT_TRUE(known(0).version);
  EXPECT_EQ(known(0).version->version, 1);
  EXPECT_FALSE(known(0).cause);
}

TEST_F(LoraOwnerTest, next_process_doubts_the_names_of_a_pair_that_was_lost_and_of_one_that_was_taken_back) {
  connect_lora(1);
  request_lora(1);
  ASSERT_TRUE(replayed().pairs.at("lora").adapters.at(url(0)).version);
  lose_it();
  silence(0, K::unload_adapter);
  for (int i = 0; i < 2; ++i) {
    flush();
    settle();
    const State again = replayed();
    const WorkerAdapters& adapters = again.pairs.at("lora").adapters.at(url(0));
    EXPECT_FALSE(adapters.version);
    EXPECT_TRUE(adapters.taken_over);
    ASSERT_TRUE(adapters.names.contains("policy-v1"));
    EXPECT_FALSE(adapters.names.at("policy-v1").certain);
    EXPECT_EQ(adapters.names.at("policy-v1").attempt, 0);
    EXPECT_TRUE(adapters.cause);
    connect_lora(1);
  }
  advance(1000s);
  request_lora(2);
  EXPECT_FALSE(replayed().pairs.at("lora").adapters.at(url(0)).taken_over);
}

TEST_F(LoraOwnerTest, first_load_of_a_new_owner_comes_behind_two_unloads_of_its_name_at_each_worker) {
  epochs->files[3] = Epoch{3, "another", "far", "", "", {}};
  connect_lora(2, 0);
  request_lora(1);
  request_lora(2);
  const Calls begins{"unload policy-v1", "unload policy-v1", "load policy-v1", "load policy-v2"};
  EXPECT_EQ(engine(0).adapter_calls, begins);
  EXPECT_EQ(engine(1).adapter_calls, begins);
  connect_lora(3, 0);  // one that the former owner may have had
  request_lora(3);
  EXPECT_EQ(engine(2).adapter_calls,
            (Calls{"unload policy-v2", "unload policy-v2", "load policy-v2", "load policy-v3"}));
  restart(2);  // nothing of anybody is in a new process
  engine(2).adapter_calls.clear();
  advance(90s);
  EXPECT_EQ(engine(2).adapter_calls, (Calls{"load policy-v2", "load policy-v3"}));
}

TEST_F(LoraOwnerTest, name_that_is_listed_is_unloaded_first_also_behind_the_unload_of_another) {
  begin();
  connect_lora(1, 3);
  for (const std::int64_t version : {1, 2}) request_lora(version);
  restart(0);
  engine(0).adapters = {{"policy-v1", "/of-another/v1"}, {"policy-v2", "/of-another/v2"}};
  engine(0).adapter_calls.clear();
  request_lora(3);
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"unload policy-v1", "load policy-v1", "unload policy-v2", "load policy-v2",
                                            "load policy-v3", "unload policy-v0"}));
}

TEST_F(LoraOwnerTest, restarted_engine_of_a_pair_that_another_took_gets_nothing_whenever_that_was) {
  for (std::int64_t at = 0; at < 10'000; at += 500) {
    SCOPED_TRACE(at);
    begin();
    connect_lora(1);
    request_lora(1);
    advance(Milliseconds(at));
    restart(0);
    taken_by_another();
    engine(0).adapter_calls.clear();
    advance(30s);
    EXPECT_EQ(engine(0).adapter_calls, Calls{});
    EXPECT_TRUE(is_superseded(lora()));
  }
}

TEST_F(LoraOwnerTest, sealed_adapter_of_a_pair_that_another_took_is_not_loaded) {
  connect_lora(1);
  request_lora(1);
  seals_silent = true;
  const UpdateId id = request_lora(2);
  advance(2s);
  taken_by_another();
  engine(0).adapter_calls.clear();
  post(Sealed{id, sealed});
  EXPECT_EQ(engine(0).adapter_calls, Calls{});
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(update(id).error->code, ErrorCode::superseded);
}

TEST_F(LoraOwnerTest, sealed_adapter_is_loaded_behind_a_look_however_slow_the_storage_is) {
  connect_lora(1);
  seals_silent = true;
  const UpdateId id = request_lora(1);
  advance(2s);
  epochs->looks_silent = true;
  post(Sealed{id, sealed});
  EXPECT_EQ(count(0, K::load_adapter), 0);
  for (int looks = 0; looks < 2; ++looks) {
    advance(1500ms);
    ASSERT_TRUE(lora().ownership.look);
    post(EpochSeen{*lora().ownership.look, "lora", epochs->highest()});
  }
  EXPECT_EQ(count(0, K::load_adapter), 1);
  epochs->looks_silent = false;
  advance(limits::kEpochLookTimeout);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
}

// The end of another pair's update leads to unloads.
TEST_F(LoraOwnerTest, name_that_has_left_the_window_of_a_pair_that_another_took_is_not_unloaded) {
  connect(1);
  connect_lora(1, 1);
  request_lora(1);
  silence(0, K::load_adapter);
  request_lora(2);
  silence(0, K::load);
  request(1);  // waits for the worker
  engine(0).adapters["policy-v2"] = "/shared/v2.a2";
  Outcome loaded;
  loaded.kind = OutcomeKind::ok;
  answer_silenced(0, loaded);
  ASSERT_EQ(lora().committed->version, 2);
  ASSERT_EQ(count(0, K::load), 1);
  advance(2s);
  engine(0).adapter_calls.clear();
  taken_by_another();
  advance(limits::kEpochLookBusy);
  EXPECT_TRUE(is_superseded(state().pairs.at("actor")));
  EXPECT_TRUE(is_superseded(lora()));
  EXPECT_EQ(engine(0).adapter_calls, Calls{});
}

TEST_F(LoraOwnerTest, unload_that_runs_when_the_pair_is_lost_is_given_up) {
  connect_lora(1, 1);
  request_lora(1);
  silence(0, K::unload_adapter);
  request_lora(2);
  ASSERT_EQ(state().adapter_calls.size(), 1u);
  const CallId call = state().adapter_calls.begin()->first;
  lose_it();
  EXPECT_TRUE(state().adapter_calls.empty());
  ASSERT_FALSE(cancels.empty());
  EXPECT_EQ(cancels.back().call, call);
  EXPECT_TRUE(known(0).names.contains("policy-v1")) << "its directory may be read again";
}

TEST_F(LoraOwnerTest, version_that_was_committed_while_the_pair_was_lost_is_loaded_when_it_is_taken_back) {
  connect_lora(1);
  hold_commit = true;
  const UpdateId id = request_lora(1);
  ASSERT_EQ(update(id).state, UpdateState::committing);
  taken_by_another();
  advance(limits::kEpochLookPeriod);
  hold_commit = false;
  held_durable();
  settle();
  ASSERT_TRUE(is_superseded(lora()));
  EXPECT_EQ(update(id).state, UpdateState::failed);
  engine(0).adapters.clear();
  connect_lora(1);
  advance(30s);
  EXPECT_EQ(engine(0).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
  ASSERT_TRUE(known(0).version);
  EXPECT_EQ(known(0).version->version, 1);
}

TEST_F(LoraOwnerTest, adapters_come_back_to_a_worker_that_was_abandoned_before_its_model_was_lost) {
  connect(2);
  request(1);
  connect_lora(1);
  request_lora(1);
  script(0, K::load, failed(OutcomeKind::touched, "broken"), -1);
  request(2);
  ConnectPair again;
  again.token = 9;
  again.spec = state().pairs.at("actor").spec;
  again.spec.workers = {WorkerSpec{url(1), std::nullopt}};
  post(again);
  advance(30s);
  ASSERT_EQ(worker(0).state, WorkerState::abandoned);
  epochs->takers["actor"] = Epoch{9, "another", "far", "", "", {}};
  advance(limits::kEpochLookPeriod);
  ASSERT_TRUE(is_superseded(state().pairs.at("actor")));
  restart(0);
  engine(0).adapter_calls.clear();
  advance(90s);
  EXPECT_EQ(engine(0).adapter_calls, Calls{"load policy-v1"});
  EXPECT_EQ(worker(0).state, WorkerState::abandoned);
}

TEST_F(LoraOwnerTest, adapters_are_served_beside_a_model_that_is_another_gateways) {
  connect(1);
  request(1);
  connect_lora(1);
  request_lora(1);
  epochs->takers["actor"] = Epoch{9, "another", "far", "", "", {}};
  advance(limits::kEpochLookPeriod);
  ASSERT_TRUE(is_superseded(state().pairs.at("actor")));
  ASSERT_FALSE(is_superseded(lora()));
  EXPECT_EQ(worker(0).state, WorkerState::foreign);
  restart(0);
  const int models = count(0, K::load) + count(0, K::pause) + count(0, K::set_label);
  engine(0).adapter_calls.clear();
  advance(90s);
  EXPECT_EQ(engine(0).adapter_calls, Calls{"load policy-v1"});
  ASSERT_TRUE(known(0).version);
  EXPECT_EQ(update(request_lora(2)).state, UpdateState::succeeded);
  request_lora(3);
  EXPECT_FALSE(engine(0).adapters.contains("policy-v1"));
  EXPECT_EQ(count(0, K::load) + count(0, K::pause) + count(0, K::set_label), models);
  EXPECT_EQ(worker(0).state, WorkerState::foreign);
}

}  // namespace
}  // namespace weighlock::protocol
