#include "weighlock/awex/repair.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/repair_fixture.hpp"
#include "weighlock/awex/serve.hpp"

namespace weighlock::awex {
namespace {

TEST(Repair, uneven_rows_get_offsets_that_are_running_sums) {
  const Result<Repaired> result = repaired(fsdp("w", {10, 4}, 4), engines(1, {whole_of("w", {10, 4}, 0, 1)}), 1);
  ASSERT_TRUE(result) << result.error().text();
  ASSERT_EQ(result->train.replicas.size(), 1u);
  std::string boxes;
  for (const Shard& shard : result->train.shards) boxes += text(shard.box) + " ";
  EXPECT_EQ(boxes, "[0,0]+[3,4] [3,0]+[3,4] [6,0]+[3,4] [9,0]+[1,4] ");
  EXPECT_EQ(result->moved, 3u);
}

TEST(Repair, rows_fewer_than_ranks_lie_in_the_order_of_ranks_and_empty_parts_are_not_listed) {
  const Result<Repaired> result = repaired(fsdp("w", {3, 2}, 5), engines(1, {whole_of("w", {3, 2}, 0, 1)}), 1);
  ASSERT_TRUE(result) << result.error().text();
  ASSERT_EQ(result->train.shards.size(), 3u);
  EXPECT_EQ(text(result->train.shards[2].box), "[2,0]+[1,2]");
  EXPECT_EQ(result->train.shards[2].rank, 2u);
}

TEST(Repair, sizes_that_no_number_of_ranks_divides_lose_no_row) {
  for (std::uint64_t rows = 1; rows <= 24; ++rows)
    for (int world = 1; world <= 9; ++world)
      EXPECT_EQ(problem(fsdp("w", {rows, 3}, world), engines(2, {whole_of("w", {rows, 3}, 0, 1)}), 1), "")
          << rows << " rows, " << world << " ranks";
}

TEST(Repair, copies_become_replicas_and_only_those_that_are_read_are_listed) {
  Workers train;
  for (int rank = 0; rank < 4; ++rank) train.push_back({whole_of("a", {8}, rank, 4), whole_of("b", {8}, rank, 4)});
  const std::vector<Told> told{whole_of("a", {8}, 0, 1), whole_of("b", {8}, 0, 1)};
  const Result<Repaired> result = repaired(train, engines(3, told), 1);
  ASSERT_TRUE(result) << result.error().text();
  ASSERT_EQ(result->train.tensors.size(), 2u);
  EXPECT_EQ(result->train.tensors[0].replicas, 3u);
  for (const Replica& replica : result->train.replicas) EXPECT_EQ(replica.shards, 1u);
  // Six reads by four senders: two each, but for the two that serve one.
  const Statistics told_of = statistics(*result, predict(*result));
  EXPECT_EQ(told_of.busiest, 32u);
  EXPECT_EQ(told_of.idle, 0u);
}

TEST(Repair, senders_of_many_copies_are_evenly_loaded) {
  Workers train(8);
  std::vector<Told> told;
  for (int tensor = 0; tensor < 200; ++tensor) {
    const std::string name = fmt::format("model.layers.{}.w", tensor);
    const Sizes shape{static_cast<std::uint64_t>(1 + tensor % 7), 64};
    for (int rank = 0; rank < 8; ++rank)
      train[static_cast<std::size_t>(rank)].push_back(whole_of(name, shape, rank, 8));
    told.push_back(whole_of(name, shape, 0, 1));
  }
  const Result<Repaired> result = repaired(train, engines(1, told), 1);
  ASSERT_TRUE(result) << result.error().text();
  const Statistics told_of = statistics(*result, predict(*result));
  EXPECT_LE(static_cast<double>(told_of.busiest), 1.05 * static_cast<double>(told_of.lower_bound));
  EXPECT_EQ(told_of.total_sent, told_of.needed);
}

TEST(Repair, tensor_parallel_shards_are_one_replica_and_replicated_tensors_one_for_each_rank) {
  const Workers train{{whole_of("norm", {4}, 0, 1), whole_of("w", {4, 8}, 0, 1)}};
  std::vector<Told> told;
  for (int rank = 0; rank < 4; ++rank) {
    told.push_back(split_of("w", {4, 8}, 1, rank, 4));
    told.push_back(whole_of("norm", {4}, rank, 4));
  }
  const Result<Repaired> result = repaired(train, engines(2, told), 4);
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->infer.tensors[0].name, "norm");
  EXPECT_EQ(result->infer.tensors[0].replicas, 4u);
  EXPECT_EQ(result->infer.tensors[1].replicas, 1u);
  EXPECT_EQ(problem(train, engines(2, told), 4), "");
}

TEST(Repair, sums_of_bytes_near_64_bits_are_refused_with_the_tensor_named) {
  constexpr std::uint64_t kRows = std::uint64_t{1} << 49;
  std::vector<Told> told;
  for (int i = 0; i < 200; ++i) told.push_back(whole_of(fmt::format("w{:03}", i), {kRows}, 0, 1));
  EXPECT_TRUE(repaired({told}, engines(1, told), 1));
  const Result<Repaired> result = repaired({told}, engines(100, told), 1);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::too_large);
  expect_told(result.error().text(), {"with tensor 'w040' of shape [562949953421312]", "2^62 bytes"});
}

