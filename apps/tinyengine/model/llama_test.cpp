#include "tinyengine/model/llama.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "tinyengine/model/checkpoint.hpp"
#include "tinyengine/model/seeded.hpp"
#include "tinyengine/model/tokenizer.hpp"
#include "tinyengine/testing/directory.hpp"

namespace weighlock::tiny {
namespace {

std::shared_ptr<const Llama> serve(const ModelShape& shape, std::vector<Tensor> tensors,
                                   const std::string& source = "test") {
  ServedTensors served;
  for (Tensor& tensor : tensors) {
    const std::string name = tensor.name;
    served[name] = serve_tensor(std::move(tensor), shape.dtype, source).value();
  }
  auto model = Llama::make(shape, std::move(served));
  EXPECT_TRUE(model) << model.error().text();
  return *model;
}

std::vector<float> logits_after(const Llama& model, const std::vector<int>& tokens) {
  KvCache cache;
  std::vector<float> logits;
  for (const int token : tokens) model.forward(token, cache, &logits);
  return logits;
}

// One layer, one head of dimension 2, hidden 2: small enough to compute by hand.
TEST(Llama, a_hand_computed_case_comes_out) {
  const ModelShape shape{.hidden = 2,
                         .intermediate = 1,
                         .layers = 1,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = 2,
                         .vocabulary = 2,
                         .norm_epsilon = 0.0f,
                         .dtype = "F32"};
  const std::vector<std::vector<float>> values = {
      {1, 1, 1, -1},  // embedding: token 0 is (1,1), token 1 is (1,-1); both have a mean square of 1
      {1, 1},         // input norm
      {1, 0, 0, 1},   // q = identity
      {1, 0, 0, 1},   // k = identity
      {1, 0, 0, 1},   // v = identity
      {1, 0, 0, 1},   // o = identity
      {1, 1},         // attention norm
      {0, 0},         // gate: silu(0) = 0, so the feed-forward part adds nothing
      {1, 1},         // up
      {1, 1},         // down
      {1, 1},         // final norm
      {1, 0, 0, 1},   // lm_head = identity
  };
  const auto model = serve(shape, tensors_from(shape, values));
  // Alone, token 0 attends to itself: the state is (1,1) + (1,1) = (2,2), normalised (1,1).
  const auto first = logits_after(*model, {0});
  EXPECT_NEAR(first[0], 1.0, 1e-6);
  EXPECT_NEAR(first[1], 1.0, 1e-6);
  // Token 1 at position 1: its query (1,-1) and key are turned by 1 radian, token 0's key isn't.
  //   score with itself: |q|^2 / sqrt 2 = 2 / sqrt 2
  //   score with token 0: (cos 1 + sin 1, sin 1 - cos 1) . (1,1) / sqrt 2 = 2 sin 1 / sqrt 2
  const double to_self = std::exp(2.0 / std::sqrt(2.0)), to_first = std::exp(2.0 * std::sin(1.0) / std::sqrt(2.0));
  const double share = to_first / (to_self + to_first);
  const double x = 1.0 + 1.0, y = -1.0 + share - (1.0 - share);
  const double scale = std::sqrt((x * x + y * y) / 2.0);
  const auto second = logits_after(*model, {0, 1});
  EXPECT_NEAR(second[0], x / scale, 1e-5);
  EXPECT_NEAR(second[1], y / scale, 1e-5);
}

// Pins the pairs that are turned together: element i with element i + 2 of 4, as Hugging Face stores Llama, not i with
// i + 1.
TEST(Llama, rotary_positions_pair_the_halves_of_a_head) {
  const ModelShape shape{.hidden = 4,
                         .intermediate = 1,
                         .layers = 1,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = 4,
                         .vocabulary = 4,
                         .norm_epsilon = 0.0f,
                         .dtype = "F32"};
  const std::vector<float> one = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, ones = {1, 1, 1, 1}, zeros(4);
  const std::vector<float> tokens = {2, 0, 0, 0, 0, 0, 2, 0, 2, 0, 0, 0, 2, 0, 0, 0};  // rows with a mean square of 1
  const auto model =
      serve(shape, tensors_from(shape, {tokens, ones, one, one, one, one, ones, zeros, zeros, zeros, ones, one}));
  // Token 0 at position 1 looks at token 1 at position 0. Its query (2,0,0,0) has become (2 cos 1, 0, 2 sin 1, 0),
  // which meets the key (0,0,2,0): 4 sin 1 / sqrt 4. With itself: 4 / sqrt 4.
  const double share = std::exp(2.0 * std::sin(1.0)) / (std::exp(2.0 * std::sin(1.0)) + std::exp(2.0));
  const double x = 2.0 + 2.0 * (1.0 - share), z = 2.0 * share, scale = std::sqrt((x * x + z * z) / 4.0);
  const auto logits = logits_after(*model, {1, 0});
  EXPECT_NEAR(logits[0], x / scale, 1e-5);
  EXPECT_NEAR(logits[2], z / scale, 1e-5);
}

TEST(Llama, the_feed_forward_part_is_silu_of_gate_times_up) {
  const ModelShape shape{.hidden = 2,
                         .intermediate = 1,
                         .layers = 1,
                         .heads = 1,
                         .kv_heads = 1,
                         .head_dim = 2,
                         .vocabulary = 2,
                         .norm_epsilon = 0.0f,
                         .dtype = "F32"};
  const std::vector<std::vector<float>> values = {{1, 1, 1, -1}, {1, 1},       {1, 0, 0, 1}, {1, 0, 0, 1},
                                                  {0, 0, 0, 0},  {1, 0, 0, 1}, {1, 1},       {1, 0},
                                                  {0, 3},        {1, 0},       {1, 1},       {1, 0, 0, 1}};
  const auto model = serve(shape, tensors_from(shape, values));
  // v is zero, so attention adds nothing: the state stays (1,1). gate 1, up 3: the first element gets silu(1) * 3.
  const double x = 1.0 + 3.0 / (1.0 + std::exp(-1.0)), y = 1.0, scale = std::sqrt((x * x + y * y) / 2.0);
  const auto logits = logits_after(*model, {0});
  EXPECT_NEAR(logits[0], x / scale, 1e-5);
  EXPECT_NEAR(logits[1], y / scale, 1e-5);
}

TEST(Llama, probabilities_of_all_tokens_sum_to_one) {
  const ModelShape shape;
  const auto logits = logits_after(*serve(shape, seeded_model(shape, 3)), encode_text("weigh"));
  double sum = 0.0;
  for (int token = 0; token < 256; ++token) sum += std::exp(static_cast<double>(log_probability(logits, token)));
  EXPECT_NEAR(sum, 1.0, 1e-5);
  EXPECT_GE(log_probability(logits, greedy_token(logits)), log_probability(logits, 65));
}

TEST(Llama, a_continued_cache_gives_what_a_fresh_run_gives) {
  const ModelShape shape;
  const auto model = serve(shape, seeded_model(shape, 3));
  KvCache whole;
  for (const int token : {10, 20, 30, 40}) model->forward(token, whole, nullptr);
  KvCache part = whole.prefix(2, shape);
  std::vector<float> logits;
  model->forward(30, part, &logits);
  EXPECT_EQ(logits, logits_after(*model, {10, 20, 30}));
}

TEST(Llama, grouped_heads_equal_repeated_key_value_heads) {
  ModelShape grouped;
  grouped.layers = 1;
  ModelShape repeated = grouped;
  repeated.kv_heads = 2;
  auto tensors = seeded_model(grouped, 5);
  auto twice = tensors;
  for (Tensor& tensor : twice) {
    if (tensor.name.find("k_proj") == std::string::npos && tensor.name.find("v_proj") == std::string::npos) continue;
    tensor.bytes += tensor.bytes;
    tensor.shape[0] *= 2;
  }
  EXPECT_EQ(logits_after(*serve(grouped, std::move(tensors)), {7, 8, 9}),
            logits_after(*serve(repeated, std::move(twice)), {7, 8, 9}));
}

TEST(Llama, a_tied_head_is_the_embedding) {
  ModelShape tied, untied;
  tied.tied = true;
  auto tensors = seeded_model(tied, 5);
  auto with_head = tensors;
  with_head.push_back({"lm_head.weight", "BF16", tensors[0].shape, tensors[0].bytes});
  EXPECT_EQ(logits_after(*serve(tied, std::move(tensors)), {7, 8}),
            logits_after(*serve(untied, std::move(with_head)), {7, 8}));
}

TEST(Llama, a_missing_tensor_or_another_shape_is_refused_by_name) {
  const ModelShape shape;
  ServedTensors served;
  for (Tensor& tensor : seeded_model(shape, 1)) served[tensor.name] = serve_tensor(tensor, "BF16", "x").value();
  ServedTensors less = served;
  less.erase("model.norm.weight");
  const auto missing = Llama::make(shape, less);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("model.norm.weight"), std::string::npos);
  ModelShape other = shape;
  other.intermediate = 64;
  EXPECT_FALSE(Llama::make(other, served));
}

TEST(Llama, two_hundred_tokens_take_less_than_a_second) {
  const ModelShape shape;
  const auto model = serve(shape, seeded_model(shape, 1));
  KvCache cache;
  std::vector<float> logits;
  const auto start = std::chrono::steady_clock::now();
  int token = kBeginToken;
  for (int i = 0; i < 200; ++i) {
    model->forward(token, cache, &logits);
    token = greedy_token(logits);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  RecordProperty("tokens_per_second", static_cast<int>(200.0 / took.count()));
  EXPECT_LT(took.count(), 1.0);
}

TEST(Tokenizer, text_round_trips_and_strangers_are_unknown) {
  const std::string text = "a\tb\n ~Z\u00e9";
  EXPECT_EQ(decode_tokens(encode_text(text)), text);
  EXPECT_EQ(encode_text("\t\n !"), (std::vector<int>{3, 4, 5, 6}));
  EXPECT_EQ(encode_text("\u20ac\xff"), (std::vector<int>{kUnknownToken, kUnknownToken}));
}

}  // namespace
}  // namespace weighlock::tiny
