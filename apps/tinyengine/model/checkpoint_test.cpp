#include "tinyengine/model/checkpoint.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tinyengine/model/llama.hpp"
#include "tinyengine/model/seeded.hpp"
#include "tinyengine/testing/directory.hpp"

namespace weighlock::tiny {
namespace {

using Kind = CheckpointFailure::Kind;
const ModelShape kShape;

std::map<std::string, std::string> by_name(const CheckpointContent& content) {
  std::map<std::string, std::string> bytes;
  for (const Tensor& tensor : content.tensors) bytes[tensor.name] = tensor.bytes;
  return bytes;
}

TEST(Checkpoint, two_shardings_of_one_model_hold_the_same_tensors) {
  const TestDirectory root;
  ASSERT_TRUE(write_checkpoint(root / "one", kShape, seeded_model(kShape, 4)));
  ASSERT_TRUE(write_checkpoint(root / "three", kShape, seeded_model(kShape, 4), 3));
  const auto one = read_checkpoint(root / "one"), three = read_checkpoint(root / "three");
  ASSERT_FALSE(one.failure);
  ASSERT_FALSE(three.failure);
  EXPECT_EQ(one.tensors.size(), tensor_specs(kShape).size());
  EXPECT_EQ(by_name(one), by_name(three));
  EXPECT_TRUE(std::filesystem::exists(root / "three/model-00003-of-00003.safetensors"));
  EXPECT_EQ(*read_shape(root / "three"), kShape);
}

TEST(Checkpoint, every_shard_holds_a_tensor_and_none_is_lost) {
  for (std::size_t shards = 1; shards <= 30; ++shards) {
    const auto parts = split_shards(seeded_model(kShape, 1), shards);
    std::size_t tensors = 0;
    for (const auto& part : parts) {
      EXPECT_FALSE(part.empty());
      tensors += part.size();
    }
    EXPECT_EQ(tensors, tensor_specs(kShape).size());
    EXPECT_EQ(parts.size(), std::min(shards, tensors));
  }
}

TEST(Checkpoint, each_damage_has_its_kind) {
  const TestDirectory root;
  EXPECT_EQ(read_checkpoint(root / "nowhere").failure->kind, Kind::missing_directory);
  std::filesystem::create_directory(root / "empty");
  EXPECT_EQ(read_checkpoint(root / "empty").failure->kind, Kind::no_weights);
  ASSERT_TRUE(write_checkpoint(root / "lost", kShape, seeded_model(kShape, 4), 2));
  std::filesystem::remove(root / "lost/model-00002-of-00002.safetensors");
  EXPECT_EQ(read_checkpoint(root / "lost").failure->kind, Kind::missing_shard);
  ASSERT_TRUE(write_checkpoint(root / "cut", kShape, seeded_model(kShape, 4), 2));
  const std::string second = root / "cut/model-00002-of-00002.safetensors";
  std::filesystem::resize_file(second, std::filesystem::file_size(second) * 6 / 10);
  const auto cut = read_checkpoint(root / "cut");
  EXPECT_EQ(cut.failure->kind, Kind::bad_file);
  EXPECT_FALSE(cut.tensors.empty()) << "what came before the damage was read";
}

TEST(Checkpoint, a_file_without_tensors_is_legal) {
  const TestDirectory root;
  ASSERT_TRUE(write_text(root / "model.safetensors", safetensors_bytes({})));
  const auto content = read_checkpoint(root.path());
  EXPECT_FALSE(content.failure);
  EXPECT_TRUE(content.tensors.empty());
}

TEST(Values, casts_round_to_nearest_even_and_keep_specials) {
  const float third = 1.0f / 3.0f, infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0f, -1.5f, third, 65504.0f, 1e-7f, infinity, -infinity, 5.9604645e-8f};
  const auto half = decode_values("F16", encode_values("F16", values).value()).value();
  EXPECT_EQ(half[1], -1.5f);
  EXPECT_NEAR(half[2], third, third / 1024);
  EXPECT_EQ(half[3], 65504.0f);
  EXPECT_NEAR(half[4], 1e-7f, 3e-8f);
  EXPECT_EQ(half[5], infinity);
  EXPECT_EQ(half[7], 5.9604645e-8f);
  const auto bfloat = decode_values("BF16", encode_values("BF16", {1.00390625f, 1.01171875f, NAN}).value()).value();
  EXPECT_EQ(bfloat[0], 1.0f) << "halfway, to the even neighbour below";
  EXPECT_EQ(bfloat[1], 1.015625f) << "halfway, to the even neighbour above";
  EXPECT_TRUE(std::isnan(bfloat[2]));
  EXPECT_FALSE(decode_values("I64", "12345678"));
}

TEST(Config, another_architecture_and_absurd_sizes_are_refused) {
  EXPECT_FALSE(parse_config(R"({"model_type":"mamba"})"));
  EXPECT_FALSE(parse_config(R"({"hidden_size":0})"));
  std::string text = config_text(kShape);
  EXPECT_EQ(*parse_config(text), kShape);
  text.replace(text.find("\"bfloat16\""), 10, "\"int4\"");
  EXPECT_FALSE(parse_config(text));
}

}  // namespace
}  // namespace weighlock::tiny