TEST(Repair, a_name_that_one_side_lacks_is_refused) {
  const std::vector<Told> told{whole_of("w", {4}, 0, 1)};
  expect_told(problem({{whole_of("w", {4}, 0, 1), whole_of("lm_head.weight", {4}, 0, 1)}}, engines(1, told), 1),
              {"tensor 'lm_head.weight' is on train ranks 0 and on no inference rank"});
  expect_told(problem({{whole_of("v", {4}, 0, 1)}}, engines(1, told), 1), {"2 problems", "'v'", "'w'"});
}

TEST(Repair, shapes_and_dtypes_that_differ_are_refused) {
  Told other = whole_of("w", {4, 2}, 0, 1);
  other.dtype = "torch.float32";
  expect_told(
      problem({{whole_of("w", {4, 2}, 0, 1)}}, engines(1, {other}), 1),
      {"tensor 'w' is torch.bfloat16 on train ranks and torch.float32 on inference ranks", "AWEX doesn't convert"});
  expect_told(problem({{whole_of("w", {10, 2}, 0, 1)}}, engines(1, {whole_of("w", {12, 2}, 0, 1)}), 1),
              {"[10,2] on train ranks and [12,2] on inference ranks", "vocabularies padded otherwise"});
  expect_told(problem({{whole_of("w", {10, 2}, 0, 1)}}, engines(1, {whole_of("w", {20}, 0, 1)}), 1),
              {"[10,2]", "[20]"});
  expect_told(
      problem({{whole_of("w", {4}, 0, 2)}, {whole_of("w", {5}, 1, 2)}}, engines(1, {whole_of("w", {4}, 0, 1)}), 1),
      {"[4] on train ranks 0 and [5] on 1"});
}

TEST(Repair, an_uneven_inference_vocabulary_gets_the_true_shape) {
  std::vector<Told> told;
  for (int rank = 0; rank < 3; ++rank) {
    Told one = fsdp_of("w", {10, 2}, rank, 3);
    one.offset[0] = static_cast<std::uint64_t>(rank) * one.shape[0];
    one.whole[0] = 3 * one.shape[0];
    told.push_back(one);
  }
  EXPECT_EQ(problem(fsdp("w", {10, 2}, 2), engines(1, told), 3), "");
}

TEST(Repair, a_lost_tail_is_refused_with_its_hole) {
  Workers train = fsdp("w", {10, 4}, 5);
  train[4] = {whole_of("other", {1}, 4, 5)};
  expect_told(problem(train, engines(1, {whole_of("w", {10, 4}, 0, 1), whole_of("other", {1}, 0, 1)}), 1),
              {"tensor 'w' of shape [10,4] isn't whole on train ranks 0..3", "hole [8,10)"});
}

TEST(Repair, a_tensor_without_dimensions_is_refused) {
  expect_told(problem({{whole_of("s", {}, 0, 1)}}, engines(1, {whole_of("s", {}, 0, 1)}), 1),
              {"tensor 's' has no dimensions", "Shard has empty global_offset", "shape [1]"});
}

