#include "weighlock/engines/evidence.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace weighlock {
namespace {

constexpr const char* kNothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

Findings leading(const TensorExpectation& expected, const std::string& answer) {
  Findings findings;
  compare_leading(expected, *parse_json(answer, "answer"), findings);
  return findings;
}

Findings digests(const TensorExpectation& expected, const std::string& object) {
  Findings findings;
  compare_checksums(Expectations{{expected}}, parse_json(object, "answer")->get_object(), findings);
  return findings;
}

TensorExpectation vector_of(std::vector<float> values, std::string dtype = "BF16") {
  return {"n", std::move(dtype), {values.size()}, values, true, ""};
}

TensorExpectation digest_of(std::string name, std::vector<std::uint64_t> shape) {
  return {std::move(name), "BF16", std::move(shape), {}, true, "aa"};
}

TEST(Spot, sees_one_unit_in_the_last_place_of_bfloat16_and_excuses_only_rounding) {
  const float one_up = 1.0F + 1.0F / 128;
  EXPECT_FALSE(leading(vector_of({1.0F}), "[" + std::to_string(one_up) + "]").mismatch.empty());
  EXPECT_FALSE(leading(vector_of({1.9921875F}), "[2.0]").mismatch.empty()) << "the smallest relative step";
  EXPECT_TRUE(leading(vector_of({1.0F / 3}, "F32"), "[0.333984375]").mismatch.empty())
      << "a third, rounded to bfloat16";
  EXPECT_FALSE(leading(vector_of({1.0F / 3}, "F32"), "[0.3359375]").mismatch.empty()) << "one further";
  EXPECT_TRUE(leading(vector_of({0.0F}), "[0.0]").mismatch.empty());
  EXPECT_FALSE(leading(vector_of({0.0F}), "[0.001]").mismatch.empty());
}

TEST(Spot, takes_nan_only_for_nan) {
  EXPECT_FALSE(leading(vector_of({1.0F}), "[null]").mismatch.empty());
  EXPECT_TRUE(leading(vector_of({std::nanf("")}), "[null]").mismatch.empty());
  EXPECT_FALSE(leading(vector_of({std::nanf("")}), "[1.0]").mismatch.empty());
}

TEST(Spot, compares_a_shard_row_by_row) {
  const TensorExpectation matrix{"m", "BF16", {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8}, true, ""};
  EXPECT_EQ(leading(matrix, "[[1,2,3,4],[5,6,7,8],[9,9,9,9]]").differing, 1U) << "whole";
  EXPECT_EQ(leading(matrix, "[[1,2],[5,6]]").differing, 1U) << "cut along the columns";
  EXPECT_EQ(leading(matrix, "[[1,2,3,4]]").differing, 1U) << "cut along the rows";
  EXPECT_FALSE(leading(matrix, "[[1,2],[3,4]]").mismatch.empty()) << "another shape, same order";
  EXPECT_EQ(rows_needed(matrix), 2U);
}

TEST(Spot, says_nothing_about_what_it_can_not_compare) {
  const TensorExpectation matrix{"m", "BF16", {3, 4}, {1, 2, 3, 4}, true, ""};
  for (const char* answer : {"[1,2,3,4]", "[]", "{}", "null", "[[[1,2]]]", R"([["a"]])", "[[]]"}) {
    const Findings findings = leading(matrix, answer);
    EXPECT_EQ(findings.compared, 0U) << answer;
    EXPECT_TRUE(findings.mismatch.empty()) << answer;
  }
  EXPECT_EQ(leading(vector_of({9.0F}, "F8_E4M3"), "[1.0]").compared, 0U);
}

TEST(Spot, proves_nothing_by_a_tensor_that_did_not_change_but_still_sees_it_wrong) {
  TensorExpectation same = vector_of({1.0F});
  same.differs_from_previous = false;
  EXPECT_EQ(leading(same, "[1.0]").compared, 1U);
  EXPECT_EQ(leading(same, "[1.0]").differing, 0U);
  EXPECT_FALSE(leading(same, "[2.0]").mismatch.empty());
}

TEST(Checksum, compares_by_the_name_after_the_last_colon) {
  const TensorExpectation norm = digest_of("model.norm.weight", {64});
  EXPECT_EQ(digests(norm, R"({"dp0:pp0:pcp0:tp0:model.norm.weight":"aa"})").differing, 1U);
  EXPECT_FALSE(digests(norm, R"({"dp0:pp0:pcp0:tp0:model.norm.weight":"bb"})").mismatch.empty());
  EXPECT_EQ(digests(norm, R"({"dp0:pp0:pcp0:tp0:x.model.norm.weight":"bb"})").compared, 0U);
}

TEST(Checksum, says_nothing_about_packed_fused_padded_and_sharded_tensors) {
  const TensorExpectation linear = digest_of("l.o_proj.weight", {64, 64});
  EXPECT_TRUE(digests(linear, std::string(R"({"tp0:l.o_proj.weight":")") + kNothing + "\"}").mismatch.empty());
  EXPECT_TRUE(digests(linear, R"({"tp0:l.qkv_proj.weight":"bb"})").mismatch.empty());
  EXPECT_TRUE(digests(linear, R"({"tp0:l.o_proj.weight":"bb","tp1:l.o_proj.weight":"cc"})").mismatch.empty());
  const TensorExpectation padded = digest_of("model.embed_tokens.weight", {50257, 64});
  EXPECT_TRUE(digests(padded, R"({"tp0:model.embed_tokens.weight":"bb"})").mismatch.empty());
  const TensorExpectation bias = digest_of("l.q_proj.bias", {64});
  EXPECT_TRUE(digests(bias, R"({"tp0:l.q_proj.bias":"bb","tp1:l.q_proj.bias":"bb"})").mismatch.empty());
}

TEST(Checksum, sees_a_replicated_tensor_that_is_wrong_on_all_ranks) {
  const TensorExpectation norm = digest_of("model.norm.weight", {64});
  EXPECT_EQ(digests(norm, R"({"tp0:model.norm.weight":"aa","tp1:model.norm.weight":"aa"})").differing, 1U);
  EXPECT_FALSE(digests(norm, R"({"tp0:model.norm.weight":"bb","tp1:model.norm.weight":"bb"})").mismatch.empty());
}

}  // namespace
}  // namespace weighlock
