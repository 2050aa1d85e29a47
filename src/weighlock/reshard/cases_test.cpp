// The handed cases of section (c), each by its number.
#include <gtest/gtest.h>

#include <algorithm>

#include "weighlock/reshard/bucket.hpp"
#include "weighlock/reshard/fused.hpp"
#include "weighlock/reshard/memory_fixture.hpp"

namespace weighlock::reshard {
namespace {

std::vector<Rank> ranks(Rank first, Rank count) {
  std::vector<Rank> out(count);
  for (Rank i = 0; i < count; ++i) out[i] = first + i;
  return out;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Two pipeline stages of two layers each on ranks 0 and 1; `global` = layers are numbered through.
Side two_stages(bool global) {
  Side side("train", 2);
  for (std::uint32_t stage = 0; stage < 2; ++stage) {
    for (std::uint32_t layer = 0; layer < 2; ++layer) {
      const std::string name = "decoder.layers." + std::to_string(layer + (global ? 2 * stage : 0));
      const TensorId id = side.find(name) ? *side.find(name) : tensor(side, name, {4, 2});
      shard(side, id, stage, {0, 0}, {4, 2}, stage);
    }
  }
  return side;
}

TEST(ReshardCase, c1_one_name_from_two_owners_is_refused_as_a_duplicate_and_global_numbers_are_right) {
  Side two("infer", 1), four("infer", 1);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string name = "decoder.layers." + std::to_string(layer);
    if (layer < 2) shard(two, tensor(two, name, {4, 2}), 0, {0, 0}, {4, 2});
    shard(four, tensor(four, name, {4, 2}), 0, {0, 0}, {4, 2});
  }
  const std::string refused = refusal(two_stages(false), two);
  EXPECT_TRUE(has(refused,
                  "duplicate: train tensor 'decoder.layers.0' [0,4)x[0,2) is claimed by owner 0 (rank 0) and "
                  "by owner 1 (rank 1)"))
      << refused;
  EXPECT_TRUE(has(refusal(two_stages(false), four), "2 tensors of infer aren't in train: 'decoder.layers.2'"));
  expect_planned(two_stages(true), four);
}

// 8 query heads, 2 key-value heads of 4 rows: fused and grouped over 8 ranks, to 4 ranks with q, k, v apart.
TEST(ReshardCase, c2_fewer_key_value_heads_than_ranks_are_cut_through_the_groups_and_copied) {
  Side train("train", 8), infer("infer", 4);
  const GroupedHeads heads{8, 2, 4};
  const TensorId q = tensor(train, "q", {32, 3}), k = tensor(train, "k", {8, 3}), v = tensor(train, "v", {8, 3});
  for (Rank rank = 0; rank < 8; ++rank) {
    const Interval rows = chunk(heads.rows(), 8, rank, Chunks::ceiling);
    const Status ok = add_grouped_heads(train, rank, "qkv", heads, q, k, v, rows);
    ASSERT_TRUE(ok) << ok.error().text();
  }
  const TensorId to_q = tensor(infer, "q", {32, 3}), to_k = tensor(infer, "k", {8, 3}),
                 to_v = tensor(infer, "v", {8, 3});
  cut_over(infer, to_q, 0, ranks(0, 4));
  for (Rank rank = 0; rank < 4; ++rank) {
    shard(infer, to_k, rank, {rank / 2 * 4, 0}, {4, 3});
    shard(infer, to_v, rank, {rank / 2 * 4, 0}, {4, 3});
  }
  expect_planned(train, infer);
}

TEST(ReshardCase, c4_a_transposition_is_applied_once_with_unequal_and_with_equal_dimensions) {
  for (const auto& [rows, columns] : {std::pair<std::uint64_t, std::uint64_t>{2, 3}, {4, 4}}) {
    for (const std::size_t source_cut : {0u, 1u}) {
      for (const std::size_t target_cut : {0u, 1u}) {
        Side train("train", 2), infer("infer", 2);
        const TensorId from = tensor(train, "w", {rows, columns}), to = tensor(infer, "w", {rows, columns});
        cut_over(train, from, source_cut, ranks(0, 2));
        for (Rank rank = 0; rank < 2; ++rank) {
          Box box = whole(std::vector<std::uint64_t>{rows, columns});
          const Interval part = chunk(box.end[target_cut], 2, rank, Chunks::ceiling);
          box.begin[target_cut] = part.begin;
          box.end[target_cut] = part.end;
          ASSERT_TRUE(add_transposed(infer, to, rank, box));
          // Column-major: the element one row down is the next one in memory.
          EXPECT_EQ(infer.position(rank, std::vector<std::uint64_t>{0, 0}), 0u);
          if (box.extent(0) > 1) {
            EXPECT_EQ(infer.position(rank, std::vector<std::uint64_t>{1, 0}), 1u);
          }
        }
        expect_planned(train, infer);
      }
    }
  }
}

TEST(ReshardCase, c6_rows_of_padding_are_neither_sent_nor_written_whatever_each_side_pads_to) {
  for (const auto& [padded, parts] : {std::pair<std::uint64_t, Rank>{10, 1}, {12, 3}}) {
    Side train("train", 2), infer("infer", parts);
    const Result<TensorId> from = train.add_tensor({"embed", Dtype::bf16, {10, 2}, {16, 2}});
    const Result<TensorId> to = infer.add_tensor({"embed", Dtype::bf16, {10, 2}, {padded, 2}});
    const Result<TensorId> head = infer.add_tensor({"lm_head", Dtype::bf16, {10, 2}, {padded, 2}, "embed"});
    ASSERT_TRUE(from && to && head);
    cut_over(train, *from, 0, ranks(0, 2));
    cut_over(infer, *to, 0, ranks(0, parts));
    cut_over(infer, *head, 0, ranks(0, parts));
    const Plan plan = expect_planned(train, infer);
    EXPECT_EQ(statistics(train, infer, plan).total_sent, 2 * 10 * 2 * 2u);
  }
  Side train("train", 1), infer("infer", 1);
  shard(train, tensor(train, "embed", {16, 2}), 0, {0, 0}, {16, 2});
  shard(infer, tensor(infer, "embed", {10, 2}), 0, {0, 0}, {10, 2});
  EXPECT_TRUE(has(refusal(train, infer), "tensor 'embed': train has shape [16,2], infer has [10,2]"));
}

TEST(ReshardCase, c7_a_bucket_of_any_size_from_one_byte_takes_tensors_and_rows_of_any_size) {
  Side train("train", 1), infer("infer", 1);
  for (const std::uint64_t bytes : {64u, 65u, 100u, 6400u})
    for (Side* side : {&train, &infer})
      shard(*side, tensor(*side, "t" + std::to_string(bytes), {bytes}, Dtype::u8), 0, {0}, {bytes});
  for (Side* side : {&train, &infer}) shard(*side, tensor(*side, "row", {2, 20}, Dtype::f32), 0, {0, 0}, {2, 20});
  const Plan plan = expect_planned(train, infer);
  for (const std::uint64_t size : {1u, 64u, 79u, 1u << 20}) {
    const auto buckets = cut_into_buckets(infer, plan, plan.sends_of(0), size);
    ASSERT_TRUE(buckets);
    EXPECT_EQ(buckets->size(), (6629 + 160 + size - 1) / size);
    std::uint32_t operation = 0;
    std::uint64_t at = 0;  // the runs are the stream, without a gap
    for (const std::vector<BucketRun>& bucket : *buckets) {
      std::uint64_t bytes = 0;
      for (const BucketRun& run : bucket) {
        if (run.operation != operation) {
          EXPECT_EQ(run.operation, operation + 1);
          EXPECT_EQ(at, plan.elements(plan.operations()[operation]) *
                            (plan.extent(plan.operations()[operation]).size() == 2 ? 4 : 1));
          operation = run.operation;
          at = 0;
        }
        EXPECT_EQ(run.begin, at);
        at += run.bytes;
        bytes += run.bytes;
      }
      EXPECT_LE(bytes, size);
    }
  }
  const auto none = cut_into_buckets(infer, plan, plan.sends_of(0), 0);
  ASSERT_FALSE(none);
  EXPECT_TRUE(has(none.error().text(), "bucket of 0 bytes"));
}

struct Strided {
  std::vector<std::int64_t> strides;
  std::uint64_t offset = 0;
  std::uint64_t elements = 0;
  std::vector<std::uint64_t> shape = {3, 4};
};

Status add_strided(Side& side, const Strided& how) {
  const TensorId id = tensor(side, "w", how.shape);
  const BufferId buffer = side.add_buffer(0, how.elements, "local");
  const std::vector<std::uint64_t> zero(how.shape.size());
  return side.add_shard(id, 0, zero, how.shape, 0, Placement{buffer, how.offset, how.strides});
}

TEST(ReshardCase, c8_strides_are_followed_and_those_that_no_memory_has_are_refused) {
  // Of the last no stride steps over the other's reach, and yet no two elements meet.
  for (const Strided& how :
       {Strided{{1, 3}, 0, 12}, Strided{{8, 2}, 0, 24}, Strided{{4, 1}, 7, 19}, Strided{{5, 6}, 0, 40}}) {
    Side train("train", 1), infer("infer", 1);
    ASSERT_TRUE(add_strided(train, how));
    ASSERT_TRUE(add_strided(infer, how));
    expect_planned(train, infer);
  }
  for (const auto& [how, says] : {std::pair<Strided, std::string>{{{4, 0}, 0, 12}, "strides (4,0)"},
                                  {{{-4, 1}, 8, 12}, "strides (-4,1)"},
                                  {{{1, 1}, 0, 12}, "two of them lie in one place"},
                                  {{{2, 1}, 0, 12}, "two of them lie in one place"},
                                  {{{3, 2}, 0, 30}, "two of them lie in one place"}}) {
    Side side("train", 1);
    const Status refused = add_strided(side, how);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(has(refused.error().text(), says)) << refused.error().text();
    EXPECT_TRUE(has(refused.error().text(), "train tensor 'w' on rank 0")) << refused.error().text();
  }
}

TEST(ReshardCase, c10_a_missing_tail_is_refused_with_the_hole) {
  Side train("train", 2), infer("infer", 1);
  const TensorId from = tensor(train, "w", {10}), to = tensor(infer, "w", {10});
  shard(train, from, 0, {0}, {4});
  shard(train, from, 1, {4}, {4});
  shard(infer, to, 0, {0}, {10});
  const std::string refused = refusal(train, infer);
  EXPECT_TRUE(has(refused, "infer tensor 'w' on rank 0: hole [8,10)")) << refused;
}

TEST(ReshardCase, c11_sizes_that_do_not_divide_lose_no_row) {
  Side train("train", 3), infer("infer", 2);
  cut_over(train, tensor(train, "embed", {10, 2}), 0, ranks(0, 3));  // 4, 4, 2
  cut_over(infer, tensor(infer, "embed", {10, 2}), 0, ranks(0, 2));  // 5, 5
  expect_planned(train, infer);
  EXPECT_EQ(train.box(2).extent(0), 2u);
  EXPECT_EQ(infer.box(1).extent(0), 5u);
  expect_planned(infer, train);
  EXPECT_EQ(chunk(10, 3, 0, Chunks::even).end, 4u);
  EXPECT_EQ(chunk(10, 3, 2, Chunks::even).begin, 7u);
  EXPECT_EQ(chunk(3, 8, 7, Chunks::ceiling).begin, 3u);
}

// 4 experts over 2 expert-parallel ranks in 2 pipeline stages: global ranks 2 and 3 are 0 and 1 among the
// expert-parallel.
TEST(ReshardCase, c13_an_out_of_range_or_empty_slice_of_experts_is_an_error) {
  Side side("infer", 4);
  std::vector<TensorId> gate, up;
  for (int expert = 0; expert < 4; ++expert) {
    gate.push_back(tensor(side, "experts." + std::to_string(expert) + ".gate", {4, 2}));
    up.push_back(tensor(side, "experts." + std::to_string(expert) + ".up", {4, 2}));
  }
  EXPECT_TRUE(add_packed_experts(side, 1, "w13", gate, up, {2, 4}, {0, 4}));
  for (const Interval experts : {Interval{4, 6}, Interval{4, 4}, Interval{3, 5}}) {
    const Status refused = add_packed_experts(side, 2, "w13", gate, up, experts, {0, 4});
    ASSERT_FALSE(refused);
    EXPECT_TRUE(has(refused.error().text(), "on rank 2 is for experts [" + std::to_string(experts.begin)))
        << refused.error().text();
  }
  // The same with one tensor for all experts.
  const TensorId all = tensor(side, "w13", {4, 2, 2});
  const Status beyond =
      side.add_shard(all, 2, std::vector<std::uint64_t>{4, 0, 0}, std::vector<std::uint64_t>{2, 2, 2});
  ASSERT_FALSE(beyond);
  EXPECT_TRUE(has(beyond.error().text(), "infer tensor 'w13' on rank 2 is said to be [4,4+2) in dimension 0"))
      << beyond.error().text();
  const BufferId buffer = side.add_buffer(2, 8, "w13");
  const Status empty = side.add_shard(all, 2, std::vector<std::uint64_t>{4, 0, 0}, std::vector<std::uint64_t>{0, 2, 2},
                                      0, Placement{buffer, 0, std::vector<std::int64_t>{4, 2, 1}});
  ASSERT_FALSE(empty);
  EXPECT_TRUE(has(empty.error().text(), "its slice was taken out of range")) << empty.error().text();
}

TEST(ReshardCase, c13_a_part_that_no_target_rank_asks_for_is_an_error) {
  Side train("train", 1), infer("infer", 4);
  shard(train, tensor(train, "w13", {4, 2, 2}), 0, {0, 0, 0}, {4, 2, 2});
  const TensorId to = tensor(infer, "w13", {4, 2, 2});
  for (Rank rank = 0; rank < 4; ++rank)
    shard(infer, to, rank, {std::min(2 * rank, 4u), 0, 0}, {rank == 0 ? 2u : 0u, 2, 2});
  EXPECT_TRUE(has(refusal(train, infer), "infer tensor 'w13': hole [2,4)x[0,2)x[0,2)")) << refusal(train, infer);
}

TEST(ReshardCase, c15_any_pipeline_depth_is_planned_to_any_other) {
  for (const auto& [from, to] : {std::pair<Rank, Rank>{4, 2}, {2, 3}, {3, 4}, {1, 6}}) {
    Side train("train", from), infer("infer", to);
    for (std::uint64_t layer = 0; layer < 6; ++layer) {
      const auto stage = [&](Rank stages) {
        Rank s = 0;
        while (chunk(6, stages, s, Chunks::even).end <= layer) ++s;
        return s;
      };
      const std::string name = "layers." + std::to_string(layer) + ".w";
      shard(train, tensor(train, name, {4, 3}), stage(from), {0, 0}, {4, 3}, stage(from));
      shard(infer, tensor(infer, name, {4, 3}), stage(to), {0, 0}, {4, 3});
    }
    expect_planned(train, infer);
  }
}

TEST(ReshardCase, c16_a_shard_with_the_strides_of_the_whole_tensor_leaves_its_memory_and_is_refused) {
  Side side("train", 1);
  const Status refused = add_strided(side, {{8, 1}, 0, 16, {4, 4}});
  ASSERT_FALSE(refused);
  EXPECT_TRUE(has(refused.error().text(), "with strides (8,1) reach element 27, and there are only 16"))
      << refused.error().text();
  Side fits("train", 1);
  EXPECT_TRUE(add_strided(fits, {{8, 1}, 0, 28, {4, 4}}));
}

}  // namespace
}  // namespace weighlock::reshard
