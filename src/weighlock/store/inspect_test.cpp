// What trainers leave behind: sets that engines would load wrongly or in part must be refused before any engine is
// touched.
#include <sys/stat.h>

#include "weighlock/core/limits.hpp"
#include "weighlock/store/checkpoint_fixture.hpp"

namespace weighlock {
namespace {

namespace fs = std::filesystem;

using InspectTest = StoreTest;

TEST_F(InspectTest, single_file_and_sharded_versions_are_accepted) {
  write_single(version);
  const auto single = inspect(version);
  ASSERT_TRUE(single) << single.error().text();
  EXPECT_EQ(single->layout.size(), 5u);
  EXPECT_EQ(single->tensor_bytes, 2u * (128 + 8 + 64 + 8 + 128));
  EXPECT_EQ(single->files.size(), 2u);
  EXPECT_TRUE(single->warnings.empty());
  EXPECT_EQ(single->tied, TiedHead::no);
  const std::string sharded = root.path("sharded");
  write_sharded(sharded);
  const auto inspected = inspect(sharded);
  ASSERT_TRUE(inspected) << inspected.error().text();
  EXPECT_EQ(inspected->layout.at("b").shape, (std::vector<std::uint64_t>{2, 2}));
  EXPECT_EQ(inspected->find_tensor("c").file->name, kShard2);
  EXPECT_EQ(inspected->find_tensor("d").file, nullptr);
}

TEST_F(InspectTest, shard_that_the_index_names_and_nobody_wrote_is_refused_by_name) {
  write_sharded(version);
  fs::remove(version + "/" + kShard2);
  expect_refused(version, {"checkpoint_missing", kShard2, "1 shard that isn't there"});
}

TEST_F(InspectTest, tensor_that_the_index_names_and_no_shard_holds_is_refused) {
  write_sharded(version);
  write_index(version, {{"a", kShard1}, {"b", kShard1}, {"c", kShard2}, {"d", kShard2}}, 40);
  expect_refused(version, {"checkpoint_missing", "'d'"});
}

TEST_F(InspectTest, tensor_that_the_index_does_not_name_is_refused) {
  write_sharded(version);
  write_index(version, {{"a", kShard1}, {"c", kShard2}}, 40);
  expect_refused(version, {"checkpoint_invalid", "tensor 'b'", "isn't in model.safetensors.index.json"});
}

TEST_F(InspectTest, tensor_in_another_shard_than_the_index_says_is_refused) {
  write_sharded(version);
  write_index(version, {{"a", kShard1}, {"b", kShard2}, {"c", kShard2}}, 40);
  expect_refused(version, {"checkpoint_invalid", "tensor 'b' lies in", "says in"});
}

TEST_F(InspectTest, tensor_in_two_shards_is_refused) {
  write_sharded(version);
  write_file(version + "/" + kShard2, weights_file({{"c", Dtype::bf16, {8}}, {"a", Dtype::bf16, {4}}}));
  expect_refused(version, {"checkpoint_invalid", "'a'"});
}

TEST_F(InspectTest, index_with_file_names_that_lead_elsewhere_is_refused) {
  write_sharded(version);
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "", "..", ".hidden.safetensors", "model.bin"}) {
    write_index(version, {{"a", name}}, 8);
    expect_refused(version, {"checkpoint_invalid", "isn't the plain name"});
  }
  for (const char* text : {"{}", "[]", "{", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":{"a":1}})",
                           R"({"weight_map":{"a":"m.safetensors","a":"m.safetensors"}})"}) {
    write_file(version + "/model.safetensors.index.json", text);
    expect_refused(version, {"checkpoint_invalid"});
  }
}

TEST_F(InspectTest, two_sets_are_refused_with_and_without_index) {
  write_single(version);
  write_file(version + "/consolidated.safetensors", weights_file(tiny_tensors()));
  expect_refused(version, {"checkpoint_invalid", "2 weights files and no model.safetensors.index.json"});
  const std::string indexed = root.path("indexed");
  write_sharded(indexed);
  write_file(indexed + "/consolidated.safetensors", weights_file(tiny_tensors()));
  expect_refused(indexed, {"checkpoint_invalid", "'consolidated.safetensors'", "doesn't name"});
  fs::remove(indexed + "/consolidated.safetensors");
  write_file(indexed + "/consolidated.safetensors.index.json", "{}");
  expect_refused(indexed, {"checkpoint_invalid", "consolidated.safetensors.index.json"});
}

