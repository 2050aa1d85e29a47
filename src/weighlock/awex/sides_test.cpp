#include "weighlock/awex/sides.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/recorded_plans.hpp"
#include "weighlock/awex/report_fixture.hpp"
#include "weighlock/reshard/plan.hpp"
#include "weighlock/reshard/prove.hpp"

namespace weighlock::awex {
namespace {

TEST(Sides, the_plan_of_awexs_workers_passes_the_planners_own_proof) {
  for (const RecordedPlan& recorded : kRecordedPlans) {
    const Result<std::vector<Report>> train = reports(Side::train, recorded.train);
    const Result<std::vector<Report>> infer =
        reports(Side::infer, std::vector<std::vector<Told>>(recorded.engines, recorded.engine));
    ASSERT_TRUE(train && infer) << recorded.name;
    const Topology topology{static_cast<std::uint32_t>(recorded.train.size()), recorded.engine_ranks, recorded.engines};
    const Result<Repaired> repaired = repair(*train, *infer, topology);
    ASSERT_TRUE(repaired) << repaired.error().text();
    const Result<Sides> sides = sides_of(*train, *infer, topology);
    ASSERT_TRUE(sides) << sides.error().text();
    Plan plan = predict(*repaired);
    const Result<reshard::Plan> same = as_reshard(*repaired, plan, *sides);
    ASSERT_TRUE(same) << same.error().text();
    const Status proven = reshard::prove(sides->train, sides->infer, *same);
    EXPECT_TRUE(proven) << recorded.name << ": " << proven.error().text();
    EXPECT_EQ(same->digest.size(), 32u);
    plan.operations.pop_back();
    const Result<reshard::Plan> less = as_reshard(*repaired, plan, *sides);
    ASSERT_TRUE(less) << less.error().text();
    EXPECT_FALSE(reshard::prove(sides->train, sides->infer, *less)) << recorded.name;
    EXPECT_NE(less->digest, same->digest);
  }
}

TEST(Sides, the_planner_plans_what_awex_workers_reported_and_knows_no_lower_bound_below_ours) {
  for (const RecordedPlan& recorded : kRecordedPlans) {
    const Result<std::vector<Report>> train = reports(Side::train, recorded.train);
    const Result<std::vector<Report>> infer =
        reports(Side::infer, std::vector<std::vector<Told>>(recorded.engines, recorded.engine));
    ASSERT_TRUE(train && infer) << recorded.name;
    const Topology topology{static_cast<std::uint32_t>(recorded.train.size()), recorded.engine_ranks, recorded.engines};
    const Result<Sides> sides = sides_of(*train, *infer, topology);
    ASSERT_TRUE(sides) << sides.error().text();
    const Result<reshard::Plan> planned = reshard::make_plan(sides->train, sides->infer);
    ASSERT_TRUE(planned) << recorded.name << ": " << planned.error().text();
    const Result<Repaired> repaired = repair(*train, *infer, topology);
    ASSERT_TRUE(repaired);
    EXPECT_GE(planned->lower_bound_bytes, repaired->lower_bound) << recorded.name;
  }
}

TEST(Sides, a_plan_that_names_a_part_that_nobody_holds_is_an_error) {
  const Result<std::vector<Report>> train = reports(Side::train, {{whole_of("w", {4}, 0, 1)}});
  const Result<std::vector<Report>> infer = reports(Side::infer, {{whole_of("w", {4}, 0, 1)}});
  ASSERT_TRUE(train && infer);
  const Topology topology{1, 1, 1};
  const Result<Repaired> repaired = repair(*train, *infer, topology);
  const Result<Sides> sides = sides_of(*train, *infer, topology);
  ASSERT_TRUE(repaired && sides);
  Plan plan = predict(*repaired);
  plan.operations.at(0).send_rank = 7;
  const Result<reshard::Plan> made = as_reshard(*repaired, plan, *sides);
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().text().find("tensor 'w' from rank 7 to rank 0"), std::string::npos) << made.error().text();
}

TEST(Sides, a_dtype_without_a_size_is_refused_by_name) {
  Told told = whole_of("w", {4}, 0, 1);
  told.dtype = "torch.quint4x2";
  const Result<std::vector<Report>> train = reports(Side::train, {{told}}), infer = reports(Side::infer, {{told}});
  ASSERT_TRUE(train && infer);
  const Result<Sides> sides = sides_of(*train, *infer, {1, 1, 1});
  ASSERT_FALSE(sides);
  EXPECT_NE(sides.error().text().find("tensor 'w' has the dtype torch.quint4x2"), std::string::npos);
}

}  // namespace
}  // namespace weighlock::awex
