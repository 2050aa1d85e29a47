#include "weighlock/io/directory.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <functional>

#include "weighlock/io/access.hpp"
#include "weighlock/io/beneath.hpp"
#include "weighlock/io/faulty_file_system.hpp"
#include "weighlock/io/os_error.hpp"
#include "weighlock/io/temporary_directory.hpp"

namespace weighlock {
namespace {

namespace fs = std::filesystem;

class DirectoryTest : public testing::Test {
 protected:
  Directory open() { return std::move(Directory::open(files, root.path())).value(); }
  mode_t mode_of(const std::string& name) {
    struct stat found = {};
    EXPECT_EQ(::stat(root.path(name).c_str(), &found), 0);
    return found.st_mode & 07777;
  }
  std::size_t entries() { return static_cast<std::size_t>(std::distance(fs::directory_iterator(root.path()), {})); }

  TemporaryDirectory root;
  RealFileSystem real;
  FaultyFileSystem files{real};
};

TEST_F(DirectoryTest, modes_are_explicit_whatever_the_umask) {
  const mode_t before = ::umask(0077);
  Directory directory = open();
  EXPECT_TRUE(directory.create_file("a", "x"));
  EXPECT_TRUE(directory.make_directory("d"));
  ::umask(before);
  EXPECT_EQ(mode_of("a"), 0664u);
  EXPECT_EQ(mode_of("d"), 02775u);
}

TEST_F(DirectoryTest, taken_names_are_refused) {
  Directory directory = open();
  ASSERT_TRUE(directory.create_file("a", "first"));
  EXPECT_EQ(directory.create_file("a", "second").error().code, ErrorCode::conflict);
  EXPECT_EQ(read_file(root.path("a")), "first");
  ASSERT_TRUE(directory.make_directory("d"));
  EXPECT_EQ(directory.make_directory("d").error().code, ErrorCode::conflict);
  EXPECT_TRUE(directory.ensure_directory("d"));
  ASSERT_TRUE(directory.create_file("b", "b"));
  EXPECT_EQ(directory.rename("a", directory, "b").error().code, ErrorCode::conflict);
  EXPECT_EQ(read_file(root.path("b")), "b");
}

TEST_F(DirectoryTest, short_writes_and_reads_are_continued) {
  files.write_bytes_max = 3;
  files.read_bytes_max = 2;
  Directory directory = open();
  ASSERT_TRUE(directory.create_file("a", "0123456789"));
  EXPECT_EQ(*directory.open_file("a", Follow::no)->read_text(100), "0123456789");
}

TEST_F(DirectoryTest, short_file_names_what_was_wanted_and_got) {
  write_file(root.path("a"), "12345");
  std::array<std::byte, 10> into;
  const Status read = open().open_file("a", Follow::no)->read_exactly(2, into);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().text().find("wanted 10 bytes at byte 2, got 3"), std::string::npos) << read.error().text();
  EXPECT_EQ(open().open_file("a", Follow::no)->read_text(4).error().code, ErrorCode::too_large);
}

// Every call of a replacement fails once, in every way that storage fails: the name holds the old content or the new,
// never a mix.
TEST_F(DirectoryTest, replaced_file_is_old_or_new_whatever_call_fails) {
  write_file(root.path("a"), "old");
  for (const int failure : {ENOSPC, EIO, EDQUOT, ESTALE, EROFS}) {
    for (std::size_t call = 0;; ++call) {
      write_file(root.path("a"), "old");
      Directory directory = open();
      files.fail_at(call, failure);
      const Status replaced = directory.replace_file("a", "new");
      const std::string content = read_file(root.path("a"));
      EXPECT_TRUE(content == "old" || content == "new") << content;
      EXPECT_TRUE(!replaced || content == "new");
      EXPECT_EQ(entries(), 1u) << "a temporary file is left after call " << call;
      if (!files.fired()) break;
      EXPECT_FALSE(replaced) << "call " << call << " failed and nobody saw it: " << files.log.back();
      ASSERT_LT(call, 50u);
    }
  }
}

TEST_F(DirectoryTest, created_file_is_absent_after_a_failure) {
  for (std::size_t call = 0;; ++call) {
    Directory directory = open();
    files.fail_at(call, EIO);
    const Status created = directory.create_file("a", "new");
    if (!files.fired()) break;
    EXPECT_FALSE(created);
    EXPECT_EQ(entries(), 0u) << call;
    ASSERT_LT(call, 50u);
  }
}

TEST_F(DirectoryTest, fsync_is_never_repeated) {
  files.on_call = [](const char* call, const std::string&) { return std::string_view(call) == "sync" ? EIO : 0; };
  EXPECT_FALSE(open().create_file("a", "x"));
  EXPECT_EQ(std::count(files.log.begin(), files.log.end(), "sync"), 1);
}

TEST_F(DirectoryTest, missing_fsync_of_a_file_system_is_no_failure) {
  files.on_call = [](const char* call, const std::string&) { return std::string_view(call) == "sync" ? EINVAL : 0; };
  EXPECT_TRUE(open().create_file("a", "x"));
}

// Both ways of resolving give the same answers.
class BeneathTest : public DirectoryTest, public testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    files.openat2_missing = GetParam();
    write_file(root.path("in/a"), "inside");
    write_file(root.path("outside"), "outside");
    fs::create_symlink("a", root.path("in/link"));
    fs::create_symlink("sub/../link", root.path("in/chain"));
    fs::create_directory(root.path("in/sub"));
    write_file(root.path("in/sub/b"), "below");
    fs::create_symlink("../outside", root.path("in/out"));
    fs::create_symlink(root.path("in/a"), root.path("in/absolute"));
    fs::create_symlink("loop", root.path("in/loop"));
    fs::create_directory_symlink("..", root.path("in/up"));
  }
  std::string read(const std::string& relative, Follow follow) {
    const auto in = Directory::open(files, root.path("in"));
    const auto file = in->open_file(relative, follow);
    return file ? *file->read_text(100) : std::string(info(file.error().code).type);
  }
};

