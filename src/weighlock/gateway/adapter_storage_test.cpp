// Seals of LoRA adapters: real files, the real store.
#include <gtest/gtest.h>
#include <unistd.h>

#include "weighlock/gateway/version_storage.hpp"
#include "weighlock/store/checkpoint_fixture.hpp"

namespace weighlock {
namespace {

class AdapterStorage : public ::testing::Test {
 protected:
  static std::vector<TensorSpec> halves(const std::string& of, std::uint64_t rank) {
    return {{of + ".lora_A.weight", Dtype::bf16, {rank, 8}}, {of + ".lora_B.weight", Dtype::bf16, {8, rank}}};
  }
  AdapterStorage() { write_single(base); }

  // A saved adapter in an attempt's directory, as a Seal effect that names it.
  protocol::Seal saved(std::int64_t version, const std::string& of, std::uint64_t rank = 4) {
    protocol::Prepare prepare;
    prepare.update = "u";
    prepare.save_path = save_path;
    prepare.lineage = 1;
    prepare.version = version;
    prepare.attempt = version;
    protocol::Seal seal;
    seal.save_path = save_path;
    seal.directory = storage.prepare(prepare).value();
    seal.lineage = 1;
    seal.version = version;
    seal.attempt = version;
    seal.is_adapter = true;
    write_file(seal.directory + "/adapter_config.json",
               R"({"r":)" + std::to_string(rank) + R"(,"lora_alpha":8,"target_modules":["q_proj"]})");
    write_file(seal.directory + "/adapter_model.safetensors", weights_file(halves(of, rank)));
    return seal;
  }

  TemporaryDirectory root;
  const std::string base = root.path("base");
  const std::string save_path = root.path("adapters");
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj";
  RealFileSystem files;
  VersionStorage storage{files, "gateway-1", {}};
};

TEST_F(AdapterStorage, adapter_of_the_base_is_sealed_with_its_rank) {
  protocol::Seal seal = saved(1, module, 16);
  seal.adapter_base = base;
  const auto sealed = storage.seal(seal);
  ASSERT_TRUE(sealed) << sealed.error().text();
  EXPECT_EQ(sealed->adapter_rank, 16);
  EXPECT_EQ(sealed->adapter_base_reason, "");
  EXPECT_EQ(sealed->tensors, 2u);
  EXPECT_TRUE(storage.digest(seal.directory));
}

TEST_F(AdapterStorage, adapter_whose_names_are_not_the_bases_is_refused) {
  protocol::Seal seal = saved(1, "base_model.model.language_model.layers.0.self_attn.q_proj");
  seal.adapter_base = base;
  const auto sealed = storage.seal(seal);
  ASSERT_FALSE(sealed);
  EXPECT_NE(sealed.error().text().find("aren't in the base model"), std::string::npos) << sealed.error().text();
}

TEST_F(AdapterStorage, unknown_base_is_said_and_stops_nothing) {
  protocol::Seal seal = saved(1, module);
  seal.adapter_base_reason = "no worker told its model's path";
  auto sealed = storage.seal(seal);
  ASSERT_TRUE(sealed) << sealed.error().text();
  EXPECT_EQ(sealed->adapter_base_reason, "no worker told its model's path");
  seal = saved(2, module);
  seal.adapter_base = root.path("nowhere");
  sealed = storage.seal(seal);
  ASSERT_TRUE(sealed) << sealed.error().text();
  EXPECT_NE(sealed->adapter_base_reason.find("nowhere"), std::string::npos);
}

TEST_F(AdapterStorage, another_rank_in_the_same_run_is_a_changed_layout) {
  const protocol::Seal first = saved(1, module, 4);
  ASSERT_TRUE(storage.seal(first));
  protocol::Seal second = saved(2, module, 8);
  second.reference_directory = first.directory;
  const auto refused = storage.seal(second);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::checkpoint_layout_changed);
  second.allow_layout_change = true;
  EXPECT_TRUE(storage.seal(second));
}

TEST_F(AdapterStorage, full_model_in_place_of_an_adapter_is_refused) {
  protocol::Seal seal = saved(1, module);
  ASSERT_EQ(unlink((seal.directory + "/adapter_config.json").c_str()), 0);
  const auto sealed = storage.seal(seal);
  ASSERT_FALSE(sealed);
  EXPECT_NE(sealed.error().text().find("adapter_config.json"), std::string::npos) << sealed.error().text();
}

}  // namespace
}  // namespace weighlock
