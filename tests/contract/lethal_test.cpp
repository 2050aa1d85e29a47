// What kills an engine, or leaves it in need of a new process. Each test wants a fresh engine, and is run alone:
//   engine_contract --gtest_filter='*Lethal*/truncated'
#include <fmt/format.h>

#include <optional>

#include "scenario.hpp"

namespace weighlock::contract {
namespace {

using enum OutcomeKind;

class Lethal : public LethalScenario {
 protected:
  bool damaged_models_fit() const { return second() == "v2"; }

  // Alive and healed to v1, or dead; says which.
  void tell_the_end(const Generation& good) {
    const Outcome settled = barrier();
    measured("the engine afterwards", settled.ok() ? "answers" : told(settled));
    if (!settled.ok()) return;
    const Outcome healed = heal_to(first());
    measured("healing", told(healed));
    if (!healed.ok()) return;
    ASSERT_TRUE(resume().ok());
    EXPECT_EQ(fingerprint(), good) << "healed, and yet another generation";
  }
};

class LethalLoad : public Lethal, public testing::WithParamInterface<const char*> {};

// Whatever it answers, the outcome must be safe: never untouched if the weights changed, never ok if the load failed.
TEST_P(LethalLoad, damaged_directory_never_passes_for_harmless) {
  if (!damaged_models_fit()) GTEST_SKIP() << "the damaged models have the layout of v1";
  const Generation good = fingerprint();
  ASSERT_TRUE(pause().ok());
  const Outcome outcome = load(GetParam());
  measured(fmt::format("load of {}", GetParam()), told(outcome));
  if (outcome.kind == untouched) {
    ASSERT_TRUE(resume().ok());
    EXPECT_EQ(fingerprint(), good) << "untouched, and yet another generation";
    ASSERT_TRUE(pause().ok());
  }
  tell_the_end(good);
}

INSTANTIATE_TEST_SUITE_P(Damage, LethalLoad,
                         testing::Values("truncated", "truncated_shard", "noshard", "extra", "stray", "shape", "empty",
                                         "noconfig"),
                         [](const auto& test) { return test.param; });

TEST_F(Lethal, wrong_shape_needs_a_new_process_of_vllm) {
  if (is(DialectKind::sglang)) GTEST_SKIP() << "SGLang takes a wrong shape without a word";
  if (!damaged_models_fit()) GTEST_SKIP() << "the damaged models have the layout of v1";
  ASSERT_TRUE(pause().ok());
  const Outcome outcome = load("shape");
  EXPECT_EQ(outcome.kind, touched) << told(outcome);
  EXPECT_TRUE(outcome.needs_restart) << told(outcome);
  const Outcome healed = heal_to(first());
  EXPECT_TRUE(healed.needs_restart) << told(healed);
}

TEST_F(Lethal, truncated_file_kills_sglang_and_the_outcome_is_unknown) {
  if (is(DialectKind::vllm)) GTEST_SKIP() << "vLLM survives it while it is paused";
  ASSERT_TRUE(pause().ok());
  const Outcome outcome = load("truncated");
  EXPECT_EQ(outcome.kind, unknown) << told(outcome);
  EXPECT_FALSE(barrier().ok());
}

TEST_F(Lethal, touched_vllm_dies_of_the_first_request_when_it_is_resumed) {
  if (is(DialectKind::sglang)) GTEST_SKIP() << "a case of vLLM";
  ASSERT_TRUE(pause().ok());
  ASSERT_EQ(load("nowhere").kind, touched);
  measured("resume of a touched engine", told(resume()));
  const Outcome probed = engine().run(task(OperationKind::probe));
  measured("probe of a touched engine", told(probed));
  EXPECT_FALSE(probed.ok());
  EXPECT_NE(probed.kind, untouched);
  const Outcome state = engine().run(task(OperationKind::read_state));
  measured("state of a dead engine", told(state));
  EXPECT_FALSE(state.ok());
}

TEST_F(Lethal, killed_engine_is_told_as_not_reached) {
  if (!engine().can_freeze()) GTEST_SKIP() << "WEIGHLOCK_ENGINE_PID names no process to kill";
  engine().kill();
  // SGLang's HTTP process answers a pause for a while without its scheduler: only a call that passes through it tells.
  measured("pause right after the kill", told(engine().run(task(OperationKind::pause), std::chrono::seconds(5))));
  Outcome outcome;
  bool seen_dead = false;
  for (int i = 0; i < 1000 && outcome.kind != not_sent; ++i) {
    outcome = engine().run(task(OperationKind::read_state), std::chrono::seconds(2));
    EXPECT_FALSE(seen_dead && outcome.ok()) << "a state was read from a dead engine";
    seen_dead = seen_dead || !outcome.ok();
  }
  measured("state of a killed engine", told(outcome));
  EXPECT_EQ(outcome.kind, not_sent) << told(outcome);
}

}  // namespace
}  // namespace weighlock::contract
