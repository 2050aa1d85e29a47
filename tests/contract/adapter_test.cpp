// LoRA adapters. The engine must be started with LoRA, rank 8 or 16 at most, and WEIGHLOCK_ENGINE_MODELS hold what
// tests/real/make_adapters.py writes. Each test leaves the engine without an adapter.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "scenario.hpp"

namespace weighlock::contract {
namespace {

using enum OutcomeKind;
using Names = std::vector<std::string>;

// A call that waits for a request, or for the lock that such a call holds, is given up after so long.
constexpr Milliseconds kShort{1500};
constexpr Milliseconds kArrival{500};
constexpr Milliseconds kSilence{1000};

class AdapterScenario : public Scenario {
 protected:
  void SetUp() override {
    Scenario::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!has_model("lora1")) GTEST_SKIP() << "WEIGHLOCK_ENGINE_MODELS has no adapters";
    if (second() != "v2") GTEST_SKIP() << "the adapters have the layout of v1";
    base_ = fingerprint();
  }
  void TearDown() override {
    if (IsSkipped()) return;
    for (const std::string& adapter : listed()) EXPECT_TRUE(unload(adapter).ok()) << adapter;
    EXPECT_EQ(listed(), Names());
    Scenario::TearDown();
  }

  EngineTask load_task_of(const std::string& adapter, const std::string& directory) const {
    EngineTask made = task(OperationKind::load_adapter);
    made.operation.adapter = adapter;
    made.operation.directory = path(directory);
    return made;
  }
  EngineTask unload_task_of(const std::string& adapter) const {
    EngineTask made = task(OperationKind::unload_adapter);
    made.operation.adapter = adapter;
    return made;
  }
  Outcome load_as(const std::string& adapter, const std::string& directory) {
    return engine().run(load_task_of(adapter, directory));
  }
  Outcome unload(const std::string& adapter) { return engine().run(unload_task_of(adapter)); }
  StateReading list() {
    const Outcome outcome = engine().run(task(OperationKind::list_adapters));
    EXPECT_TRUE(outcome.ok()) << told(outcome);
    EXPECT_TRUE(outcome.reading && outcome.reading->adapters);
    return outcome.reading.value_or(StateReading{});
  }
  static Names names_in(const StateReading& reading) {
    Names names;
    for (const LoadedAdapter& adapter : reading.adapters.value_or(std::vector<LoadedAdapter>{}))
      names.push_back(adapter.name);
    std::sort(names.begin(), names.end());
    return names;
  }
  Names listed() { return names_in(list()); }
  const Generation& base() const { return base_; }

