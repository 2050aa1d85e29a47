// An engine of the other dialect that answers on a worker's address: it is found out by answers that its dialect
// doesn't know, and it is a new process.
#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora_fixture_test.hpp"
#include "weighlock/protocol/reconcile_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

class ReplacedEngineTest : public ReconcileTest {
 protected:
  static Outcome no_route() {
    return failed(OutcomeKind::untouched, "answered 404 \"Not Found\"", ErrorCode::not_supported);
  }
  static Outcome lost() { return failed(OutcomeKind::unknown, "reset", ErrorCode::connection_lost); }
  void end_save(std::size_t which = 0) {
    post(SaveEnded{saves.at(saves.size() - 1 - which).call, SaveOutcomeKind::ok, ""});
  }
  void expect_books_replayed(int i) {
    flush();
    const State again = replayed();
    const Worker& read = again.workers.at(url(i));
    EXPECT_EQ(read.dialect, worker(i).dialect);
    EXPECT_EQ(read.seen_as, worker(i).seen_as);
    EXPECT_EQ(read.incarnation, worker(i).incarnation);
    EXPECT_EQ(read.labels, worker(i).labels);
    EXPECT_EQ(read.state, worker(i).state);
    EXPECT_EQ(read.earlier.size(), worker(i).earlier.size());
    EXPECT_EQ(read.touched, worker(i).touched);
    EXPECT_EQ(read.paused_by_us, worker(i).paused_by_us);
  }
};

TEST_F(ReplacedEngineTest, it_is_found_between_updates_and_brought_to_the_committed_version) {
  serve_v1(2);
  replace(1, DialectKind::vllm);
  advance(60s);
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  expect_served(1, 1);
  EXPECT_EQ(joins(UpdateState::succeeded), 1);
  EXPECT_EQ(count(1, K::identify), 2);
  EXPECT_TRUE(fences.empty());  // from the second strange answer on it was asked, before it counted as silent
  expect_books_replayed(1);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  expect_served(1, 2);
}

TEST_F(ReplacedEngineTest, it_is_joining_with_its_start_model_while_nobody_may_bring_it_back) {
  reconciles = false;
  serve_v1(2);
  replace(1, DialectKind::vllm);
  advance(60s);
  EXPECT_EQ(worker(1).state, WorkerState::joining);
  ASSERT_TRUE(worker(1).cause);
  EXPECT_EQ(worker(1).cause->message, "another engine answers (vllm in place of sglang); it holds its start model");
  EXPECT_FALSE(worker(1).version);
  EXPECT_EQ(count(1, K::load), 1);
  EXPECT_FALSE(engine(1).paused);
  expect_books_replayed(1);
}

TEST_F(ReplacedEngineTest, one_that_tells_no_start_time_is_found_all_the_same) {
  engine(1).dialect = DialectKind::vllm;
  engine(1).incarnation = "";
  serve_v1(2);
  replace(1, DialectKind::sglang);
  engine(1).incarnation = "";
  advance(60s);
  EXPECT_EQ(worker(1).dialect, DialectKind::sglang);
  EXPECT_EQ(count(1, K::load), 2);
  expect_served(1, 1);
}

TEST_F(ReplacedEngineTest, an_engine_whose_routes_are_away_for_a_while_is_asked_and_nothing_follows_from_it) {
  serve_v1(2);
  for (int i = 0; i < limits::kStrangeReadings; ++i) script(1, K::read_state, no_route());
  advance(60s);
  EXPECT_EQ(count(1, K::identify), 2);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(count(1, K::load), 1);
  EXPECT_EQ(joins(UpdateState::succeeded), 0);
  EXPECT_TRUE(fences.empty());
}

TEST_F(ReplacedEngineTest, one_that_never_said_what_it_is_is_asked_more_and_more_seldom) {
  serve_v1(1);
  script(1, K::identify, failed(OutcomeKind::not_sent, "refused", ErrorCode::unreachable), -1);
  ChangeWorker add;
  add.pair = "actor";
  add.worker.url = url(1);
  post(add);
  advance(300s);
  EXPECT_GE(count(1, K::identify), 10);
  EXPECT_LE(count(1, K::identify), 18);
}

TEST_F(ReplacedEngineTest, a_single_strange_answer_makes_nobody_ask) {
  serve_v1(2);
  for (int i = 0; i < 3; ++i) {
    script(1, K::read_state, no_route(), limits::kStrangeReadings - 1);
    advance(30s);
  }
  EXPECT_EQ(count(1, K::identify), 1);
}

