// Random layouts: whatever is planned puts every element where it belongs. A failing run prints what to set RC_PARAMS
// to.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <random>

#include "weighlock/reshard/memory_fixture.hpp"

namespace weighlock::reshard {
namespace {

using Random = std::mt19937_64;

// All 64 bits from the first test on; a smaller seed is no simpler layout.
rc::Gen<std::uint64_t> any_seed() {
  return rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<std::uint64_t>()));
}

std::uint64_t below(Random& random, std::uint64_t limit) {
  return random() % limit;
}

// Cuts `box` at random places, recursively: any tiling by boxes that straight cuts can make.
void tile(Random& random, const Box& box, int depth, std::vector<Box>& out) {
  if (depth > 0 && box.dimensions > 0 && !box.empty() && below(random, 4) != 0) {
    const std::size_t d = below(random, box.dimensions);
    Box first = box, second = box;
    first.end[d] = second.begin[d] = box.begin[d] + below(random, box.extent(d) + 1);  // an empty part, too
    tile(random, first, depth - 1, out);
    tile(random, second, depth - 1, out);
    return;
  }
  out.push_back(box);
}

// A shard of its own memory, or in a larger local tensor with its dimensions in any order and gaps between.
void add_somehow(Random& random, Side& side, TensorId id, Rank rank, const Box& box) {
  std::vector<std::uint64_t> offset, extent;
  for (std::size_t d = 0; d < box.dimensions; ++d) {
    offset.push_back(box.begin[d]);
    extent.push_back(box.extent(d));
  }
  if (box.empty() || below(random, 2) == 0) {
    shard(side, id, rank, offset, extent);
    return;
  }
  std::vector<std::size_t> order(box.dimensions);
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::int64_t> strides(box.dimensions);
  std::uint64_t stride = 1 + below(random, 3);
  for (const std::size_t d : order) {
    strides[d] = static_cast<std::int64_t>(stride);
    stride *= extent[d] + below(random, 2);
  }
  const std::uint64_t before = below(random, 5);
  const BufferId buffer = side.add_buffer(rank, before + stride, "local");
  const Status ok = side.add_shard(id, rank, offset, extent, 0, Placement{buffer, before, strides});
  ASSERT_TRUE(ok) << ok.error().text();
}

// One to three copies of the tensor, each tiled in its own way over any ranks.
void add_copies(Random& random, Side& side, TensorId id) {
  const std::uint64_t copies = 1 + below(random, 3);
  for (std::uint64_t copy = 0; copy < copies; ++copy) {
    std::vector<Box> boxes;
    tile(random, whole(side.tensors()[id].shape), 3, boxes);
    for (const Box& box : boxes) add_somehow(random, side, id, static_cast<Rank>(below(random, side.ranks())), box);
  }
}

void check_random_layout(std::uint64_t seed) {
  Random random(seed);
  Side sources("train", 1 + static_cast<std::uint32_t>(below(random, 6)));
  Side targets("infer", 1 + static_cast<std::uint32_t>(below(random, 6)));
  const std::uint64_t tensors = 1 + below(random, 4);
  for (std::uint64_t t = 0; t < tensors; ++t) {
    std::vector<std::uint64_t> shape(below(random, 4));
    for (std::uint64_t& size : shape) size = below(random, 9);
    const Dtype dtype = below(random, 2) == 0 ? Dtype::bf16 : Dtype::f32;
    const std::string name = "t" + std::to_string(t);
    add_copies(random, sources, tensor(sources, name, shape, dtype));
    add_copies(random, targets, tensor(targets, name, shape, dtype));
  }
  PlanOptions options;
  std::vector<std::uint32_t> hosts(targets.ranks());
  for (std::uint32_t& host : hosts) host = static_cast<std::uint32_t>(below(random, 3));
  ASSERT_TRUE(targets.set_hosts(hosts));
  options.one_copy_per_host = below(random, 2) == 0;
  const Plan plan = expect_planned(sources, targets, options);
  const Statistics found = statistics(sources, targets, plan);
  EXPECT_EQ(found.total_sent + found.total_fanned_out, found.needed);
  EXPECT_GE(found.busiest, found.total_sent > 0 ? plan.lower_bound_bytes : 0);
  // 1/64 above it, and an element for each set of holders that a sender is in.
  EXPECT_LE(found.busiest, plan.lower_bound_bytes + plan.lower_bound_bytes / 64 + 4 * sources.shards().size());
  EXPECT_EQ(make_plan(sources, targets, options)->digest, plan.digest);
}

TEST(ReshardProperty, of_any_layouts_every_target_element_holds_its_own_after_the_plan) {
  const bool held = rc::check("random layouts", [] {
    const std::uint64_t seed = *any_seed();
    for (std::uint64_t i = 0; i < 10; ++i) check_random_layout(seed + i);
    RC_ASSERT(!::testing::Test::HasFailure());
  });
  EXPECT_TRUE(held);
}

// A plan with one number changed is one that the proof refuses.
TEST(ReshardProperty, a_plan_with_one_coordinate_changed_is_refused_by_the_proof) {
  const bool held = rc::check("spoilt plans", [] {
    Random random(*any_seed());
    Side sources("train", 3), targets("infer", 3);
    add_copies(random, sources, tensor(sources, "w", {6, 5}));
    add_copies(random, targets, tensor(targets, "w", {6, 5}));
    Result<Plan> plan = make_plan(sources, targets);
    RC_ASSERT(plan.has_value());
    RC_ASSERT(prove(sources, targets, *plan).has_value());
    std::vector<std::uint64_t>& numbers = plan->mutable_numbers();
    numbers[below(random, numbers.size())] += 1 + below(random, 3);
    RC_ASSERT(!prove(sources, targets, *plan).has_value());
  });
  EXPECT_TRUE(held);
}

}  // namespace
}  // namespace weighlock::reshard