 private:
  Generation base_;
};

class HarmlessAdapter : public AdapterScenario {};

TEST_F(HarmlessAdapter, changes_what_is_generated_for_requests_that_name_it_and_nothing_else) {
  ASSERT_TRUE(load_as("p-v1", "lora1").ok());
  ASSERT_TRUE(load_as("p-v2", "lora2").ok());
  ASSERT_TRUE(load_as("q-v1", "lora1").ok());
  const Generation first = fingerprint("p-v1");
  ASSERT_TRUE(first.whole()) << first;
  EXPECT_FALSE(first == base());
  EXPECT_FALSE(fingerprint("p-v2") == first);
  EXPECT_EQ(fingerprint("q-v1"), first) << "the same bytes under another name";
  EXPECT_EQ(fingerprint(), base());
  EXPECT_EQ(fingerprint("p-v1"), first);
}

TEST_F(HarmlessAdapter, list_tells_names_and_directories) {
  EXPECT_EQ(listed(), Names());
  ASSERT_TRUE(load_as("p-v1", "lora1").ok());
  ASSERT_TRUE(load_as("p-v2", "lora2").ok());
  const StateReading reading = list();
  EXPECT_EQ(names_in(reading), (Names{"p-v1", "p-v2"}));
  for (const LoadedAdapter& adapter : *reading.adapters)
    EXPECT_EQ(adapter.directory, path(adapter.name == "p-v1" ? "lora1" : "lora2"));
  EXPECT_EQ(reading.adapter_rank_max.has_value(), is(DialectKind::sglang));
  EXPECT_EQ(reading.label, "label of " + first());
  ASSERT_TRUE(unload("p-v1").ok());
  EXPECT_EQ(listed(), Names{"p-v2"});
}

TEST_F(HarmlessAdapter, name_that_is_taken_is_refused_and_one_that_is_not_there_is_missing) {
  ASSERT_TRUE(load_as("p-v1", "lora1").ok());
  const Generation first = fingerprint("p-v1");
  for (const char* directory : {"lora1", "lora2"}) {
    const Outcome again = load_as("p-v1", directory);
    EXPECT_EQ(again.kind, untouched) << told(again);
    EXPECT_EQ(again.code, ErrorCode::adapter_exists) << told(again);
  }
  EXPECT_EQ(fingerprint("p-v1"), first);
  const Outcome unknown = unload("p-v7");
  EXPECT_EQ(unknown.kind, untouched) << told(unknown);
  EXPECT_EQ(unknown.code, ErrorCode::adapter_missing) << told(unknown);
  ASSERT_TRUE(unload("p-v1").ok());
  EXPECT_EQ(unload("p-v1").code, ErrorCode::adapter_missing);
  ASSERT_TRUE(load_as("p-v1", "lora2").ok());
  EXPECT_FALSE(fingerprint("p-v1") == first) << "other bytes under a name that was free again";
}

TEST_F(HarmlessAdapter, what_cannot_be_loaded_is_refused_and_changes_nothing) {
  ASSERT_TRUE(load_as("p-v1", "lora1").ok());
  const Generation first = fingerprint("p-v1");
  for (const char* directory :
       {"nowhere", "noweights", "lora_noconfig", "lora_noweights", "lora_truncated", "lora64", "lora_dora"}) {
    const Outcome outcome = load_as("p-v2", directory);
    measured(fmt::format("load of {}", directory), told(outcome));
    EXPECT_EQ(outcome.kind, untouched) << directory << ": " << told(outcome);
    EXPECT_FALSE(outcome.needs_restart);
    if (std::string_view(directory) == "nowhere" || std::string_view(directory) == "lora_noconfig") {
      EXPECT_EQ(outcome.code, ErrorCode::storage_not_visible) << told(outcome);
    }
  }
  EXPECT_EQ(listed(), Names{"p-v1"});
  EXPECT_EQ(fingerprint(), base());
  EXPECT_EQ(fingerprint("p-v1"), first);
  EXPECT_TRUE(load_as("p-v2", "lora2").ok()) << "the name is free";
}

TEST_F(HarmlessAdapter, what_an_inspection_has_to_find_is_taken_in_silence) {
  for (const char* directory : {"lora_prefix", "lora_saved"}) {
    const Outcome outcome = load_as("p-v1", directory);
    measured(fmt::format("load of {}", directory), told(outcome));
    if (!outcome.ok()) continue;
    ASSERT_TRUE(load_as("good", "lora1").ok());
    const Generation seen = fingerprint("p-v1");
    measured(fmt::format("{} serves", directory), seen == base()                ? "the base"
                                                  : seen == fingerprint("good") ? "the adapter without the rest"
                                                                                : "something else");
    ASSERT_TRUE(unload("good").ok());
    ASSERT_TRUE(unload("p-v1").ok());
  }
}

TEST_F(HarmlessAdapter, is_loaded_and_unloaded_while_the_engine_is_paused) {
  for (const PauseMode mode : engine().can().pause_modes) {
    ASSERT_TRUE(pause(mode).ok());
    EXPECT_TRUE(load_as("p-v1", "lora1").ok()) << name(mode);
    EXPECT_TRUE(load_as("p-v2", "lora2").ok()) << name(mode);
    EXPECT_TRUE(unload("p-v1").ok()) << name(mode);
    const StateReading reading = list();
    EXPECT_EQ(names_in(reading), Names{"p-v2"});
    EXPECT_TRUE(reading.paused) << name(mode);
    ASSERT_TRUE(resume().ok());
    const Generation second = fingerprint("p-v2");
    EXPECT_TRUE(second.whole()) << second;
    EXPECT_FALSE(second == base());
    ASSERT_TRUE(unload("p-v2").ok());
  }
}

TEST_F(HarmlessAdapter, survives_a_new_base_and_is_applied_to_it) {
  ASSERT_TRUE(load_as("p-v1", "lora1").ok());
  const Generation first_generation = fingerprint("p-v1");
  bring_to(second());
  EXPECT_EQ(listed(), Names{"p-v1"});
  const Generation new_base = fingerprint(), now = fingerprint("p-v1");
  EXPECT_TRUE(now.whole()) << now;
  EXPECT_FALSE(new_base == base());
  EXPECT_FALSE(now == new_base);
  EXPECT_FALSE(now == first_generation);
  bring_to(first());
  EXPECT_EQ(fingerprint("p-v1"), first_generation);
}

TEST_F(HarmlessAdapter, that_a_request_uses_is_unloaded_after_it_and_the_request_is_whole) {
  ASSERT_TRUE(load_as("p-v1", "lora1").ok());
  const auto running = begin_running(running_tokens(), "p-v1");
  ASSERT_TRUE(running);
  const Outcome unloaded = engine().run(unload_task_of("p-v1"), kShort);
  const bool waits = !running->wait(Milliseconds(0)).has_value() && !unloaded.ok();
  measured("unload of an adapter that a request uses", told(unloaded));
  EXPECT_EQ(listed(), Names()) << "no new request finds it";
  const Outcome other = engine().run(load_task_of("p-v2", "lora2"), kShort);
  measured("load beside it", told(other));
  const Generation generation = read_generation(running->wait());
  EXPECT_EQ(generation.status, 200) << generation;
  EXPECT_EQ(generation.tokens.size(), static_cast<std::size_t>(running_tokens()));
  if (is(DialectKind::vllm)) {
    EXPECT_TRUE(unloaded.ok() && other.ok()) << "vLLM waits for nobody";
  }
  if (waits) {
    EXPECT_EQ(unloaded.kind, unknown) << told(unloaded);
  }
  // Behind whatever still waits.
  const Outcome again = load_as("p-v2", "lora2");
  EXPECT_TRUE(again.ok() || again.code == ErrorCode::adapter_exists) << told(again);
  EXPECT_EQ(listed(), Names{"p-v2"});
  EXPECT_EQ(unload("p-v1").code, ErrorCode::adapter_missing) << "the abandoned unload took effect";
}

TEST_F(HarmlessAdapter, that_was_unloaded_is_refused_by_vllm_and_comes_back_in_sglang) {
  ASSERT_TRUE(load_as("p-v1", "lora1").ok());
  const Generation loaded = fingerprint("p-v1");
  ASSERT_TRUE(unload("p-v1").ok());
  const Generation asked = fingerprint("p-v1");
  if (is(DialectKind::vllm)) {
    EXPECT_EQ(asked.status, 404) << asked;
    EXPECT_EQ(listed(), Names());
  } else {
    EXPECT_EQ(asked, loaded);
    EXPECT_EQ(listed(), Names{"p-v1"});
  }
}

TEST_F(HarmlessAdapter, more_of_them_than_the_engine_computes_at_once_are_all_served) {
  Generation first_of_them;
  for (int i = 1; i <= 5; ++i) {
    const std::string adapter = fmt::format("p-v{}", i);
    ASSERT_TRUE(load_as(adapter, fmt::format("lora{}", 1 + i % 3)).ok()) << adapter;
    const Generation generation = fingerprint(adapter);
    EXPECT_TRUE(generation.whole()) << generation;
    if (i == 1) first_of_them = generation;
  }
  EXPECT_EQ(fingerprint("p-v1"), first_of_them);
  EXPECT_EQ(fingerprint("p-v4"), first_of_them) << "the same bytes";
}

class HarmlessAbandonedAdapter : public AdapterScenario {
 protected:
  void SetUp() override {
    AdapterScenario::SetUp();
    if (!IsSkipped() && !engine().can_freeze()) GTEST_SKIP() << "WEIGHLOCK_ENGINE_PID names no process to freeze";
  }
  // Sends it to the frozen engine, and gives up. What a list tells that was asked behind it.
  StateReading list_behind(const EngineTask& abandoned) {
    std::unique_ptr<Running> waiting;
    {
      const Frozen frozen(engine());
      const auto operation = engine().start(abandoned);
      const bool answered = operation->ended_within(kArrival);
      operation->give_up();
      const Outcome given_up = operation->wait();
      measured(fmt::format("{} of a frozen engine", name(abandoned.operation.kind)), told(given_up));
      if (!answered) {
        EXPECT_EQ(given_up.kind, unknown) << told(given_up);
      }
      waiting = engine().start(task(OperationKind::list_adapters));
      EXPECT_FALSE(waiting->ended_within(kSilence)) << "the list answered before the engine went on";
    }
    const Outcome outcome = waiting->wait();
    EXPECT_TRUE(outcome.ok()) << told(outcome);
    return outcome.reading.value_or(StateReading{});
  }
};

TEST_F(HarmlessAbandonedAdapter, load_has_ended_when_the_list_answers_and_a_repeated_one_says_so) {
  const Names behind = names_in(list_behind(load_task_of("p-v1", "lora1")));
  measured("listed behind an abandoned load", fmt::format("{}", fmt::join(behind, " ")));
  const Outcome again = load_as("p-v1", "lora1");
  EXPECT_TRUE(again.ok() || again.code == ErrorCode::adapter_exists) << told(again);
  EXPECT_EQ(again.code == ErrorCode::adapter_exists && !again.ok(), !behind.empty()) << told(again);
  EXPECT_EQ(listed(), Names{"p-v1"});
  EXPECT_FALSE(fingerprint("p-v1") == base());
}

TEST_F(HarmlessAbandonedAdapter, repeated_load_waits_for_the_first_and_the_name_is_loaded_once) {
  std::unique_ptr<Running> second;
  {
    const Frozen frozen(engine());
    const auto operation = engine().start(load_task_of("p-v1", "lora1"));
    operation->ended_within(kArrival);
    operation->give_up();
    second = engine().start(load_task_of("p-v1", "lora1"));
    EXPECT_FALSE(second->ended_within(kSilence));
  }
  const Outcome outcome = second->wait();
  measured("repeated load", told(outcome));
  EXPECT_TRUE(outcome.ok() || outcome.code == ErrorCode::adapter_exists) << told(outcome);
  EXPECT_EQ(listed(), Names{"p-v1"});
}

TEST_F(HarmlessAbandonedAdapter, unload_has_ended_when_the_list_answers) {
  ASSERT_TRUE(load_as("p-v1", "lora1").ok());
  const Names behind = names_in(list_behind(unload_task_of("p-v1")));
  measured("listed behind an abandoned unload", fmt::format("{}", fmt::join(behind, " ")));
  const Outcome again = unload("p-v1");
  EXPECT_TRUE(again.ok() || again.code == ErrorCode::adapter_missing) << told(again);
  EXPECT_EQ(!again.ok(), behind.empty());
  EXPECT_EQ(listed(), Names());
}

class LethalAdapter : public AdapterScenario {
 protected:
  void TearDown() override {}
};

TEST_F(LethalAdapter, with_other_ranks_than_its_config_says_kills_sglang_with_the_first_request) {
  if (!is(DialectKind::sglang)) GTEST_SKIP() << "vLLM serves it, scaled as the config says";
  ASSERT_TRUE(load_as("p-v1", "lora_rank").ok()) << "taken in silence";
  EXPECT_EQ(fingerprint(), base());
  EXPECT_EQ(read_generation(begin_generation(4, "p-v1")->wait()).status, 0);
  const Outcome afterwards = barrier();
  EXPECT_EQ(afterwards.kind, not_sent) << told(afterwards);
}

TEST_F(LethalAdapter, whose_directory_is_gone_kills_vllm_when_it_has_left_the_cache) {
  if (!is(DialectKind::vllm)) GTEST_SKIP() << "SGLang keeps what it has loaded";
  namespace fs = std::filesystem;
  const std::string name = fmt::format("lora_gone_{}", ::getpid());
  fs::copy(path("lora1"), path(name));
  ASSERT_TRUE(load_as("p-v0", name).ok());
  EXPECT_TRUE(fingerprint("p-v0").whole());
  fs::remove_all(path(name));
  EXPECT_TRUE(fingerprint("p-v0").whole()) << "from the cache";
  for (int i = 1; i <= 4; ++i) {  // the engine was started with --max-cpu-loras 4
    const std::string adapter = fmt::format("p-v{}", i);
    ASSERT_TRUE(load_as(adapter, "lora2").ok());
    EXPECT_TRUE(fingerprint(adapter).whole());
  }
  const Generation gone = read_generation(begin_generation(4, "p-v0")->wait());
  EXPECT_NE(gone.status, 200) << gone;
  measured("request for an adapter whose directory is gone", fmt::format("{} {}", gone.status, gone.words));
  const Outcome afterwards = barrier();
  measured("the engine afterwards", told(afterwards));
  EXPECT_FALSE(afterwards.ok());
}

}  // namespace
}  // namespace weighlock::contract
