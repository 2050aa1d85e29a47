// Names are used once; only what is surely ours is removed; nothing that is needed goes before its successor is there.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "weighlock/store/checkpoint_fixture.hpp"
#include "weighlock/store/paths.hpp"

namespace weighlock {
namespace {

namespace fs = std::filesystem;

class AttemptsTest : public StoreTest {
 protected:
  AttemptsTest() { fs::create_directory(save_path); }
  Result<PreparedAttempt> prepare(std::int64_t version_number, std::int64_t lineage = 1, std::int64_t attempt = 1) {
    return store.prepare({save_path, version_number, lineage, attempt, "gateway-1", 0, false});
  }
  std::string prepared_name(std::int64_t version_number, std::int64_t lineage, std::int64_t attempt) {
    const auto prepared = prepare(version_number, lineage, attempt);
    return prepared ? prepared->name : prepared.error().text();
  }
  // A sealed, committed version.
  std::string commit(std::int64_t number) {
    const std::string directory = prepare(number)->directory;
    write_single(directory, tiny_tensors(), static_cast<unsigned>(number));
    EXPECT_TRUE(store.seal(directory, *inspect(directory), {"actor", 1, number, 1, "gateway-1", false, ""}));
    EXPECT_TRUE(store.mark_latest(save_path, directory));
    return directory;
  }
  std::string trash() { return save_path + "/.weighlock/trash"; }