TEST_P(BeneathTest, links_inside_are_followed_and_links_out_are_refused) {
  EXPECT_EQ(read("a", Follow::no), "inside");
  EXPECT_EQ(read("sub/b", Follow::no), "below");
  EXPECT_EQ(read("link", Follow::no), "invalid_argument");
  EXPECT_EQ(read("link", Follow::beneath), "inside");
  EXPECT_EQ(read("chain", Follow::beneath), "inside");
  EXPECT_EQ(read("missing", Follow::beneath), "not_found");
  for (const char* leaving :
       {"out", "absolute", "../outside", "up/outside", "/etc/passwd", "sub/../../outside", "loop"}) {
    EXPECT_EQ(read(leaving, Follow::beneath), "invalid_argument") << leaving;
  }
  EXPECT_EQ(read("out", Follow::anywhere), "outside");
}

INSTANTIATE_TEST_SUITE_P(Resolvers, BeneathTest, testing::Bool());

TEST_F(DirectoryTest, fifo_neither_blocks_nor_counts_as_a_file) {
  ASSERT_EQ(::mkfifo(root.path("fifo").c_str(), 0600), 0);
  const auto file = open().open_file("fifo", Follow::no);
  ASSERT_TRUE(file);
  EXPECT_NE(file->size().error().text().find("not a regular file"), std::string::npos);
}

TEST_F(DirectoryTest, removing_a_tree_removes_links_and_leaves_their_targets) {
  write_file(root.path("keep/a"), "a");
  write_file(root.path("tree/b/c/d"), "d");
  fs::create_directory_symlink(root.path("keep"), root.path("tree/b/link"));
  EXPECT_TRUE(open().remove_tree("tree"));
  EXPECT_FALSE(fs::exists(root.path("tree")));
  EXPECT_EQ(read_file(root.path("keep/a")), "a");
  fs::create_directory_symlink(root.path("keep"), root.path("link"));
  EXPECT_FALSE(open().remove_tree("link"));
  EXPECT_TRUE(fs::exists(root.path("keep/a")));
}