TEST(Repair, pipeline_stages_that_both_count_from_0_are_refused) {
  Workers train;
  for (int rank = 0; rank < 4; ++rank) {
    Told told = whole_of("decoder.layers.0.w", {4}, rank, 4);
    told.pp_rank = rank / 2;
    train.push_back({told});
  }
  expect_told(problem(train, engines(1, {whole_of("decoder.layers.0.w", {4}, 0, 1)}), 1),
              {"'decoder.layers.0.w'", "duplicate", "pipeline stages 0 (train ranks 0..1) and 1 (2..3)", "not from 0"});
  for (int rank = 2; rank < 4; ++rank) train[static_cast<std::size_t>(rank)][0].name = "decoder.layers.1.w";
  EXPECT_EQ(
      problem(train, engines(1, {whole_of("decoder.layers.0.w", {4}, 0, 1), whole_of("decoder.layers.1.w", {4}, 0, 1)}),
              1),
      "");
}

TEST(Repair, embeddings_may_be_on_the_first_and_the_last_stage) {
  Told first = whole_of("model.embed_tokens.weight", {4, 2}, 0, 2),
       last = whole_of("model.embed_tokens.weight", {4, 2}, 1, 2);
  last.pp_rank = 1;
  EXPECT_EQ(problem({{first}, {last}}, engines(1, {whole_of("model.embed_tokens.weight", {4, 2}, 0, 1)}), 1), "");
}

TEST(Repair, a_name_that_one_rank_reports_twice_is_refused) {
  expect_told(
      problem({{whole_of("w", {4}, 0, 1), whole_of("w", {4}, 0, 1)}}, engines(1, {whole_of("w", {4}, 0, 1)}), 1),
      {"tensor 'w'", "train ranks, 0", "duplicate", "virtual pipeline stages"});
}

TEST(Repair, ranks_must_be_there_once_and_in_order) {
  const std::vector<Told> told{whole_of("w", {8}, 0, 1)};
  Workers train = fsdp("w", {8}, 4);
  std::swap(train[1], train[2]);
  expect_told(problem(train, engines(1, told), 1), {"train worker 1 (http://t:1) is rank 2", "in the order of ranks"});
  train = fsdp("w", {8}, 4);
  train[3] = train[0];
  expect_told(problem(train, engines(1, told), 1),
              {"train rank 0 is reported by train worker 0 (http://t:0) and by train worker 3"});
  train = fsdp("w", {8}, 4);
  train.pop_back();
  expect_told(problem(train, engines(1, told), 1, 4), {"a world of 4 ranks, and 3 URLs"});
  train[2][0].rank = 9;
  expect_told(problem(train, engines(1, told), 1), {"is rank 9 of a world of 3"});
}

TEST(Repair, worlds_that_disagree_are_refused) {
  Workers train = fsdp("w", {8}, 2);
  train[1][0].world = 3;
  expect_told(problem(train, engines(1, {whole_of("w", {8}, 0, 1)}), 1),
              {"train worker 1 (http://t:1)", "a world of 3 ranks", "has 2"});
  expect_told(problem(fsdp("w", {8}, 2), engines(1, {whole_of("w", {8}, 0, 4)}), 1),
              {"inference worker 0", "a world of 4 ranks"});
}

TEST(Repair, an_engine_that_tells_of_some_of_its_ranks_is_refused) {
  expect_told(problem({{whole_of("w", {8}, 0, 1)}}, engines(1, {split_of("w", {8}, 0, 0, 2)}), 2),
              {"inference worker 0 (http://i:0) reports tensors of 1 of its 2 ranks, none of rank 1"});
  expect_told(
      problem({{whole_of("w", {8}, 0, 1)}}, engines(1, {whole_of("w", {8}, 0, 1), whole_of("v", {8}, 1, 1)}), 1),
      {"reports tensors of rank 1, and an engine has 1 ranks"});
}

TEST(Repair, engines_that_are_not_alike_are_refused) {
  const Workers train{{whole_of("w", {8}, 0, 1)}};
  Workers infer{{split_of("w", {8}, 0, 0, 2), split_of("w", {8}, 0, 1, 2)},
                {whole_of("w", {8}, 0, 2), whole_of("w", {8}, 1, 2)}};
  expect_told(problem(train, infer, 2),
              {"tensor 'w'", "(http://i:0)", "(http://i:1)", "differ in what their ranks hold"});
}