TEST_F(InspectTest, one_of_several_without_an_index_is_refused) {
  write_single(version);
  fs::rename(version + "/model.safetensors", version + "/" + kShard1);
  expect_refused(version, {"checkpoint_missing", "named as one of several"});
}

TEST_F(InspectTest, cut_and_grown_files_are_refused_with_both_sizes) {
  const std::string whole = weights_file(tiny_tensors());
  const std::string file = version + "/model.safetensors";
  write_single(version);
  for (const std::string& bytes :
       {whole.substr(0, whole.size() - 1), whole + "x", whole + std::string(1 << 20, '\0')}) {
    write_file(file, bytes);
    expect_refused(version, {"checkpoint_invalid", file, std::to_string(whole.size()), std::to_string(bytes.size())});
  }
  for (const std::size_t size : {0u, 7u, 8u, 100u}) {
    write_file(file, whole.substr(0, size));
    expect_refused(version, {"checkpoint_invalid", file, "cut short"});
  }
}

TEST_F(InspectTest, config_must_be_there_and_be_an_object) {
  write_single(version);
  for (const char* text : {"", "[]", "{", "1", "{\"a\":1,\"a\":2}"}) {
    write_file(version + "/config.json", text);
    expect_refused(version, {"checkpoint_invalid", "config.json"});
  }
  write_file(version + "/config.json", R"({"limit": [0.0, Infinity, -Infinity, NaN], "text": "say \"Infinity\" NaN"})");
  EXPECT_EQ(refusal(version), "accepted");
  fs::remove(version + "/config.json");
  expect_refused(version, {"checkpoint_missing", "'config.json'"});
}

TEST_F(InspectTest, index_and_config_beyond_their_limits_are_refused_unread) {
  write_single(version);
  fs::resize_file(version + "/config.json", limits::kConfigBytesMax + 1);  // holes, no bytes on the disk
  expect_refused(version, {"checkpoint_invalid", "config.json", std::to_string(limits::kConfigBytesMax)});
  write_sharded(version);
  fs::resize_file(version + "/model.safetensors.index.json", limits::kIndexBytesMax + 1);
  expect_refused(version, {"model.safetensors.index.json", std::to_string(limits::kIndexBytesMax)});
}

TEST_F(InspectTest, files_that_a_setting_requires_must_be_there) {
  write_single(version);
  InspectOptions options;
  options.required_files = {"tokenizer.json"};
  expect_refused(version, {"checkpoint_missing", "'tokenizer.json'"}, options);
  write_file(version + "/tokenizer.json", "{}");
  EXPECT_EQ(refusal(version, options), "accepted");
}

TEST_F(InspectTest, pickled_weights_alone_are_refused_and_beside_others_are_reported) {
  write_file(version + "/config.json", "{}");
  write_file(version + "/pytorch_model.bin", "x");
  expect_refused(version, {"checkpoint_invalid", "only pickled weights", "pytorch_model.bin"});
  write_single(version);
  EXPECT_NE(inspect(version)->warnings.at(0).find("pytorch_model.bin"), std::string::npos);
}

TEST_F(InspectTest, version_without_tensors_is_refused) {
  write_single(version, {});
  expect_refused(version, {"checkpoint_invalid", "no tensors"});
  fs::remove(version + "/model.safetensors");
  expect_refused(version, {"checkpoint_missing", "no .safetensors file"});
}

TEST_F(InspectTest, what_is_not_a_regular_file_is_refused) {
  write_single(version);
  ASSERT_EQ(::mkfifo((version + "/pipe").c_str(), 0600), 0);
  expect_refused(version, {"checkpoint_invalid", "pipe' is not a regular file"});
  fs::remove(version + "/pipe");
  fs::remove(version + "/model.safetensors");
  fs::create_directory_symlink(".", version + "/model.safetensors");
  expect_refused(version, {"checkpoint_invalid", "not a regular file"});
}

