#include "weighlock/awex/sides.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/recorded_plans.hpp"
#include "weighlock/awex/report_fixture.hpp"
#include "weighlock/reshard/plan.hpp"
#include "weighlock/reshard/prove.hpp"

namespace weighlock::awex {
namespace {

using Places = std::map<std::pair<std::string, std::uint32_t>, reshard::ShardId>;

// By tensor and rank; a rank has one part of a tensor.
Places places_of(const reshard::Side& side) {
  Places places;
  for (reshard::ShardId i = 0; i < side.shards().size(); ++i)
    places[{side.tensors()[side.shards()[i].tensor].name, side.shards()[i].rank}] = i;
  return places;
}

reshard::Plan as_reshard(const Repaired& repaired, const Plan& plan, const Sides& sides) {
  const Places sources = places_of(sides.train), targets = places_of(sides.infer);
  reshard::Plan made;
  for (const Operation& op : plan.operations) {
    const std::string& name = repaired.train.tensors[op.tensor].name;
    const std::span<const std::uint64_t> offset(op.part.offset.begin(), op.part.offset.size());
    const std::span<const std::uint64_t> shape(op.part.shape.begin(), op.part.shape.size());
    made.add(sides.train, sides.infer, reshard::Stage::transfer,
             sources.at({name, op.send_rank - repaired.topology.infer_ranks()}), targets.at({name, op.recv_rank}),
             reshard::box_at(offset, shape));
  }
  std::vector<std::uint32_t> order(sides.infer.tensors().size()), place(order.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return sides.infer.tensors()[a].name < sides.infer.tensors()[b].name;
  });
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  made.arrange(place, sides.infer.ranks());
  return made;
}

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
    const Status proven = reshard::prove(sides->train, sides->infer, as_reshard(*repaired, plan, *sides));
    EXPECT_TRUE(proven) << recorded.name << ": " << proven.error().text();
    plan.operations.pop_back();
    EXPECT_FALSE(reshard::prove(sides->train, sides->infer, as_reshard(*repaired, plan, *sides))) << recorded.name;
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