  const std::string save_path = root.path("w");
};

TEST_F(AttemptsTest, bare_name_belongs_to_the_first_claim_for_ever) {
  EXPECT_EQ(prepared_name(42, 1, 1), "weight_update_v42");
  EXPECT_EQ(prepared_name(42, 2, 3), "weight_update_v42.L2.a3");
  EXPECT_EQ(prepared_name(42, 2, 3), "weight_update_v42.L2.a3.x2");
  EXPECT_EQ(prepared_name(42, 2, 3), "weight_update_v42.L2.a3.x3");
  EXPECT_EQ(prepared_name(-1, 1, 1), "weight_update_v-1");
  ASSERT_TRUE(store.discard(save_path, save_path + "/weight_update_v42"));
  EXPECT_EQ(prepared_name(42, 3, 1), "weight_update_v42.L3.a1") << "a late save may still come under the bare name";
}

TEST_F(AttemptsTest, directory_without_record_keeps_its_name_and_its_files) {
  write_file(save_path + "/weight_update_v7/mine", "x");
  EXPECT_EQ(prepared_name(7, 1, 1), "weight_update_v7.L1.a1");
  EXPECT_EQ(store.discard(save_path, save_path + "/weight_update_v7").error().code, ErrorCode::permission_denied);
  EXPECT_EQ(read_file(save_path + "/weight_update_v7/mine"), "x");
}

// Another makes the directory between our look and our mkdir: the record alone mustn't make it ours.
TEST_F(AttemptsTest, directory_that_appears_during_the_claim_is_not_ours) {
  files.on_call = [&](const char* call, const std::string& name) {
    if (std::string_view(call) == "make_directory" && name == "weight_update_v7")
      write_file(save_path + "/" + name + "/mine", "x");
    return 0;
  };
  EXPECT_EQ(prepared_name(7, 1, 1), "weight_update_v7.L1.a1");
  EXPECT_EQ(store.discard(save_path, save_path + "/weight_update_v7").error().code, ErrorCode::permission_denied);
  EXPECT_TRUE(fs::exists(save_path + "/weight_update_v7/mine"));
}

TEST_F(AttemptsTest, directory_is_open_to_the_trainers_group_whatever_the_umask) {
  const mode_t before = ::umask(0077);
  const auto prepared = prepare(1);
  ::umask(before);
  struct stat found = {};
  ASSERT_EQ(::stat(prepared->directory.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 02775u);
}

TEST_F(AttemptsTest, claim_for_the_trainers_makes_no_directory) {
  const auto prepared = store.prepare({save_path, 5, 1, 1, "gateway-1", 0, true});
  ASSERT_TRUE(prepared);
  EXPECT_FALSE(fs::exists(prepared->directory));
  write_single(prepared->directory);
  EXPECT_TRUE(store.discard(save_path, prepared->directory));
  EXPECT_FALSE(fs::exists(prepared->directory));
}

TEST_F(AttemptsTest, too_little_space_is_refused_with_both_numbers) {
  const std::uint64_t blocks = 1;
  files.free_blocks = &blocks;
  const auto refused = store.prepare({save_path, 1, 1, 1, "gateway-1", 100'000, false});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::storage_full);
  EXPECT_NE(refused.error().text().find("needs 110000"), std::string::npos) << refused.error().text();
  EXPECT_EQ(store.prepare({save_path, 1, 1, 1, "gateway-1", ~std::uint64_t{0}, false}).error().code,
            ErrorCode::storage_full);
  EXPECT_FALSE(fs::exists(save_path + "/weight_update_v1"));
}

TEST_F(AttemptsTest, invisible_storage_is_blind_and_says_why) {
  const std::string missing = root.path("not/mounted");
  const Storage storage = store.probe_save_path(missing);
  EXPECT_FALSE(storage.visible);
  EXPECT_NE(storage.reason.find("'" + root.path("not") + "' doesn't exist"), std::string::npos) << storage.reason;
  const auto prepared = store.prepare({missing, 1, 1, 1, "gateway-1", 0, false});
  EXPECT_EQ(prepared.error().code, ErrorCode::storage_not_visible);
  EXPECT_FALSE(store.probe_save_path("relative").visible);
  EXPECT_FALSE(store.probe_save_path("/weighlock-missing-mount").visible);
}

TEST_F(AttemptsTest, read_only_storage_is_blind) {
  files.on_call = [](const char* call, const std::string&) {
    return std::string_view(call) == "make_directory" ? EROFS : 0;
  };
  EXPECT_NE(store.probe_save_path(save_path).reason.find("EROFS"), std::string::npos);
  EXPECT_EQ(prepare(1).error().code, ErrorCode::storage_not_visible);
}

TEST_F(AttemptsTest, save_path_itself_is_made_by_the_first_attempt_only) {
  const std::string fresh = root.path("fresh");
  EXPECT_TRUE(store.probe_save_path(fresh).visible);
  EXPECT_FALSE(fs::exists(fresh));
  EXPECT_TRUE(store.prepare({fresh, 1, 1, 1, "gateway-1", 0, false}));
  EXPECT_TRUE(store.probe_save_path(save_path).visible);
}

TEST_F(AttemptsTest, discarded_attempt_is_gone_and_may_be_discarded_again) {
  const std::string directory = prepare(1)->directory;
  write_file(directory + "/deep/er/file", "x");
  write_file(root.path("target/file"), "kept");
  fs::create_directory_symlink(root.path("target"), directory + "/link");
  ASSERT_TRUE(store.discard(save_path, directory));
  EXPECT_FALSE(fs::exists(directory));
  EXPECT_TRUE(fs::is_empty(trash()));
  EXPECT_EQ(read_file(root.path("target/file")), "kept");
  EXPECT_TRUE(store.discard(save_path, directory));
  write_file(directory + "/late", "x");  // a save of a dead attempt that comes late
  EXPECT_TRUE(store.discard(save_path, directory));
  EXPECT_FALSE(fs::exists(directory));
}

TEST_F(AttemptsTest, only_ours_is_ever_discarded) {
  const std::string latest = commit(1);
  const std::string sealed = prepare(2)->directory;
  write_single(sealed);
  seal(sealed);
  write_file(save_path + "/notes/text", "x");
  write_file(save_path + "/weight_update_v5.tmp/x", "x");
  write_file(save_path + "/weight_update_v99/x", "x");
  fs::create_directory_symlink(latest, save_path + "/weight_update_v3");
  for (const char* name : {"notes", "weight_update_v5.tmp", "weight_update_v99", "weight_update_v3", "weight_update_v1",
                           "weight_update_v2", ".weighlock", "..", "weight_update_v2/..", ""}) {
    const Status discarded = store.discard(save_path, save_path + "/" + name);
    EXPECT_FALSE(discarded) << name;
  }
  EXPECT_FALSE(store.discard(root.path(), sealed));
  EXPECT_FALSE(store.discard(save_path, latest, true)) << "LATEST stays";
  EXPECT_TRUE(store.verify_sealed(latest));
  EXPECT_TRUE(store.verify_sealed(sealed));
  EXPECT_TRUE(store.discard(save_path, sealed, true));
  EXPECT_FALSE(fs::exists(sealed));
}

TEST_F(AttemptsTest, link_under_our_own_name_is_not_followed) {
  const std::string directory = prepare(1)->directory;
  fs::remove(directory);
  write_file(root.path("target/file"), "kept");
  fs::create_directory_symlink(root.path("target"), directory);
  EXPECT_FALSE(store.discard(save_path, directory));
  EXPECT_EQ(read_file(root.path("target/file")), "kept");
}

TEST_F(AttemptsTest, latest_names_the_newest_version) {
  EXPECT_EQ(store.latest(save_path).error().code, ErrorCode::not_found);
  commit(1);
  EXPECT_EQ(*store.latest(save_path), "weight_update_v1");
  commit(2);
  EXPECT_EQ(*store.latest(save_path), "weight_update_v2");
  ASSERT_TRUE(store.mark_latest(save_path, "/elsewhere/x"));
  EXPECT_EQ(*store.latest(save_path), "/elsewhere/x");
}

// keep=1: the whole of a publish is killed at every call; at each one a whole version remains.
TEST_F(AttemptsTest, publish_killed_anywhere_leaves_a_whole_version) {
  const std::string first = commit(1);
  const std::string backup = root.path("backup");
  fs::copy(save_path, backup, fs::copy_options::recursive);
  const std::string second = save_path + "/weight_update_v2";
  bool ended = false;
  std::size_t kills = 0;
  for (std::size_t call = 0; !ended; call += 3) {
    fs::remove_all(save_path);
    fs::copy(backup, save_path, fs::copy_options::recursive);
    const pid_t child = ::fork();
    if (child == 0) {
      std::size_t calls = 0;
      files.on_call = [&](const char*, const std::string&) {
        if (calls++ == call) ::kill(::getpid(), SIGKILL);
        return 0;
      };
      commit(2);
      (void)store.discard(save_path, first, true).has_value();
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ended = WIFEXITED(status);
    kills += ended ? 0 : 1;
    const bool first_whole = store.verify_sealed(first).has_value();
    const bool second_whole = store.verify_sealed(second).has_value();
    EXPECT_TRUE(first_whole || second_whole) << "killed at call " << call;
    const auto newest = store.latest(save_path);
    ASSERT_TRUE(newest) << "killed at call " << call;
    EXPECT_TRUE(store.verify_sealed(save_path + "/" + *newest)) << "killed at call " << call;
    ASSERT_LT(call, 2000u);
  }
  EXPECT_GT(kills, 20u);
}

TEST_F(AttemptsTest, paths_are_confined_to_the_roots) {
  fs::create_directory(root.path("outside"));
  fs::create_directory_symlink("../outside", save_path + "/out");
  fs::create_directory_symlink("inside", save_path + "/in");
  fs::create_directory(save_path + "/inside");
  const std::vector<std::string> roots = {"/nowhere", save_path};
  EXPECT_EQ(*store.confine(save_path + "//inside/./x/", roots), save_path + "/inside/x");
  EXPECT_TRUE(store.confine(save_path, roots));
  EXPECT_TRUE(store.confine(save_path + "/in/x", roots));
  EXPECT_EQ(store.confine("./v1", roots).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(store.confine("", {}).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(store.confine(save_path + "/../outside", roots).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(store.confine(save_path + "/out", roots).error().code, ErrorCode::permission_denied);
  EXPECT_EQ(store.confine(save_path + "/out/new/x", roots).error().code, ErrorCode::permission_denied);
  EXPECT_EQ(store.confine(save_path + "-2/x", roots).error().code, ErrorCode::permission_denied);
  EXPECT_EQ(*store.confine("/any/where/", {}), "/any/where");
}

TEST(Paths, parts_are_what_they_say) {
  EXPECT_EQ(*normal_path("/"), "/");
  EXPECT_EQ(parent_of("/a"), "/");
  EXPECT_EQ(parent_of("/a/b"), "/a");
  EXPECT_EQ(name_of("/a/b"), "b");
  EXPECT_TRUE(is_beneath("/a/b", "/a") && is_beneath("/a", "/") && is_beneath("/a", "/a"));
  EXPECT_FALSE(is_beneath("/ab", "/a"));
  EXPECT_EQ(relative_to("/a/b", "/a"), "b");
  EXPECT_EQ(relative_to("/a/b", "/"), "a/b");
  EXPECT_EQ(relative_to("/a", "/a"), ".");
}

TEST_F(AttemptsTest, empty_checkpoint_is_a_right_file_without_tensors_and_is_made_once) {
  const auto made = store.ensure_empty_checkpoint(save_path);
  ASSERT_TRUE(made) << made.error().text();
  EXPECT_EQ(*made, VersionStore::empty_checkpoint_of(save_path));
  const std::string file = read_file(*made + "/model.safetensors");
  const auto length = parse_safetensors_prefix(std::string_view(file).substr(0, 8), file.size());
  ASSERT_TRUE(length);
  const auto header = parse_safetensors_header(std::string_view(file).substr(8, *length), file.size());
  ASSERT_TRUE(header) << header.error().text();
  EXPECT_TRUE(header->tensors.empty());
  const auto time = fs::last_write_time(*made + "/model.safetensors");
  ASSERT_TRUE(store.ensure_empty_checkpoint(save_path));
  EXPECT_EQ(fs::last_write_time(*made + "/model.safetensors"), time);
}

}  // namespace
}  // namespace weighlock
