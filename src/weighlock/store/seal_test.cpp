// A manifest that is there is right, whatever failed and whoever was killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weighlock/store/checkpoint_fixture.hpp"

namespace weighlock {
namespace {

namespace fs = std::filesystem;

class SealTest : public StoreTest {
 protected:
  const SealInfo seal_info{"actor", 2, 42, 3, "gateway-1", false, ""};
  const std::string manifest_path = version + "/" + std::string(kManifestName);

  std::string verified() {
    const Status verified = store.verify_sealed(version);
    return verified ? "sealed" : verified.error().text();
  }
  int remove_temporaries() {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(version)) {
      if (entry.path().extension() == ".tmp") found.push_back(entry.path());
    }
    for (const fs::path& path : found) fs::remove(path);
    return static_cast<int>(found.size());
  }
  void expect_verify(const std::vector<std::string>& words) {
    const std::string text = verified();
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text << "\nwanted: " << word;
  }
};

TEST_F(SealTest, sealed_version_verifies_and_its_manifest_comes_back_whole) {
  write_sharded(version);
  const Manifest sealed = seal(version);
  EXPECT_EQ(verified(), "sealed");
  const auto loaded = store.load_manifest(version);
  ASSERT_TRUE(loaded) << loaded.error().text();
  EXPECT_EQ(loaded->files, sealed.files);
  EXPECT_EQ(loaded->tensors, sealed.tensors);
  EXPECT_EQ(loaded->layout(), inspect(version)->layout);
  EXPECT_EQ(std::tie(loaded->pair, loaded->lineage, loaded->version, loaded->attempt, loaded->writer),
            std::make_tuple("actor", 2, 42, 3, "gateway-1"));
  EXPECT_EQ(loaded->tensor_bytes, 40u);
  EXPECT_EQ(loaded->location, manifest_path);
}

TEST_F(SealTest, directory_without_manifest_is_not_sealed) {
  write_sharded(version);
  expect_verify({"is not sealed", manifest_path});
}

TEST_F(SealTest, manifest_with_a_missing_shard_is_refused_by_name) {
  write_sharded(version);
  seal(version);
  fs::remove(version + "/" + kShard2);
  expect_verify({"the manifest names", kShard2});
}

TEST_F(SealTest, manifest_with_a_shard_of_another_size_is_refused_with_both_sizes) {
  write_sharded(version);
  seal(version);
  const std::size_t size = fs::file_size(version + "/" + kShard1);
  write_file(version + "/" + kShard1, "");
  expect_verify({kShard1, "has 0 bytes, expected " + std::to_string(size)});
}

TEST_F(SealTest, manifest_with_a_changed_header_is_refused) {
  write_sharded(version);
  seal(version);
  std::string bytes = read_file(version + "/" + kShard1);
  bytes[bytes.find("\"a\"") + 1] = 'x';
  write_file(version + "/" + kShard1, bytes);
  expect_verify({kShard1, "the manifest says"});
}

TEST_F(SealTest, weights_that_came_after_the_seal_are_refused) {
  write_sharded(version);
  seal(version);
  write_file(version + "/model.safetensors", weights_file({}));
  expect_verify({"model.safetensors", "came after the seal"});
}

TEST_F(SealTest, damaged_manifests_are_refused) {
  write_sharded(version);
  seal(version);
  const std::string good = read_file(manifest_path);
  for (std::size_t size = 0; size + 2 < good.size(); size += 7) {
    write_file(manifest_path, good.substr(0, size));
    EXPECT_FALSE(store.load_manifest(version)) << size;
  }
  for (const char* text : {"{}", "[]", R"({"format":"weighlock.manifest","format_version":2})"}) {
    write_file(manifest_path, text);
    EXPECT_FALSE(store.load_manifest(version)) << text;
  }
}

TEST_F(SealTest, sealing_again_gives_the_same_seal_and_never_another) {
  write_single(version);
  const Inspection inspection = *inspect(version);
  ASSERT_TRUE(store.seal(version, inspection, seal_info));
  const std::string text = read_file(manifest_path);
  EXPECT_TRUE(store.seal(version, inspection, seal_info));
  EXPECT_EQ(read_file(manifest_path), text);
  SealInfo other = seal_info;
  other.attempt = 4;
  EXPECT_EQ(store.seal(version, inspection, other).error().code, ErrorCode::conflict);
  EXPECT_EQ(read_file(manifest_path), text);
}

TEST_F(SealTest, file_that_changed_since_its_inspection_is_not_sealed) {
  write_single(version);
  const Inspection inspection = *inspect(version);
  write_file(version + "/config.json", "{ }");
  EXPECT_FALSE(store.seal(version, inspection, seal_info));
  EXPECT_FALSE(fs::exists(manifest_path));
}

TEST_F(SealTest, manifest_is_written_after_every_file_was_synced) {
  write_sharded(version);
  const Inspection inspection = *inspect(version);
  files.log.clear();
  ASSERT_TRUE(store.seal(version, inspection, seal_info));
  const auto first_write = std::find(files.log.begin(), files.log.end(), "write_at");
  EXPECT_EQ(std::count(files.log.begin(), first_write, "sync"), 5) << "four files and their directory";
  const auto renamed = std::find(first_write, files.log.end(), "rename");
  EXPECT_EQ(std::count(first_write, renamed, "sync"), 1) << "the manifest, before its name";
  EXPECT_EQ(std::count(renamed, files.log.end(), "sync"), 1) << "the directory, after it";
}

// Every call of a seal fails once, or fails from there on, in every way that storage fails.
TEST_F(SealTest, seal_that_fails_anywhere_leaves_no_manifest_or_a_right_one) {
  write_sharded(version);
  const Inspection inspection = *inspect(version);
  std::size_t failures = 0;
  for (const bool lasting : {false, true}) {
    for (const int failure : {ENOSPC, EIO, EDQUOT, ESTALE, EROFS}) {
      for (std::size_t call = 0;; ++call) {
        lasting ? files.fail_from(call, failure) : files.fail_at(call, failure);
        const auto sealed = store.seal(version, inspection, seal_info);
        const bool fired = files.fired();
        files.fail_at(1'000'000, 0);
        const auto loaded = store.load_manifest(version);
        EXPECT_TRUE(!loaded || verified() == "sealed") << verified();
        EXPECT_TRUE(loaded || loaded.error().code == ErrorCode::checkpoint_missing);
        EXPECT_TRUE(!sealed || loaded);
        EXPECT_TRUE(sealed || lasting || !loaded) << "call " << call;
        failures += sealed ? 0 : 1;
        EXPECT_TRUE(remove_temporaries() == 0 || lasting) << "call " << call;
        fs::remove(manifest_path);
        if (!fired) break;
        ASSERT_LT(call, 200u);
      }
    }
  }
  EXPECT_GT(failures, 200u);
}

TEST_F(SealTest, short_writes_give_a_whole_manifest) {
  write_sharded(version);
  files.write_bytes_max = 5;
  seal(version);
  EXPECT_EQ(verified(), "sealed");
}

TEST_F(SealTest, writer_killed_between_shards_leaves_an_unsealed_directory) {
  const pid_t child = ::fork();
  if (child == 0) {
    write_file(version + "/config.json", "{}");
    write_index(version, {{"a", kShard1}, {"c", kShard2}}, 24);
    write_file(version + "/" + kShard1, weights_file({{"a", Dtype::bf16, {4}}}));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  expect_verify({"is not sealed"});
  expect_refused(version, {"checkpoint_missing", kShard2});
}

TEST_F(SealTest, foreign_directory_is_never_written_into) {
  write_single(version);
  const Inspection inspection = *inspect(version);
  SealInfo foreign = seal_info;
  foreign.foreign = true;
  const auto nowhere = store.seal(version, inspection, foreign);
  ASSERT_TRUE(nowhere);
  EXPECT_EQ(nowhere->location, "");
  const std::string save_path = root.path("w");
  fs::create_directory(save_path);
  foreign.save_path = save_path;
  const auto sealed = store.seal(version, inspection, foreign);
  ASSERT_TRUE(sealed) << sealed.error().text();
  EXPECT_TRUE(sealed->location.starts_with(save_path + "/.weighlock/manifests/weight_update_v42-")) << sealed->location;
  EXPECT_EQ(std::distance(fs::directory_iterator(version), {}), 2);
  EXPECT_EQ(store.load_foreign_manifest(save_path, version)->directory, version);
  EXPECT_FALSE(store.load_foreign_manifest(save_path, root.path("other")));
  EXPECT_TRUE(store.verify_against(*sealed, version));
  ASSERT_TRUE(store.complete_manifest(*sealed, *store.digest(version, inspection)));
  EXPECT_NE(store.load_foreign_manifest(save_path, version)->digest, "");
  write_file(version + "/config.json", "");
  EXPECT_FALSE(store.verify_against(*sealed, version));
}

}  // namespace
}  // namespace weighlock