TEST_F(ReplacedEngineTest, what_is_neither_engine_is_fenced_as_one_that_is_silent_and_asked_again_now_and_then) {
  serve_v1(2);
  script(1, K::read_state, no_route(), -1);
  script(1, K::identify, failed(OutcomeKind::untouched, "neither SGLang nor vLLM", ErrorCode::not_supported), 3);
  advance(600s);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  EXPECT_EQ(worker(1).cause->code, CauseCode::unreachable);
  EXPECT_GT(count(1, K::identify), 3);
  EXPECT_EQ(count(1, K::load), 1);
  EXPECT_EQ(fences.size(), 1u);
}

// By SGLang's route for the start time a vLLM is silent for longer than a look may be.
TEST_F(ReplacedEngineTest, one_that_is_silent_by_the_other_dialects_routes_is_asked_what_it_is) {
  serve_v1(2);
  replace(1, DialectKind::vllm);
  for (int i = 0; i < limits::kSilentLooks; ++i) silence(1, K::read_state);
  advance(200s);
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  expect_served(1, 1);
}

TEST_F(ReplacedEngineTest, it_is_part_of_the_update_during_whose_save_it_came) {
  serve_v1(2);
  silent_trainers = {trainer(0), trainer(1)};
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::preparing);
  replace(1, DialectKind::vllm);
  end_save(0);
  end_save(1);
  EXPECT_EQ(update(second).state, UpdateState::succeeded);
  EXPECT_EQ(update(second).targets.at(url(1)).role, Role::extra);
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  expect_served(1, 2);
}

TEST_F(ReplacedEngineTest, one_that_came_between_pause_and_load_is_brought_in_afterwards) {
  serve_v1(3);
  silence(1, K::pause);
  const UpdateId second = request(2);
  ASSERT_EQ(update(second).state, UpdateState::pausing);
  replace(1, DialectKind::vllm);
  answer_silenced(1, lost());
  EXPECT_EQ(update(second).state, UpdateState::degraded);
  EXPECT_EQ(count(1, K::load), 1);
  advance(120s);
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  expect_served(1, 2);
}

// The load has no barrier in the new engine that could tell anything of the old one: it can't be in it.
TEST_F(ReplacedEngineTest, what_its_predecessor_was_asked_can_not_be_in_it) {
  reconciles = false;
  serve_v1(3);
  silence(1, K::load);
  const UpdateId second = request(2);
  replace(1, DialectKind::vllm);
  advance(100s);
  ASSERT_EQ(update(second).state, UpdateState::degraded);
  EXPECT_TRUE(worker(1).earlier.empty());
  EXPECT_FALSE(worker(1).touched);
  EXPECT_EQ(worker(1).state, WorkerState::joining);
  EXPECT_FALSE(worker(1).paused_by_us);
  expect_books_replayed(1);
}

// vLLM's drain has no barrier, so nothing but another process ends the doubt.
TEST_F(ReplacedEngineTest, doubt_that_no_barrier_ends_ends_with_the_engine) {
  for (int i = 0; i < 2; ++i) engine(i).dialect = DialectKind::vllm;
  serve_v1(2);
  Policy drains = pair().spec.policy;
  drains.pause_mode = PauseMode::wait;
  silence(1, K::pause);
  request(2, drains);
  advance(600s);
  ASSERT_EQ(worker(1).earlier.size(), 1u);
  ASSERT_EQ(worker(1).state, WorkerState::quarantined);
  replace(1, DialectKind::sglang);
  advance(120s);
  EXPECT_EQ(worker(1).dialect, DialectKind::sglang);
  expect_served(1, pair().committed->version);
  expect_books_replayed(1);
}

// The two dialects have that route in common.
TEST_F(ReplacedEngineTest, label_that_its_predecessor_was_sent_may_be_in_it) {
  reconciles = false;
  engine(1).dialect = DialectKind::vllm;
  serve_v1(2);
  silence(1, K::set_label);
  const UpdateId second = request(2);
  replace(1, DialectKind::sglang);
  engine(1).label = "loading:" + second;
  script(1, K::barrier, lost(), -1);
  advance(1000s);
  ASSERT_FALSE(worker(1).earlier.empty());
  EXPECT_EQ(worker(1).earlier.front().kind, K::set_label);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
}

TEST_F(ReplacedEngineTest, one_that_can_not_do_what_its_pair_asks_for_is_held_with_the_remedy) {
  for (int i = 0; i < 2; ++i) engine(i).dialect = DialectKind::vllm;
  serve_v1(2);
  ConnectPair settings;
  settings.spec = pair().spec;
  settings.spec.policy.evidence = Evidence::checksum;
  settings.new_lineage = false;
  post(settings);
  replace(1, DialectKind::sglang);
  advance(60s);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
  ASSERT_TRUE(worker(1).cause);
  EXPECT_NE(worker(1).cause->message.find("'checksum' can't be had of sglang"), std::string::npos);
  EXPECT_EQ(count(1, K::load), 1);
  EXPECT_TRUE(engine(1).paused);
}

