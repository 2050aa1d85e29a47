#include "weighlock/gateway/executor.hpp"

#include <gtest/gtest.h>

#include "weighlock/gateway/fence.hpp"
#include "weighlock/io/file_system.hpp"
#include "weighlock/io/temporary_directory.hpp"
#include "weighlock/journal/memory_journal.hpp"

namespace weighlock {
namespace {

class ExecutorTest : public ::testing::Test {
 protected:
  Loop loop;
  MemoryJournal journal;
  RealFileSystem files;
  VersionStorage storage{files, "test", {}};
  Epochs epochs{files, {}};
  CredentialStore credentials{Credentials{}};
  Waiters waiters;
  Pool journal_pool{loop, 1};
  Pool storage_pool{loop, 1};
  Pool epoch_pool{loop, 1};
  Pool fence_pool{loop, 1};
  HttpClient http{loop};
  EngineCalls engine_calls{loop, http};
  MetaStore meta;
  AwexGroups awex_groups{loop, http, storage_pool, meta, AwexGroups::Settings{}};
  std::optional<Error> failure;
  Executor executor{Executor::Parts{loop, journal_pool, storage_pool, epoch_pool, fence_pool, journal, http,
                                    engine_calls, storage, epochs, credentials, waiters, awex_groups},
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

TEST_F(ExecutorTest, a_fence_program_gets_worker_pair_and_cause_as_arguments) {
  TemporaryDirectory directory;
  const std::string program = directory.path("hook");
  write_file(program, "#!/bin/sh\nprintf '%s|' \"$@\" > '" + directory.path("told") + ".part'\nmv '" +
                          directory.path("told") + ".part' '" + directory.path("told") + "'\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  run_fence(program,
            protocol::Fence{"http://a:1", "actor",
                            protocol::Cause{protocol::CauseCode::load_failed, "it's \"torn\"", Instant{}}},
            http, fence_pool);
  fence_pool.run([] {}, [this] { loop.stop(); });  // one thread: after the hook
  loop.run();
  EXPECT_EQ(read_file(directory.path("told")), "http://a:1|actor|load_failed|it's \"torn\"|");
}

}  // namespace
}  // namespace weighlock