TEST_F(DirectoryTest, list_is_sorted_and_free_space_is_known) {
  for (const char* name : {"c", "a", "b"}) write_file(root.path(name), "");
  EXPECT_EQ(*open().list(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_GT(*open().free_bytes(), 0u);
  EXPECT_EQ(open().look("absent")->kind, EntryKind::absent);
}

TEST_F(DirectoryTest, access_diagnosis_names_the_first_missing_parent) {
  const std::string text = describe_access(files, root.path("missing/below/file"));
  EXPECT_NE(text.find("'" + root.path("missing") + "' doesn't exist"), std::string::npos) << text;
  EXPECT_NE(text.find("uid " + std::to_string(::geteuid())), std::string::npos) << text;
  write_file(root.path("a"), "");
  EXPECT_NE(describe_access(files, root.path("a")).find("is readable"), std::string::npos);
}

TEST_F(DirectoryTest, access_diagnosis_tells_a_wrong_name_from_a_storage_that_is_not_there) {
  const auto told = [this](const std::string& path) { return describe_access(files, root.path(path)); };
  EXPECT_EQ(told("step42").find("is the name right"), std::string::npos) << "an empty mount point: " << told("step42");
  write_file(root.path("step41"), "");
  EXPECT_NE(told("step42").find("is the name right"), std::string::npos) << told("step42");
  EXPECT_EQ(told("step42").find("mounted"), std::string::npos) << told("step42");
  EXPECT_EQ(told("out/step42").find("is the name right"), std::string::npos) << "not even its parent is there";
}

TEST_F(DirectoryTest, access_diagnosis_names_mode_and_owner_of_what_is_closed) {
  write_file(root.path("a"), "");
  fs::permissions(root.path("a"), fs::perms::owner_read);
  bool looked = false;  // the first opening of the file only looks at it, the second one reads
  files.on_call = [&](const char*, const std::string& name) {
    return name == root.path("a") && std::exchange(looked, true) ? EACCES : 0;
  };
  const std::string text = describe_access(files, root.path("a"));
  EXPECT_NE(text.find("mode 0400, owner " + std::to_string(::geteuid())), std::string::npos) << text;
  EXPECT_NE(text.find("EACCES"), std::string::npos) << text;
}

TEST_F(DirectoryTest, a_file_that_is_closed_to_us_is_told_from_one_that_is_not_there) {
  fs::create_directory(root.path("state"));
  const std::string path = root.path("state/journal.db");
  EXPECT_EQ(check_openable(files, path, true).error().code, ErrorCode::not_found);
  write_file(path, "x");
  EXPECT_TRUE(check_openable(files, path, true));
  files.on_call = [&](const char*, const std::string& name) { return name == path ? EACCES : 0; };
  const Status closed = check_openable(files, path, true);
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, ErrorCode::permission_denied);
  EXPECT_NE(closed.error().text().find("'" + root.path("state") + "' belongs to "), std::string::npos)
      << closed.error().text();
  EXPECT_NE(closed.error().text().find("run this as its owner"), std::string::npos);
  files.on_call = [&](const char*, const std::string& name) { return name == path ? EIO : 0; };
  EXPECT_TRUE(check_openable(files, path, true)) << "who opens it next tells";
}

TEST(PlainName, names_with_a_way_out_are_not_plain) {
  for (const char* bad : {"", ".", "..", "a/b", "/a", "a/"}) EXPECT_FALSE(is_plain_name(bad)) << bad;
  EXPECT_FALSE(is_plain_name(std::string_view("a\0b", 3)));
  EXPECT_FALSE(is_plain_name(std::string(256, 'a')));
  EXPECT_TRUE(is_plain_name("model-00001-of-00002.safetensors"));
}

TEST(OsError, codes_follow_the_table) {
  EXPECT_EQ(os_error("x", -EDQUOT).code, ErrorCode::storage_full);
  EXPECT_EQ(os_error("x", ESTALE).code, ErrorCode::storage_not_visible);
  EXPECT_EQ(os_error("write 'a'", EIO).message, "cannot write 'a': Input/output error (EIO)");
}

}  // namespace
}  // namespace weighlock
