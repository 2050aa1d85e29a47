#include "weighlock/awex/shared_names.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "weighlock/awex/predict.hpp"
#include "weighlock/awex/repair_fixture.hpp"

namespace weighlock::awex {
namespace {

TEST(Repair, a_tied_head_may_be_on_the_inference_side_alone) {
  const Workers train{{whole_of("model.embed_tokens.weight", {4, 2}, 0, 1)}};
  const std::vector<Told> told{whole_of("model.embed_tokens.weight", {4, 2}, 0, 1),
                               whole_of("lm_head.weight", {4, 2}, 0, 1)};
  const Result<Repaired> result = repaired(train, engines(1, told), 1);
  ASSERT_TRUE(result) << result.error().text();
  EXPECT_EQ(result->infer_only, std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(result->infer.tensors.size(), 2u);
  EXPECT_EQ(problem(train, engines(1, told), 1), "");
  EXPECT_EQ(problem({{whole_of("lm_head.weight", {4, 2}, 0, 1)}}, engines(1, told), 1), "");
}

// An engine of two pipeline stages: the first has the embedding, the last a head in memory of its own.
TEST(Repair, a_head_of_a_rank_without_the_embedding_is_not_tied) {
  const Workers train{{whole_of("model.embed_tokens.weight", {4, 2}, 0, 1), whole_of("a", {2, 2}, 0, 1)}};
  const Told a = whole_of("a", {2, 2}, 0, 2), embedding = whole_of("model.embed_tokens.weight", {4, 2}, 0, 2);
  Told head = whole_of("lm_head.weight", {4, 2}, 1, 2);
  head.pp_rank = 1;
  expect_told(problem(train, engines(2, {embedding, a, head}), 2),
              {"'lm_head.weight'", "rank 1 holds [0,0]+[4,2]", "not the same of 'model.embed_tokens.weight'",
               "nothing would write it", "pp_size 1"});
  Told first_head = whole_of("lm_head.weight", {4, 2}, 0, 2), last_embedding = embedding;
  last_embedding.rank = 1;
  expect_told(problem({{whole_of("lm_head.weight", {4, 2}, 0, 1), whole_of("a", {2, 2}, 0, 1)}},
                      engines(1, {first_head, a, last_embedding}), 2),
              {"'model.embed_tokens.weight'", "rank 1 holds", "not the same of 'lm_head.weight'"});
}

TEST(Repair, a_tied_head_is_the_part_of_the_embedding_that_its_rank_holds) {
  const std::string embed = "model.embed_tokens.weight", head = "lm_head.weight";
  const Workers train{{whole_of(embed, {4, 2}, 0, 1)}};
  std::vector<Told> told;
  for (int rank = 0; rank < 2; ++rank)
    for (const std::string& name : {embed, head}) told.push_back(split_of(name, {4, 2}, 0, rank, 2));
  EXPECT_EQ(problem(train, engines(2, told), 2), "");
  told[3] = split_of(head, {4, 2}, 1, 1, 2);  // cut along the other dimension
  expect_told(problem(train, engines(2, told), 2), {"'lm_head.weight'", "rank 1 holds [0,1]+[4,1]"});
}

TEST(Repair, a_list_with_an_alias_that_nothing_writes_is_not_proven) {
  const std::string embed = "model.embed_tokens.weight", head = "lm_head.weight";
  std::vector<Told> told;
  for (int rank = 0; rank < 2; ++rank)
    for (const std::string& name : {embed, head}) told.push_back(split_of(name, {4, 2}, 0, rank, 2));
  Result<Repaired> result = repaired({{whole_of(embed, {4, 2}, 0, 1)}}, engines(1, told), 2);
  ASSERT_TRUE(result && prove(*result));
  ASSERT_EQ(result->infer.tensors[0].name, head);
  result->infer.shards[result->infer.replicas[0].first_shard].rank = 7;
  const Status proven = prove(*result);
  ASSERT_FALSE(proven);
  expect_told(proven.error().text(),
              {"'lm_head.weight' for inference rank 7", "no part of 'model.embed_tokens.weight'"});
}

TEST(Repair, a_head_on_the_inference_side_alone_that_is_not_like_the_embedding_is_refused) {
  const Told embedding = whole_of("model.embed_tokens.weight", {6, 4}, 0, 1);
  const Told longer = whole_of("lm_head.weight", {12, 4}, 0, 1);
  expect_told(problem({{embedding}}, engines(1, {embedding, longer}), 1),
              {"tensor 'lm_head.weight' (torch.bfloat16 [12,4]) is on inference ranks alone",
               "'model.embed_tokens.weight' (torch.bfloat16 [6,4])", "nothing would write it", "tie it in the engine"});
  Told exact = whole_of("lm_head.weight", {6, 4}, 0, 1);
  exact.dtype = "torch.float32";
  expect_told(problem({{embedding}}, engines(1, {embedding, exact}), 1),
              {"'lm_head.weight' (torch.float32 [6,4])", "'model.embed_tokens.weight' (torch.bfloat16 [6,4])"});
  const Told head = whole_of("lm_head.weight", {6, 4}, 0, 1),
             other = whole_of("model.embed_tokens.weight", {4, 4}, 0, 1);
  expect_told(problem({{head}}, engines(1, {head, other}), 1), {"'model.embed_tokens.weight' (torch.bfloat16 [4,4])"});
}

}  // namespace
}  // namespace weighlock::awex
