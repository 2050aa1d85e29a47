// Balance, hosts, order, digests and refusals of plans.
#include <gtest/gtest.h>

#include <algorithm>

#include "weighlock/reshard/balance.hpp"
#include "weighlock/reshard/fused.hpp"
#include "weighlock/reshard/memory_fixture.hpp"

namespace weighlock::reshard {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// `tensors` of 64 x 3 elements, all of each on every rank.
Side copies(std::string name, Rank ranks, int tensors, bool backwards = false) {
  Side side(std::move(name), ranks);
  for (int i = 0; i < tensors; ++i) {
    const int number = backwards ? tensors - 1 - i : i;
    const TensorId id = tensor(side, "t" + std::to_string(number), {64, 3});
    for (Rank rank = 0; rank < ranks; ++rank) shard(side, id, rank, {0, 0}, {64, 3});
  }
  return side;
}

TEST(ReshardPlan, copies_share_the_work_evenly_even_of_a_single_tensor) {
  for (const int tensors : {1, 3, 7}) {
    const Side train = copies("train", 4, tensors), infer = copies("infer", 1, tensors);
    const Plan plan = expect_planned(train, infer);
    const Statistics found = statistics(train, infer, plan);
    EXPECT_LE(found.over_bound, 1.05);
    EXPECT_LE(found.over_mean, 1.05);
    EXPECT_EQ(found.idle, 0u);
    EXPECT_EQ(found.redundancy, 1.0);
  }
}

TEST(ReshardPlan, the_bound_is_that_of_the_set_that_is_too_heavy_for_its_holders) {
  // Ranks 0 and 1 alone hold 100 bytes together with what only rank 0 holds: 30. Rank 2 can only help with the rest.
  const Shares shares = share_loads(std::vector<LoadGroup>{{30, {0}}, {70, {0, 1}}, {8, {0, 1, 2}}}, 4);
  EXPECT_EQ(shares.lower_bound_bytes, 50u);
  EXPECT_EQ(shares.capable_senders, 3u);
  EXPECT_EQ(shares.bytes[2], (std::vector<std::uint64_t>{0, 0, 8}));
  const Shares alone = share_loads(std::vector<LoadGroup>{{90, {2}}, {9, {0, 1, 2}}}, 3);
  EXPECT_EQ(alone.lower_bound_bytes, 90u);
}

TEST(ReshardPlan, equal_layouts_described_in_another_order_have_the_same_digest_and_others_another) {
  const Side train = copies("train", 2, 3), infer = copies("infer", 3, 3);
  const Plan one = expect_planned(train, infer);
  EXPECT_EQ(one.digest.size(), 32u);
  EXPECT_EQ(make_plan(copies("train", 2, 3, true), copies("infer", 3, 3, true))->digest, one.digest);
  EXPECT_NE(make_plan(copies("train", 2, 2), copies("infer", 3, 2))->digest, one.digest);
  EXPECT_NE(make_plan(train, copies("infer", 2, 3))->digest, one.digest);
}

TEST(ReshardPlan, one_copy_goes_to_each_host_and_its_ranks_pass_it_on) {
  const Side train = copies("train", 2, 4);
  Side infer = copies("infer", 6, 4);
  EXPECT_TRUE(has(refusal(train, infer, {.one_copy_per_host = true}), "the hosts of infer aren't given"));
  ASSERT_FALSE(infer.set_hosts({0, 1}));
  ASSERT_TRUE(infer.set_hosts({7, 7, 7, 9, 9, 9}));
  const Plan plan = expect_planned(train, infer, {.one_copy_per_host = true});
  const Statistics found = statistics(train, infer, plan);
  EXPECT_EQ(found.total_sent, found.needed / 3);
  EXPECT_EQ(found.total_fanned_out, found.needed / 3 * 2);
  EXPECT_EQ(found.redundancy, 1.0);
  EXPECT_LE(found.over_bound, 1.05);
  EXPECT_LE(found.busiest_receiver, found.total_sent / 6 * 2) << "host mates take turns";
}

TEST(ReshardPlan, what_one_side_lacks_or_has_otherwise_is_refused_by_name) {
  Side train("train", 1), infer("infer", 1), other("infer", 1);
  shard(train, tensor(train, "a", {2}), 0, {0}, {2});
  shard(infer, tensor(infer, "b", {2}), 0, {0}, {2});
  shard(other, tensor(other, "a", {2}, Dtype::f32), 0, {0}, {2});
  const std::string refused = refusal(train, infer);
  EXPECT_TRUE(has(refused, "1 tensors of infer aren't in train: 'b'; 1 tensors of train aren't in infer: 'a'"))
      << refused;
  EXPECT_TRUE(has(refusal(train, other), "tensor 'a': train has dtype BF16, infer has F32"));
  Side more = copies("train", 1, 3);
  EXPECT_TRUE(has(refusal(more, copies("infer", 1, 2)), "'t2'"));
  EXPECT_EQ(make_plan(more, copies("infer", 1, 2), {.unused_sources_allowed = true})->unused_sources, 1u);
}

TEST(ReshardPlan, two_target_parts_in_one_place_are_refused_and_interleaved_ones_are_not) {
  Side train("train", 1);
  shard(train, tensor(train, "a", {4, 2}), 0, {0, 0}, {4, 2});
  shard(train, tensor(train, "b", {4, 2}), 0, {0, 0}, {4, 2});
  for (const std::uint64_t second : {2u, 1u}) {  // columns 0, 1 and 2, 3 of a [4,4]; then columns 1, 2
    Side infer("infer", 1);
    const TensorId a = tensor(infer, "a", {4, 2}), b = tensor(infer, "b", {4, 2});
    const BufferId buffer = infer.add_buffer(0, 16, "ab");
    const std::vector<std::uint64_t> zero{0, 0}, extent{4, 2};
    const std::vector<std::int64_t> strides{4, 1};
    ASSERT_TRUE(infer.add_shard(a, 0, zero, extent, 0, Placement{buffer, 0, strides}));
    ASSERT_TRUE(infer.add_shard(b, 0, zero, extent, 0, Placement{buffer, second, strides}));
    if (second == 2) {
      expect_planned(train, infer);
    } else {
      EXPECT_TRUE(has(refusal(train, infer), "infer tensor 'a' on rank 0 and infer tensor 'b'"))
          << refusal(train, infer);
      EXPECT_TRUE(has(refusal(train, infer), "share elements"));
    }
  }
}

TEST(ReshardPlan, sides_refuse_what_no_tensor_is) {
  Side side("train", 1);
  EXPECT_FALSE(side.add_tensor({"f4", Dtype::f4, {4}}));
  EXPECT_FALSE(side.add_tensor({"deep", Dtype::bf16, {1, 1, 1, 1, 1, 1, 1, 1, 1}}));
  EXPECT_FALSE(side.add_tensor({"huge", Dtype::bf16, {1ull << 40, 1ull << 40}}));
  EXPECT_FALSE(side.add_tensor({"pad", Dtype::bf16, {10, 2}, {9, 2}}));
  const TensorId id = tensor(side, "w", {4});
  EXPECT_FALSE(side.add_tensor({"w", Dtype::bf16, {4}}));
  const std::vector<std::uint64_t> zero{0}, four{4}, two{0, 0}, all{~0ull};
  EXPECT_FALSE(side.add_shard(id, 1, zero, four));
  EXPECT_FALSE(side.add_shard(id, 0, two, two));
  EXPECT_FALSE(side.add_shard(id, 0, four, all));
}

// 2-D cuts on both sides, and gate, up and experts in packed form on the targets.
TEST(ReshardPlan, packed_experts_are_filled_from_single_ones) {
  Side train("train", 4), infer("infer", 4);
  std::vector<TensorId> gate, up;
  for (int expert = 0; expert < 4; ++expert) {
    for (const std::string part : {"gate", "up"}) {
      const std::string name = "experts." + std::to_string(expert) + "." + part;
      cut_over(train, tensor(train, name, {6, 4}), 1, {0, 1, 2, 3});
      (part == "gate" ? gate : up).push_back(tensor(infer, name, {6, 4}));
    }
  }
  for (Rank rank = 0; rank < 4; ++rank)  // two expert-parallel, each over two tensor-parallel ranks
    ASSERT_TRUE(add_packed_experts(infer, rank, "w13", gate, up, {rank / 2 * 2, rank / 2 * 2 + 2},
                                   {rank % 2 * 3, rank % 2 * 3 + 3}));
  const Plan plan = expect_planned(train, infer);
  EXPECT_EQ(plan.operations().size(), 4 * 4 * 4u);
}

TEST(ReshardPlan, the_proof_tells_what_is_written_twice_and_what_is_not_written) {
  const Side train = copies("train", 1, 2), infer = copies("infer", 1, 2);
  Plan missing = *make_plan(train, infer);
  missing.mutable_operations().pop_back();
  missing.arrange(std::vector<std::uint32_t>{0, 1}, 1);
  EXPECT_TRUE(has(prove(train, infer, missing).error().text(), "infer tensor 't1' on rank 0: hole [0,64)x[0,3)"));
  Plan twice = *make_plan(train, infer);
  twice.add(train, infer, Stage::transfer, 0, 0,
            box_at(std::vector<std::uint64_t>{8, 0}, std::vector<std::uint64_t>{2, 3}));
  twice.arrange(std::vector<std::uint32_t>{0, 1}, 1);
  EXPECT_TRUE(has(prove(train, infer, twice).error().text(), "overlap [8,10)x[0,3)"));
  Plan swapped = *make_plan(train, infer);
  swapped.mutable_operations()[0].source = 1;
  EXPECT_TRUE(has(prove(train, infer, swapped).error().text(), "it sends tensor 't1'"));
}

}  // namespace
}  // namespace weighlock::reshard
