#include "weighlock/gateway/credentials.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "weighlock/io/temporary_directory.hpp"

namespace weighlock {
namespace {

// The reference, and what the file holds if it names one.
std::optional<FieldError> read(const json::value& reference, std::string& key) {
  KeyFile file{"workers[0].admin_key", "http://a:1", "", true, ""};
  if (auto failure = read_key_reference(reference, file.field, key, file.path)) return failure;
  if (file.path.empty()) return std::nullopt;
  if (auto failure = take_key(read_key_file(file.path), file)) return failure;
  key = file.key;
  return std::nullopt;
}

TEST(Credentials, a_key_comes_from_the_environment_or_a_file_without_its_line_end) {
  TemporaryDirectory directory;
  write_file(directory.path("key"), "from-file\n");
  ASSERT_EQ(setenv("WEIGHLOCK_TEST_ENGINE_KEY", "from-env", 1), 0);
  std::string key;
  EXPECT_FALSE(read({{"env", "WEIGHLOCK_TEST_ENGINE_KEY"}}, key));
  EXPECT_EQ(key, "from-env");
  EXPECT_FALSE(read({{"file", directory.path("key")}}, key));
  EXPECT_EQ(key, "from-file");
  EXPECT_FALSE(read(nullptr, key));
}

TEST(Credentials, what_is_no_reference_is_refused_and_never_shown) {
  TemporaryDirectory directory;
  write_file(directory.path("long"), std::string(5000, 'x'));
  write_file(directory.path("lines"), "secret\nsecond");
  std::string key;
  for (const json::value& bad :
       {json::value("secret"), json::value{{"key", "secret"}}, json::value{{"env", "WEIGHLOCK_TEST_NOT_SET"}},
        json::value{{"file", "relative"}}, json::value{{"file", directory.path("absent")}},
        json::value{{"file", directory.path("long")}}, json::value{{"file", directory.path("lines")}}}) {
    const auto failure = read(bad, key);
    ASSERT_TRUE(failure) << json::serialize(bad);
    EXPECT_EQ(failure->field, "workers[0].admin_key");
    EXPECT_EQ(failure->error.message.find("secret"), std::string::npos);
    EXPECT_EQ(key, "");
  }
}

TEST(Credentials, only_a_regular_file_is_read_and_nothing_is_waited_for) {
  TemporaryDirectory directory;
  ASSERT_EQ(mkfifo(directory.path("fifo").c_str(), 0600), 0);  // opening it waits for a writer
  std::string key;
  for (const std::string& path : {directory.path("fifo"), std::string("/dev/zero"), directory.path()}) {
    const auto failure = read({{"file", path}}, key);
    ASSERT_TRUE(failure) << path;
    EXPECT_NE(failure->error.message.find("regular file"), std::string::npos) << failure->error.message;
  }
}

TEST(Credentials, a_worker_without_keys_of_its_own_gets_the_ones_for_all) {
  CredentialStore store(Credentials{"all", ""});
  store.set("http://a:1", Credentials{"own", "api"});
  EXPECT_EQ(store.of("http://a:1").admin_key, "own");
  EXPECT_EQ(store.of("http://b:1").admin_key, "all");
}

}  // namespace
}  // namespace weighlock
