// `weighlock ckpt` on real directories, sealed by the store.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "run.hpp"
#include "weighlock/io/temporary_directory.hpp"
#include "weighlock/store/version_store.hpp"

namespace weighlock::cli {
namespace {

class Checkpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<WrittenHeader> header =
        write_safetensors_header({{"a.weight", Dtype::f32, {4}}, {"b.weight", Dtype::bf16, {2, 2}}});
    ASSERT_TRUE(header);
    std::ofstream(file("model.safetensors"), std::ios::binary) << header->bytes << std::string(header->data_bytes, 'x');
    std::ofstream(file("config.json")) << R"({"architectures":["LlamaForCausalLM"],"model_type":"llama"})";
  }

  std::string file(const std::string& name) { return directory() + "/" + name; }
  std::string directory() { return temporary_.path(); }

  void seal(bool with_digest) {
    RealFileSystem files;
    const VersionStore store(files);
    const Result<Inspection> inspection = store.inspect(directory(), {});
    ASSERT_TRUE(inspection) << inspection.error().text();
    SealInfo info;
    info.pair = "actor";
    info.version = 7;
    Result<Manifest> manifest = store.seal(directory(), *inspection, info);
    ASSERT_TRUE(manifest) << manifest.error().text();
    if (!with_digest) return;
    const Result<Digest> digest = store.digest(directory(), *inspection);
    ASSERT_TRUE(digest);
    ASSERT_TRUE(store.complete_manifest(*manifest, *digest));
  }

  int run(std::vector<std::string> arguments) {
    out_.str("");
    err_.str("");
    Terminal terminal{out_, err_, false};
    return cli::run(arguments, {[](std::string_view) { return std::nullopt; }, {}}, terminal,
                    [](const config::ServeOptions&) { return 0; });
  }

  TemporaryDirectory temporary_;
  std::ostringstream out_, err_;
};

TEST_F(Checkpoint, inspect_tells_tensors_and_files) {
  EXPECT_EQ(run({"ckpt", "inspect", directory()}), 0) << err_.str();
  EXPECT_NE(out_.str().find(": sound, not sealed\n  2 tensors (1 BF16, 1 F32), 24 B\n"), std::string::npos)
      << out_.str();
  EXPECT_NE(out_.str().find("model.safetensors"), std::string::npos);
}

TEST_F(Checkpoint, verify_compares_every_byte_with_the_seal) {
  seal(true);
  EXPECT_EQ(run({"ckpt", "verify", directory()}), 0) << err_.str();
  EXPECT_NE(out_.str().find("verified: every byte is as it was sealed"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("version 7 of pair actor"), std::string::npos);
}

TEST_F(Checkpoint, one_changed_byte_is_1_and_names_its_tensor) {
  seal(true);
  std::fstream data(file("model.safetensors"), std::ios::binary | std::ios::in | std::ios::out);
  data.seekp(-1, std::ios::end);
  data.put('y');
  data.close();
  EXPECT_EQ(run({"ckpt", "inspect", directory()}), 0) << "the structure is as it was";
  EXPECT_EQ(run({"ckpt", "verify", directory()}), 1);
  EXPECT_NE(err_.str().find("b.weight"), std::string::npos) << err_.str();
  EXPECT_EQ(run({"ckpt", "verify", directory(), "--json"}), 1);
  EXPECT_TRUE(out_.str().starts_with(R"({"error":{"code":"checkpoint_invalid")")) << out_.str();
}

TEST_F(Checkpoint, verify_says_when_there_is_nothing_to_compare_with) {
  EXPECT_EQ(run({"ckpt", "verify", directory()}), 0);
  EXPECT_NE(out_.str().find("nothing to compare"), std::string::npos) << out_.str();
  seal(false);
  EXPECT_EQ(run({"ckpt", "verify", directory()}), 0);
  EXPECT_NE(out_.str().find("sealed without digests"), std::string::npos) << out_.str();
}

TEST_F(Checkpoint, a_truncated_file_is_1) {
  std::filesystem::resize_file(file("model.safetensors"), std::filesystem::file_size(file("model.safetensors")) - 1);
  EXPECT_EQ(run({"ckpt", "inspect", directory()}), 1);
  EXPECT_NE(err_.str().find("model.safetensors"), std::string::npos) << err_.str();
}

TEST_F(Checkpoint, a_directory_that_is_not_there_is_1) {
  EXPECT_EQ(run({"ckpt", "inspect", file("none")}), 1);
  EXPECT_NE(err_.str().find("none"), std::string::npos);
}

TEST_F(Checkpoint, links_out_of_the_directory_are_followed_only_when_asked) {
  const TemporaryDirectory elsewhere;
  std::filesystem::rename(file("model.safetensors"), std::string(elsewhere.path()) + "/blob");
  std::filesystem::create_symlink(std::string(elsewhere.path()) + "/blob", file("model.safetensors"));
  EXPECT_EQ(run({"ckpt", "verify", directory()}), 1);
  EXPECT_EQ(run({"ckpt", "verify", directory(), "--follow"}), 0) << err_.str();
}

TEST_F(Checkpoint, json_has_the_digest_and_the_files) {
  seal(true);
  EXPECT_EQ(run({"ckpt", "verify", directory(), "--json"}), 0);
  const Result<json::value> told = parse_json(std::string_view(out_.str()).substr(0, out_.str().size() - 1), "out");
  ASSERT_TRUE(told);
  EXPECT_EQ(find_bool(*told, "compared"), true);
  EXPECT_EQ(find_int(*told, "version"), 7);
  EXPECT_EQ(find_string(*told, "digest")->size(), 32u);
}

}  // namespace
}  // namespace weighlock::cli