TEST_F(InspectTest, wrong_total_size_and_unknown_format_are_reported_only) {
  write_sharded(version);
  write_index(version, {{"a", kShard1}, {"b", kShard1}, {"c", kShard2}}, 41);
  fs::create_directory(version + "/optimizer");
  const auto inspected = inspect(version);
  ASSERT_TRUE(inspected) << inspected.error().text();
  ASSERT_EQ(inspected->warnings.size(), 2u);
  EXPECT_NE(inspected->warnings[0].find("optimizer"), std::string::npos);
  EXPECT_NE(inspected->warnings[1].find("says 41 bytes in total, the tensors have 40"), std::string::npos);
}

TEST_F(InspectTest, links_out_of_the_root_are_followed_only_on_demand) {
  write_single(root.path("blobs"));
  fs::create_directory(version);
  fs::create_symlink("../blobs/model.safetensors", version + "/model.safetensors");
  fs::create_symlink("../blobs/config.json", version + "/config.json");
  expect_refused(version, {"checkpoint_invalid", "symbolic link that leads out"});
  InspectOptions wider;
  wider.reach.root = root.path();
  EXPECT_EQ(refusal(version, wider), "accepted");
  InspectOptions follow;
  follow.reach.follow = Follow::anywhere;
  EXPECT_EQ(refusal(version, follow), "accepted");
  fs::remove(version + "/config.json");
  fs::create_symlink("/etc/hostname", version + "/config.json");
  expect_refused(version, {"checkpoint_invalid", "symbolic link that leads out"}, wider);
}

TEST_F(InspectTest, changed_layout_is_refused_with_its_differences_unless_it_is_allowed) {
  write_single(version);
  InspectOptions options;
  options.reference = inspect(version)->layout;
  EXPECT_EQ(refusal(version, options), "accepted");
  write_single(version, {{"model.norm.weight", Dtype::bf16, {9}}, {"new", Dtype::bf16, {1}}});
  expect_refused(version,
                 {"checkpoint_layout_changed", "'model.norm.weight' is BF16 [9], expected BF16 [8]", "'new' (BF16 [1])",
                  "'lm_head.weight' is missing"},
                 options);
  EXPECT_EQ(sleeps, 0) << "a changed layout doesn't mend with time";
  options.allow_layout_change = true;
  EXPECT_NE(inspect(version, options)->warnings.at(0).find("layout changed"), std::string::npos);
}

TEST_F(InspectTest, late_files_are_waited_for_within_the_bound) {
  write_sharded(version);
  const std::string shard = version + "/" + kShard2;
  const std::string bytes = read_file(shard);
  fs::remove(shard);
  on_sleep = [&] {
    if (sleeps == 1) write_file(shard, bytes.substr(0, 30));  // its size shows late too
    if (sleeps == 3) write_file(shard, bytes);
  };
  EXPECT_EQ(refusal(version), "accepted");
  EXPECT_EQ(sleeps, 3);
  fs::remove(shard);
  on_sleep = nullptr;
  const Instant before = now;
  expect_refused(version, {"checkpoint_missing"});
  EXPECT_EQ(now - before, Milliseconds{2000});
}

TEST_F(InspectTest, invisible_directory_is_diagnosed) {
  expect_refused(root.path("gone/weight_update_v1"),
                 {"storage_not_visible", "host ", "uid ", "'" + root.path("gone") + "' doesn't exist"});
  write_single(version);
  bool looked = false;  // the diagnosis looks at the file first, which needs no permission on it
  files.on_call = [&](const char* call, const std::string& name) {
    if (name == version + "/model.safetensors") return std::exchange(looked, true) ? EACCES : 0;
    return name == "model.safetensors" && std::string_view(call) == "open_beneath" ? EACCES : 0;
  };
  expect_refused(version, {"storage_not_visible", "uid ", "EACCES"});
}