TEST(Repair, only_the_first_problems_are_named_and_all_are_counted) {
  std::vector<Told> many;
  for (int i = 0; i < 20; ++i) many.push_back(whole_of(fmt::format("t{:02}", i), {1}, 0, 1));
  expect_told(problem({many}, engines(1, {whole_of("w", {8}, 0, 1)}), 1), {"21 problems", "'t00'", "and 13 more"});
}

TEST(Repair, worlds_that_cannot_be_are_refused_before_anything_is_allocated) {
  expect_told(
      problem({{whole_of("w", {8}, 0, 1)}}, engines(1, {whole_of("w", {8}, 0, 1)}), 4'000'000'000, 4'000'000'000),
      {"4000000000 training ranks", "is a world size wrong?"});
}

TEST(Repair, parts_that_would_take_for_ever_to_plan_are_refused) {
  constexpr int kRanks = 1200;
  std::vector<Told> told;
  Workers train;
  for (int rank = 0; rank < kRanks; ++rank) {
    told.push_back(split_of("w", {kRanks}, 0, rank, kRanks));
    train.push_back({told.back()});
  }
  const Result<std::vector<Report>> t = reports(Side::train, train), i = reports(Side::infer, {told});
  ASSERT_TRUE(t && i);
  EXPECT_TRUE(repair(*t, *i, {kRanks, kRanks, 1}));
  const Result<Repaired> result = repair(*t, std::vector<Report>(750, i->front()), {kRanks, kRanks, 750});
  ASSERT_FALSE(result);
  expect_told(result.error().text(), {"1080000000 pairs", "more than 1073741824"});
}

