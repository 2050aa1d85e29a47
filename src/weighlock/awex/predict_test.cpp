#include "weighlock/awex/predict.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "weighlock/awex/recorded_plans.hpp"
#include "weighlock/awex/report_fixture.hpp"

namespace weighlock::awex {
namespace {

std::string plan_text(const Repaired& repaired, const Plan& plan) {
  std::string out;
  for (std::uint32_t rank = 0; rank < repaired.topology.world(); ++rank) {
    const bool sends = rank >= repaired.topology.infer_ranks();
    for (const Operation* op : operations_of(repaired, plan, rank))
      out += fmt::format("{} {} {} {} {} {}\n", rank, sends ? op->recv_rank : op->send_rank,
                         repaired.train.tensors[op->tensor].name, text(send_offset(repaired, *op)),
                         text(recv_offset(repaired, *op)), text(op->part.shape));
  }
  return out;
}

TEST(Predict, every_recorded_plan_of_the_real_package_is_predicted) {
  ASSERT_FALSE(kRecordedPlans.empty());
  for (const RecordedPlan& recorded : kRecordedPlans) {
    const Result<std::vector<Report>> train = reports(Side::train, recorded.train);
    const Result<std::vector<Report>> infer =
        reports(Side::infer, std::vector<std::vector<Told>>(recorded.engines, recorded.engine));
    ASSERT_TRUE(train && infer) << recorded.name;
    const auto ranks = static_cast<std::uint32_t>(recorded.train.size());
    const Result<Repaired> repaired = repair(*train, *infer, {ranks, recorded.engine_ranks, recorded.engines});
    ASSERT_TRUE(repaired) << recorded.name << ": " << repaired.error().text();
    EXPECT_EQ(plan_text(*repaired, predict(*repaired)), recorded.plan) << recorded.name;
  }
}

}  // namespace
}  // namespace weighlock::awex