TEST_F(InspectTest, stale_handles_are_looked_at_again) {
  write_single(version);
  files.on_call = [&](const char*, const std::string& name) {
    return name == "config.json" && sleeps < 2 ? ESTALE : 0;
  };
  EXPECT_EQ(refusal(version), "accepted");
  EXPECT_EQ(sleeps, 2);
}

// Adapters.
class AdapterTest : public StoreTest {
 protected:
  void write_adapter(const std::string& config, const std::vector<TensorSpec>& tensors) {
    write_file(version + "/adapter_config.json", config);
    write_file(version + "/adapter_model.safetensors", weights_file(tensors));
  }
  static std::vector<TensorSpec> halves(const std::string& module, std::uint64_t rank) {
    return {{module + ".lora_A.weight", Dtype::bf16, {rank, 8}}, {module + ".lora_B.weight", Dtype::bf16, {8, rank}}};
  }
  AdapterTest() { options.is_lora = true; }
  InspectOptions options;
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj";
};

TEST_F(AdapterTest, adapter_whose_config_and_tensors_agree_is_accepted) {
  for (const char* targets : {R"("all-linear")", R"([".*proj"])", R"(["q_proj"])", "null"}) {
    write_adapter(std::string(R"({"r":4,"lora_alpha":8,"target_modules":)") + targets + "}", halves(module, 4));
    EXPECT_EQ(refusal(version, options), "accepted") << targets;
  }
}

TEST_F(AdapterTest, rank_is_compared_with_tensors_and_limit) {
  write_adapter(R"({"r":8})", halves(module, 16));
  expect_refused(version, {"have rank 16, adapter_config.json says 8"}, options);
  for (const char* config : {R"({"r":0})", R"({"r":-1})", R"({})", R"({"r":"8"})"}) {
    write_adapter(config, halves(module, 8));
    expect_refused(version, {"checkpoint_invalid", "'r' is"}, options);
  }
  options.lora_rank_max = 16;
  write_adapter(R"({"r":64})", halves(module, 64));
  expect_refused(version, {"'r' is 64, and the engines' limit is 16"}, options);
}

TEST_F(AdapterTest, what_engines_would_leave_out_is_refused) {
  write_adapter(R"({"r":4,"modules_to_save":["lm_head"]})", halves(module, 4));
  expect_refused(version, {"modules_to_save"}, options);
  write_adapter(R"({"r":4,"use_dora":true})", halves(module, 4));
  expect_refused(version, {"DoRA"}, options);
  write_adapter(R"({"r":4})", {{"lm_head.weight", Dtype::bf16, {8}}});
  expect_refused(version, {"is no lora_A or lora_B"}, options);
  write_adapter(R"({"r":4})", {{module + ".lora_A.weight", Dtype::bf16, {4, 8}}});
  expect_refused(version, {"has no lora_B"}, options);
  write_adapter(R"({"r":4})", {});
  expect_refused(version, {"no tensors"}, options);
}

TEST_F(AdapterTest, names_must_belong_to_the_base) {
  write_adapter(R"({"r":4})", halves(module, 4));
  options.lora_base = Layout{{"language_model.model.layers.0.self_attn.q_proj.weight", {Dtype::bf16, {8, 8}, 128}}};
  expect_refused(version, {"1 of the adapter's 1 modules aren't in the base model"}, options);
  options.lora_base = Layout{{"model.layers.0.self_attn.q_proj.weight", {Dtype::bf16, {8, 8}, 128}}};
  EXPECT_EQ(refusal(version, options), "accepted");
}

TEST_F(AdapterTest, both_files_must_be_there_and_no_other_weights) {
  write_adapter(R"({"r":4})", halves(module, 4));
  write_file(version + "/model.safetensors", weights_file({}));
  expect_refused(version, {"weights beside adapter_model.safetensors"}, options);
  fs::remove(version + "/model.safetensors");
  fs::remove(version + "/adapter_model.safetensors");
  expect_refused(version, {"checkpoint_missing", "adapter_model.safetensors"}, options);
  fs::remove(version + "/adapter_config.json");
  expect_refused(version, {"checkpoint_missing", "adapter_config.json"}, options);
}

}  // namespace
}  // namespace weighlock
