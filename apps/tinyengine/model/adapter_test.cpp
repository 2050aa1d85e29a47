#include "tinyengine/model/adapter.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tinyengine/model/checkpoint.hpp"
#include "tinyengine/model/seeded.hpp"
#include "tinyengine/testing/directory.hpp"

namespace weighlock::tiny {
namespace {

using Kind = AdapterFailure::Kind;

std::shared_ptr<const Llama> base_model(const ModelShape& shape) {
  ServedTensors served;
  for (Tensor& tensor : seeded_model(shape, 1)) {
    const std::string name = tensor.name;
    served[name] = serve_tensor(std::move(tensor), shape.dtype, "test").value();
  }
  return Llama::make(shape, std::move(served)).value();
}

class AdapterTest : public testing::Test {
 protected:
  std::string write(const AdapterConfig& config, const std::vector<Tensor>& tensors) {
    const std::string directory = root_ / std::to_string(++count_);
    EXPECT_TRUE(write_adapter(directory, config, tensors));
    return directory;
  }
  std::shared_ptr<const Adapter> read(const std::string& directory, AdapterNames names = AdapterNames::exact) {
    const AdapterContent content = read_adapter(directory, shape, names);
    EXPECT_NE(content.adapter, nullptr) << content.failure.text;
    return content.adapter;
  }

  const ModelShape shape;
  const AdapterConfig good;

 private:
  TestDirectory root_;
  int count_ = 0;
};

TEST_F(AdapterTest, merged_weight_is_the_base_and_the_scaled_product) {
  AdapterConfig config;
  config.rank = 2;
  config.alpha = 6.0;
  config.target_modules = {"v_proj"};
  const auto base = base_model(shape);
  for (const bool rslora : {false, true}) {
    config.rslora = rslora;
    const auto adapter = read(write(config, seeded_adapter(shape, config, 7)));
    ASSERT_EQ(adapter->modules.size(), shape.layers);
    const auto changed = merged(*base, *adapter);
    const std::string weight = "model.layers.1.self_attn.v_proj.weight";
    const AdapterModule& module = adapter->modules.at(weight);
    const double scale = 6.0 / (rslora ? std::sqrt(2.0) : 2.0);
    const auto& before = base->tensors().at(weight)->values;
    const auto& after = changed->tensors().at(weight)->values;
    for (const std::size_t row : {0, 31}) {
      for (const std::size_t column : {0, 5, 63}) {
        const double product = static_cast<double>(module.up[row * 2]) * module.down[column] +
                               static_cast<double>(module.up[row * 2 + 1]) * module.down[64 + column];
        EXPECT_NEAR(after[row * 64 + column], before[row * 64 + column] + scale * product, 1e-5);
      }
    }
    EXPECT_EQ(changed->tensors().at("model.norm.weight"), base->tensors().at("model.norm.weight")) << "shared";
    EXPECT_NE(changed->tensors().at(weight), base->tensors().at(weight));
  }
}

TEST_F(AdapterTest, names_are_found_whole_or_by_their_layer) {
  std::vector<Tensor> tensors = seeded_adapter(shape, good, 1);
  EXPECT_TRUE(read(write(good, tensors))->unplaced.empty());
  for (Tensor& tensor : tensors) tensor.name = "base_model.model.model.language_" + tensor.name.substr(17);
  const std::string renamed = write(good, tensors);
  EXPECT_TRUE(read(renamed)->modules.empty());
  EXPECT_EQ(read(renamed)->unplaced.size(), tensors.size());
  EXPECT_EQ(read(renamed, AdapterNames::by_layer)->modules.size(), tensors.size() / 2);
}

TEST_F(AdapterTest, ranks_other_than_the_config_says_are_told) {
  AdapterConfig greater;
  greater.rank = 8;
  EXPECT_FALSE(read(write(good, seeded_adapter(shape, good, 1)))->other_ranks);
  EXPECT_TRUE(read(write(good, seeded_adapter(shape, greater, 1)))->other_ranks);
}

TEST_F(AdapterTest, what_cannot_be_read_is_told_by_its_kind) {
  const auto kind = [&](const std::string& directory) {
    const AdapterContent content = read_adapter(directory, shape, AdapterNames::exact);
    EXPECT_EQ(content.adapter, nullptr);
    return content.failure.kind;
  };
  const std::string directory = write(good, seeded_adapter(shape, good, 1));
  EXPECT_EQ(kind(directory + "/nowhere"), Kind::missing_directory);
  std::filesystem::resize_file(directory + "/adapter_model.safetensors", 100);
  EXPECT_EQ(kind(directory), Kind::bad_weights);
  std::filesystem::remove(directory + "/adapter_model.safetensors");
  EXPECT_EQ(kind(directory), Kind::no_weights);
  EXPECT_TRUE(write_text(directory + "/adapter_config.json", R"({"lora_alpha":8})"));
  EXPECT_EQ(kind(directory), Kind::bad_config);
  std::filesystem::remove(directory + "/adapter_config.json");
  EXPECT_EQ(kind(directory), Kind::no_config);
}

TEST_F(AdapterTest, config_is_read_as_it_was_written) {
  AdapterConfig config;
  config.rank = 3;
  config.modules_to_save = {"lm_head"};
  config.dora = true;
  const AdapterContent content = read_adapter(write(config, {}), shape, AdapterNames::exact);
  EXPECT_EQ(content.config.rank, 3U);
  EXPECT_EQ(content.config.target_modules, good.target_modules);
  EXPECT_EQ(content.config.modules_to_save, config.modules_to_save);
  EXPECT_TRUE(content.config.dora);
  EXPECT_FALSE(content.config.rslora);
}

}  // namespace
}  // namespace weighlock::tiny
