// Damaged directories: what a load of each answers, what the engine then serves, and that it can be healed.
//
// Checked for each: `untouched` means that the old version serves on exactly; after `touched` and `ok` a good version
// heals.
#include <fmt/format.h>

#include <map>
#include <optional>

#include "scenario.hpp"

namespace weighlock::contract {
namespace {

using enum OutcomeKind;

struct Damage {
  const char* model;
  std::optional<OutcomeKind> sglang;  // none: lethal, see lethal_test.cpp
  std::optional<OutcomeKind> vllm;
};

void PrintTo(const Damage& damage, std::ostream* out) {
  *out << damage.model;
}

constexpr Damage kDamages[] = {
    {"nowhere", untouched, touched},
    {"noweights", untouched, touched},
    {"noshard", untouched, touched},
    {"half", ok, ok},             // a silent mix of two versions, in both
    {"nan", ok, ok},              // the probe sees it
    {"noconfig", ok, ok},         // not a damage
    {"empty", ok, ok},            // nothing is loaded, and the label moves
    {"extra", ok, touched},       // SGLang leaves out what it doesn't know,
    {"stray", ok, touched},       // and takes the names of whichever file comes last (vLLM, too: see below)
    {"shape", ok, std::nullopt},  // a silent third result in SGLang, lethal in vLLM
    {"truncated", std::nullopt, touched},
    {"truncated_shard", std::nullopt, touched},
};

class Harmless : public Scenario, public testing::WithParamInterface<Damage> {};

TEST_P(Harmless, damaged_directory_is_told_as_the_table_says_and_a_good_one_heals) {
  const Damage& damage = GetParam();
  const auto expected = is(DialectKind::sglang) ? damage.sglang : damage.vllm;
  if (!expected) GTEST_SKIP() << "lethal here: see the lethal tests";
  if (second() != "v2") GTEST_SKIP() << "the damaged models have the layout of v1";
  const Generation good = fingerprint();
  ASSERT_TRUE(pause().ok());
  const Outcome outcome = load(damage.model);
  measured(fmt::format("load of {}", damage.model), told(outcome));
  // vLLM reads files in the order in which the file system lists them, and fails on some names that come twice or, in
  // the other order, serves a mix without a word.
  const bool is_by_listing = is(DialectKind::vllm) && std::string_view(damage.model) == "stray";
  if (!is_by_listing || !outcome.ok()) {
    EXPECT_EQ(name(outcome.kind), name(*expected)) << told(outcome);
  }
  EXPECT_FALSE(outcome.needs_restart) << told(outcome);
  const Outcome seen = verify(first(), engine().can().evidence_best);
  measured(fmt::format("verify of {} afterwards", first()), told(seen));
  if (is_by_listing) {
    EXPECT_FALSE(seen.ok()) << "a mix passes for " << first();
  }

  if (outcome.kind == untouched) {
    ASSERT_TRUE(resume().ok());
    EXPECT_EQ(fingerprint(), good) << "untouched, and yet another generation";
    return;
  }
  if (outcome.kind == ok) {
    ASSERT_TRUE(resume().ok());
    const Outcome probed = engine().run(task(OperationKind::probe));
    measured(fmt::format("probe of {}", damage.model), told(probed));
    EXPECT_EQ(probed.kind == mismatch, std::string_view(damage.model) == "nan") << told(probed);
    ASSERT_TRUE(pause().ok());
  }
  const Outcome healed = heal_to(first());
  ASSERT_TRUE(healed.ok()) << told(healed);
  ASSERT_TRUE(resume().ok());
  EXPECT_EQ(fingerprint(), good) << "healed, and yet another generation";
}

INSTANTIATE_TEST_SUITE_P(Damage, Harmless, testing::ValuesIn(kDamages),
                         [](const auto& test) { return test.param.model; });

class HarmlessHeal : public Scenario {};

TEST_F(HarmlessHeal, empty_checkpoint_leaves_a_healthy_vllm_as_it_is) {
  if (!engine().can().heal_needs_empty_load) GTEST_SKIP() << "not a step of this dialect";
  const Generation good = fingerprint();
  ASSERT_TRUE(pause().ok());
  EngineTask empty = load_task("empty");
  empty.operation.kind = OperationKind::load_empty;
  const Outcome outcome = engine().run(empty);
  ASSERT_TRUE(outcome.ok()) << told(outcome);
  ASSERT_TRUE(resume().ok());
  EXPECT_EQ(fingerprint(), good);
}

}  // namespace
}  // namespace weighlock::contract
