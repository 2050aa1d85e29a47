#include "weighlock/gateway/executor.hpp"

#include <gtest/gtest.h>

#include "weighlock/io/file_system.hpp"
#include "weighlock/journal/memory_journal.hpp"

namespace weighlock {
namespace {

class ExecutorTest : public ::testing::Test {
 protected:
  Loop loop;
  MemoryJournal journal;
  RealFileSystem files;
  VersionStorage storage{files, "test"};
  CredentialStore credentials{Credentials{}};
  Waiters waiters;
  Pool journal_pool{loop, 1};
  Pool storage_pool{loop, 1};
  HttpClient http{loop};
  EngineCalls engine_calls{loop, http};
  std::optional<Error> failure;
  Executor executor{Executor::Parts{loop, journal_pool, storage_pool, journal, http, engine_calls, storage, credentials, waiters},
                    Executor::Hooks{"", nullptr, nullptr, [this](const Error& error) {
                                      failure = error;
                                      loop.stop();
                                    }}};
};

TEST_F(ExecutorTest, a_group_is_durable_before_it_is_told_so_and_never_inside_append) {
  bool durable = false;
  executor.append({protocol::Record{}}, [&] {
    durable = true;
    EXPECT_EQ(journal.last_number(), 1);
    loop.stop();
  });
  EXPECT_FALSE(durable);
  loop.run();
  EXPECT_TRUE(durable);
}

TEST_F(ExecutorTest, nothing_is_done_after_a_group_that_could_not_be_written) {
  journal.break_disk();
  executor.append({protocol::Record{}}, [] { FAIL() << "told durable"; });
  loop.run();
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::journal_failed);
}

}  // namespace
}  // namespace weighlock