TEST_F(ReplacedEngineTest, client_that_names_the_wrong_dialect_again_and_again_restarts_nothing) {
  serve_v1(2);
  for (int i = 0; i < 2; ++i) {
    ConnectPair again;
    again.spec = pair().spec;
    again.spec.workers[1].dialect = DialectKind::vllm;
    post(again);
    advance(60s);
    EXPECT_EQ(worker(1).dialect, DialectKind::sglang);
    expect_served(1, 1);
    expect_books_replayed(1);
  }
  EXPECT_EQ(count(1, K::load), 1);
}

TEST_F(ReplacedEngineTest, one_that_came_while_no_gateway_ran_is_found_by_the_next) {
  serve_v1(2);
  replace(1, DialectKind::vllm);
  start_again();
  advance(60s);
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  expect_served(1, 1);
  expect_books_replayed(1);
}

TEST_F(ReplacedEngineTest, one_that_came_in_an_update_whose_gateway_died_holds_the_recovery_up_for_seconds_only) {
  serve_v1(2);
  die_at_record(RecordKind::intent, "load", true);
  const UpdateId second = request(2);
  ASSERT_TRUE(dead());
  replace(1, DialectKind::vllm);
  start_again();
  advance(10s);
  EXPECT_TRUE(is_terminal(update(second).state));
  advance(120s);
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  expect_served(0, pair().committed->version);
  expect_served(1, pair().committed->version);
}

class ReplacedMemberTest : public Fixture {
 protected:
  ReplacedMemberTest() { by_transfer = true; }
  void expect_all_served(int workers, std::int64_t version) {
    for (int i = 0; i < workers; ++i) {
      EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
      ASSERT_TRUE(worker(i).version) << i;
      EXPECT_EQ(worker(i).version->version, version) << i;
    }
  }
};

TEST_F(ReplacedMemberTest, group_of_the_engine_that_is_gone_is_not_used_for_the_one_that_came) {
  connect(2);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  replace(1, DialectKind::vllm);
  const UpdateId second = request(2);
  EXPECT_EQ(update(second).state, UpdateState::succeeded) << (update(second).error ? update(second).error->text() : "");
  EXPECT_EQ(builds.size(), 2u);
  EXPECT_EQ(drops.size(), 1u);
  EXPECT_EQ(transfers.back().name, builds[1].name);
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  expect_all_served(2, 2);
}

TEST_F(ReplacedMemberTest, group_is_built_anew_also_if_neither_engine_tells_its_start_time) {
  engine(1).incarnation = "";
  connect(2);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  replace(1, DialectKind::vllm);
  engine(1).incarnation = "";
  ASSERT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 2u);
  ASSERT_EQ(update(request(3)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 2u);
  expect_all_served(2, 3);
}

TEST_F(ReplacedMemberTest, one_that_came_before_the_collective_began_is_left_out_and_the_group_is_dead) {
  connect(3);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  silence(1, OperationKind::set_label);
  const UpdateId second = request(2);
  ASSERT_EQ(transfers.size(), 1u);
  replace(1, DialectKind::vllm);
  answer_silenced(1, failed(OutcomeKind::unknown, "reset", ErrorCode::connection_lost));
  advance(std::chrono::seconds(1000));
  EXPECT_TRUE(is_terminal(update(second).state));
  EXPECT_EQ(transfers.size(), 1u);
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  const UpdateId third = request(3);
  EXPECT_EQ(update(third).state, UpdateState::succeeded) << (update(third).error ? update(third).error->text() : "");
  EXPECT_EQ(transfers.back().name, builds.back().name);
  EXPECT_EQ(builds.size(), 2u);
  expect_all_served(3, 3);
}

class ReplacedAdapterEngineTest : public LoraFixture {
 protected:
  ReplacedAdapterEngineTest() { reconciles = true; }
};

TEST_F(ReplacedAdapterEngineTest, engine_of_adapters_alone_gets_them_by_its_own_dialect) {
  spec.policy.pair_lease = Milliseconds(3'600'000);
  connect_lora(2);
  request_lora(1);
  ASSERT_TRUE(known(1).version);
  replace(1, DialectKind::vllm);
  advance(std::chrono::seconds(120));
  EXPECT_EQ(worker(1).dialect, DialectKind::vllm);
  EXPECT_TRUE(engine(1).adapters.contains("policy-v1"));
  replace(1, DialectKind::sglang);
  const UpdateId second = request_lora(2);
  EXPECT_EQ(update(second).state, UpdateState::succeeded) << (update(second).error ? update(second).error->text() : "");
  EXPECT_TRUE(engine(1).adapters.contains("policy-v2"));
}

}  // namespace
}  // namespace weighlock::protocol