TEST(Serve, what_is_served_is_read_again_as_the_same_lists) {
  Told told = whole_of("a\\\"b", {4, 2}, 0, 1);
  told.shard_more = R"(,"new":{"x":1.50})";
  told.tensor_more = R"(,"also":[1])";
  const Result<Repaired> result = repaired({{told}}, engines(1, {told}), 1);
  ASSERT_TRUE(result) << result.error().text();
  const Served served = *serialise(*result, SIZE_MAX);
  EXPECT_EQ(served.train.rfind(
                R"({"value":[{"type":"dataclass","class_path":"awex.meta.weight_meta.ParameterMeta","data":{)", 0),
            0u);
  expect_told(served.train,
              {R"("new":{"x":1.50})", R"("also":[1])", R"("shards":[],"replicas":[)", R"("name":"a\"b")"});
  std::string again = served.train;
  again.replace(0, 8, R"({"result")");
  const Result<Report> back = parse_report({Side::train, 0, "x"}, again);
  ASSERT_TRUE(back) << back.error().text();
  EXPECT_EQ(back->strings[back->tensors[0].name], "a\"b");
  EXPECT_EQ(text(back->shards[0].box), "[0,0]+[4,2]");
}

TEST(Serve, lists_of_more_bytes_than_may_be_kept_are_refused_with_the_models_size) {
  Workers train;
  for (int rank = 0; rank < 3; ++rank) train.push_back({whole_of("w", {5, 2}, rank, 3)});
  const Result<Repaired> result = repaired(train, engines(3, {whole_of("w", {5, 2}, 0, 1)}), 1);
  ASSERT_TRUE(result) << result.error().text();
  const std::size_t bytes = serialise(*result, SIZE_MAX)->train.size() + serialise(*result, SIZE_MAX)->infer.size();
  EXPECT_TRUE(serialise(*result, bytes));
  for (const std::size_t less : {bytes - 1, std::size_t{10}}) {
    const Result<Served> refused = serialise(*result, less);
    ASSERT_FALSE(refused) << less;
    EXPECT_EQ(refused.error().code, ErrorCode::too_large);
    expect_told(refused.error().text(), {fmt::format("more than {} bytes", less), "1 tensors (20 bytes)",
                                         "3 parts for trainers and 1 for engines", "fewer parts", "mode \"disk\""});
  }
}

TEST(Predict, each_ranks_operations_are_by_peer_then_name) {
  Workers train = fsdp("b", {4}, 2);
  train[0].push_back(fsdp_of("a", {4}, 0, 2));
  train[1].push_back(fsdp_of("a", {4}, 1, 2));
  const Result<Repaired> result = repaired(train, engines(2, {whole_of("b", {4}, 0, 1), whole_of("a", {4}, 0, 1)}), 1);
  ASSERT_TRUE(result) << result.error().text();
  const Plan plan = predict(*result);
  EXPECT_EQ(plan.operations.size(), 8u);
  std::string order;
  for (const Operation* op : operations_of(*result, plan, 3))
    order +=
        fmt::format("{}:{}{} ", op->recv_rank, result->train.tensors[op->tensor].name, text(recv_offset(*result, *op)));
  EXPECT_EQ(order, "0:a[2] 0:b[2] 1:a[2] 1:b[2] ");
}

TEST(Predict, a_plan_with_a_hole_or_a_second_write_is_not_proven) {
  const Result<Repaired> result = repaired(fsdp("w", {10}, 2), engines(1, {whole_of("w", {10}, 0, 1)}), 1);
  ASSERT_TRUE(result) << result.error().text();
  Plan plan = predict(*result);
  ASSERT_TRUE(prove(*result, plan));
  Plan twice = plan;
  twice.operations.push_back(plan.operations[0]);
  EXPECT_FALSE(prove(*result, twice));
  plan.operations.pop_back();
  expect_told(prove(*result, plan).error().text(), {"tensor 'w'", "inference rank 0", "hole [5,10)"});
}

// What it would say if the mistake were in our lists.
std::string refusal(const Repaired& lists) {
  const Status proven = prove(lists);
  EXPECT_EQ(proven.has_value(), prove(lists, predict(lists)).has_value());
  return proven ? "" : proven.error().text();
}

TEST(Predict, lists_with_a_hole_an_overlap_or_a_tensor_too_few_are_not_proven) {
  const std::vector<Told> engine{whole_of("v", {4}, 0, 1), whole_of("w", {10}, 0, 1)};
  Workers train = fsdp("w", {10}, 2);
  for (int rank = 0; rank < 2; ++rank) train[static_cast<std::size_t>(rank)].push_back(fsdp_of("v", {4}, rank, 2));
  const Result<Repaired> result = repaired(train, engines(3, engine), 1);
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(refusal(*result), "");
  const Replica& of_w = result->train.replicas[result->train.tensors[1].first_replica];

  Repaired lists = *result;
  lists.train.shards[of_w.first_shard].box.shape[0] = 4;
  expect_told(refusal(lists), {"tensor 'w'", "inference rank 0", "hole [4,5)"});
  lists = *result;
  lists.train.shards[of_w.first_shard].box.shape[0] = 6;
  expect_told(refusal(lists), {"tensor 'w'", "inference rank 0", "overlap"});
  lists = *result;
  lists.train.tensors.pop_back();
  expect_told(refusal(lists), {"tensor 'w'", "no sender"});
  lists = *result;
  lists.infer.tensors.pop_back();
  expect_told(refusal(lists), {"tensor 'w'", "no receiver"});
  lists = *result;
  lists.infer.tensors[0].replicas = 0;
  expect_told(refusal(lists), {"tensor 'v'", "without replicas"});
  lists = *result;
  lists.train.tensors[0].dtype = "torch.float32";
  expect_told(refusal(lists), {"tensor 'v'", "two dtypes"});
}

TEST(Predict, a_mistake_in_what_the_last_engine_reads_is_found_too) {
  Workers train;
  for (int rank = 0; rank < 3; ++rank) train.push_back({whole_of("w", {10}, rank, 3)});
  const Result<Repaired> result = repaired(train, engines(7, {whole_of("w", {10}, 0, 1)}), 1);
  ASSERT_TRUE(result) << result.error().text();
  ASSERT_EQ(result->train.tensors[0].replicas, 3u);
  EXPECT_EQ(refusal(*result), "");
  EXPECT_EQ(pairs_of_parts(*result), 3u);  // engines 3 to 6 read as 0 to 2 do
  Repaired lists = *result;
  lists.train.shards[lists.train.replicas[2].first_shard].box.shape[0] = 9;
  expect_told(refusal(lists), {"tensor 'w'", "inference rank 2", "hole [9,10)"});
}

}  // namespace
}  // namespace weighlock::awex
