// A version that was sealed before, looked at again before a rollback: real files, and every call of it made to fail.
#include <gtest/gtest.h>

#include "weighlock/gateway/version_storage.hpp"
#include "weighlock/store/checkpoint_fixture.hpp"

namespace weighlock {
namespace {

class StoredVersionTest : public ::testing::Test {
 protected:
  // Version `version` saved, sealed and digested; what a rollback to it asks.
  protocol::Seal sealed(std::int64_t version) {
    VersionStorage earlier(real, "gateway-1", {});
    protocol::Prepare prepare;
    prepare.save_path = save_path;
    prepare.lineage = 1;
    prepare.version = version;
    prepare.attempt = version;
    protocol::Seal seal;
    seal.save_path = save_path;
    seal.directory = earlier.prepare(prepare).value();
    seal.lineage = 1;
    seal.version = version;
    seal.attempt = version;
    seal.digest_now = true;
    write_single(seal.directory, tiny_tensors(), static_cast<unsigned>(version));
    const auto made = earlier.seal(seal);
    EXPECT_TRUE(made) << made.error().text();
    seal.stored = true;
    seal.digest = made->digest;
    seal.allow_layout_change = true;
    return seal;
  }
  static std::string weights(const protocol::Seal& seal) { return seal.directory + "/model.safetensors"; }
  static Error refusal(const Result<protocol::SealedVersion>& result) {
    return result ? Error{ErrorCode::internal, "it was taken", nullptr} : result.error();
  }

  TemporaryDirectory root;
  const std::string save_path = root.path("w");
  RealFileSystem real;
  FaultyFileSystem files{real};
  VersionStorage storage{files, "gateway-2", {}};
};

TEST_F(StoredVersionTest, what_is_as_it_was_is_taken_with_its_size_and_digest_and_nothing_is_written) {
  protocol::Seal seal = sealed(1);
  seal.reference_directory = sealed(2).directory;
  const auto looked = storage.seal(seal);
  ASSERT_TRUE(looked) << looked.error().text();
  EXPECT_EQ(looked->digest, seal.digest);
  EXPECT_GT(looked->bytes, 0u);
  EXPECT_TRUE(looked->compared);
  EXPECT_FALSE(looked->layout_changed);
  for (const std::string& call : files.log)
    EXPECT_TRUE(call != "write_at" && call != "rename" && call != "remove" && call != "make_directory") << call;
  EXPECT_TRUE(storage.expectations_of(seal.directory));
}

TEST_F(StoredVersionTest, every_call_that_fails_ends_it_or_changes_nothing_about_the_answer) {
  protocol::Seal seal = sealed(1);
  seal.reference_directory = sealed(2).directory;
  ASSERT_TRUE(storage.seal(seal));
  const std::size_t calls = files.calls();
  std::size_t refused = 0;
  for (std::size_t n = 0; n < calls; ++n) {
    for (const int failure : {EIO, ESTALE}) {
      VersionStorage fresh(files, "gateway-2", {});
      files.fail_at(n, failure);
      const auto looked = fresh.seal(seal);
      if (looked) {
        EXPECT_EQ(looked->digest, seal.digest) << n;
      } else {
        ++refused;
        EXPECT_FALSE(looked.error().text().empty()) << n;
        EXPECT_FALSE(fresh.expectations_of(seal.directory)) << n;
      }
    }
  }
  EXPECT_GT(refused, calls / 2) << "of two failures each: what the reference needs may fail, the rest may not";
}

TEST_F(StoredVersionTest, bytes_that_changed_are_told_by_the_digest_and_not_looked_for_without) {
  protocol::Seal seal = sealed(1);
  std::string bytes = read_file(weights(seal));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(weights(seal), bytes);
  const Error changed = refusal(storage.seal(seal));
  EXPECT_EQ(changed.code, ErrorCode::conflict);
  EXPECT_NE(changed.text().find("sealed bytes were changed"), std::string::npos) << changed.text();
  EXPECT_FALSE(storage.verify(seal));
  seal.digest_now = false;
  EXPECT_TRUE(storage.seal(seal)) << "digest=off asks for names, sizes and headers only";
}

TEST_F(StoredVersionTest, a_digest_of_the_journal_that_is_another_is_told) {
  protocol::Seal seal = sealed(1);
  seal.digest = std::string(32, '0');
  const Error other = refusal(storage.seal(seal));
  EXPECT_EQ(other.code, ErrorCode::conflict);
  EXPECT_NE(other.text().find("was recorded when it was committed"), std::string::npos) << other.text();
}

TEST_F(StoredVersionTest, a_file_that_was_cut_added_or_lost_is_named) {
  protocol::Seal seal = sealed(1);
  const std::string whole = read_file(weights(seal));
  write_file(weights(seal), whole.substr(0, whole.size() - 1));
  EXPECT_NE(refusal(storage.seal(seal)).text().find("model.safetensors"), std::string::npos);
  write_file(weights(seal), whole);
  write_file(seal.directory + "/extra.safetensors", whole);
  EXPECT_NE(refusal(storage.seal(seal)).text().find("came after the seal"), std::string::npos);
  std::filesystem::remove(seal.directory + "/extra.safetensors");
  EXPECT_TRUE(storage.seal(seal));
  std::filesystem::remove(seal.directory + "/weighlock.manifest.json");
  EXPECT_NE(refusal(storage.seal(seal)).text().find("not sealed"), std::string::npos);
  std::filesystem::remove_all(seal.directory);
  EXPECT_NE(refusal(storage.seal(seal)).text().find(seal.directory), std::string::npos);
}

TEST_F(StoredVersionTest, a_directory_that_holds_another_version_is_refused_with_both) {
  protocol::Seal seal = sealed(1);
  seal.version = 7;
  const Error other = refusal(storage.seal(seal));
  EXPECT_EQ(other.code, ErrorCode::conflict);
  EXPECT_NE(other.text().find("holds version 1 of lineage 1 now, not 7 of 1"), std::string::npos) << other.text();
}

TEST_F(StoredVersionTest, a_handed_directory_without_a_manifest_is_judged_by_its_digest_or_not_at_all) {
  protocol::Seal seal = sealed(1);
  seal.foreign = true;
  seal.save_path.clear();
  const auto looked = storage.seal(seal);
  EXPECT_TRUE(looked) << looked.error().text();
  seal.digest.clear();
  EXPECT_EQ(refusal(storage.seal(seal)).code, ErrorCode::checkpoint_missing);
}

TEST_F(StoredVersionTest, a_place_outside_of_the_roots_is_not_read) {
  const protocol::Seal seal = sealed(1);
  VersionStorage confined(files, "gateway-2", {root.path("elsewhere")});
  EXPECT_EQ(refusal(confined.seal(seal)).code, ErrorCode::permission_denied);
  const auto verified = confined.verify(seal);
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().code, ErrorCode::permission_denied);
}

}  // namespace
}  // namespace weighlock
