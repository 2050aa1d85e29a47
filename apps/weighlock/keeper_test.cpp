// The parent of the gateway with real processes: each "gateway" is a few lines in a fork of this test.
#include "keeper.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <new>
#include <string>
#include <thread>

#include "weighlock/core/error.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {
namespace {

using namespace std::chrono_literals;

// Seen by all lives, and by the test.
struct Shared {
  std::atomic<int> lives{0};
  std::atomic<int> pid{0};
  std::atomic<int> told{0};  // lives that were to say where they listen
  std::atomic<int> signal{0};
};
Shared* shared = nullptr;

extern "C" void note_signal(int number) {
  shared->signal = number;
}

[[noreturn]] void die_by(int number) {
  ::raise(number);
  ::_exit(99);
}

class KeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    void* const page = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    shared = new (page) Shared;
    said_ = std::tmpfile();
    log_to(::fileno(said_));
  }
  void TearDown() override {
    log_to(2);
    std::fclose(said_);
    ::munmap(shared, sizeof(Shared));
  }

  static KeeperTimes times() {
    KeeperTimes out;
    out.again = 1ms;
    out.again_max = 4ms;
    out.stop = 20s;
    return out;
  }
  // `gateway(n)` is the nth life, from 1; its result is the exit code.
  template <typename Gateway>
  int keep(Gateway gateway, const KeeperTimes& with = times()) {
    return keep_gateway(-1, with, [&gateway](const Life& life) -> int {
      if (!life.address_told) ++shared->told;
      shared->pid = ::getpid();
      ::_exit(gateway(++shared->lives, life));
    });
  }
  std::string said() const {
    std::string text(65536, '\0');
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, ::pread(::fileno(said_), text.data(), text.size(), 0))));
    return text;
  }
  static bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

 private:
  std::FILE* said_ = nullptr;
};

// As the gateway's process: until it is told to leave.
int until_told(const Life& life) {
  ::signal(SIGTERM, note_signal);
  ::signal(SIGINT, note_signal);
  life.take_signals();
  while (shared->signal == 0) ::usleep(1000);
  return 0;
}

TEST_F(KeeperTest, a_gateway_that_crashed_is_started_again_and_it_is_told_with_signal_process_and_count) {
  const int code = keep([](int n, const Life& life) {
    life.up();
    if (n <= 2) die_by(n == 1 ? SIGKILL : SIGSEGV);
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(shared->lives, 3);
  EXPECT_TRUE(contains(said(), "gateway ended (signal 9), started again as pid ")) << said();
  EXPECT_TRUE(contains(
      said(), "gateway ended (signal 11), started again as pid " + std::to_string(shared->pid) + " (2nd time)"))
      << said();
}

TEST_F(KeeperTest, only_who_answers_first_is_to_tell_its_address) {
  keep([](int n, const Life& life) {
    if (n >= 2) life.up();
    if (n <= 3) die_by(SIGKILL);
    return 0;
  });
  EXPECT_EQ(shared->lives, 4);
  EXPECT_EQ(shared->told, 2) << "the first never answered, the second did";
}

TEST_F(KeeperTest, an_end_on_purpose_and_a_start_that_is_refused_are_passed_on_and_not_repeated) {
  for (const int code : {0, 1, 2, 3}) {
    for (const bool up : {false, true}) {
      shared->lives = 0;
      const int got = keep([&](int, const Life& life) {
        if (up) life.up();
        return code;
      });
      EXPECT_EQ(got, code);
      EXPECT_EQ(shared->lives, 1) << code;
    }
  }
}

TEST_F(KeeperTest, a_journal_that_fails_refuses_the_first_start_and_after_one_that_worked_the_disk_is_asked_again) {
  EXPECT_EQ(keep([](int, const Life&) { return kExitJournalFailed; }), 1);
  EXPECT_EQ(shared->lives, 1);
  shared->lives = 0;
  EXPECT_EQ(keep([](int n, const Life& life) {
              if (n == 1) life.up();
              return n <= 3 ? kExitJournalFailed : 0;
            }),
            0);
  EXPECT_EQ(shared->lives, 4);
  EXPECT_TRUE(contains(said(), "gateway ended (exit code 70), started again")) << said();
}

TEST_F(KeeperTest, a_later_start_that_is_refused_ends_it_and_is_told) {
  EXPECT_EQ(keep([](int n, const Life& life) {
              life.up();
              if (n == 1) die_by(SIGKILL);
              return 1;
            }),
            1);
  EXPECT_EQ(shared->lives, 2);
  EXPECT_TRUE(contains(said(), "gateway ended (exit code 1) and isn't started again")) << said();
}

TEST_F(KeeperTest, signals_reach_the_gateway_and_after_them_nothing_is_started_again) {
  for (const int number : {SIGTERM, SIGINT}) {
    shared->lives = 0;
    shared->signal = 0;
    EXPECT_EQ(keep([&](int, const Life& life) {
                life.up();
                ::kill(life.parent, number);
                until_told(life);
                die_by(SIGSEGV);  // even so
                return 0;
              }),
              1);
    EXPECT_EQ(shared->signal, number);
    EXPECT_EQ(shared->lives, 1);
  }
}

TEST_F(KeeperTest, a_signal_that_comes_before_the_gateway_can_take_it_waits) {
  EXPECT_EQ(keep([](int, const Life& life) {
              ::kill(life.parent, SIGTERM);
              ::usleep(50'000);  // the parent has passed it on by now
              return until_told(life);
            }),
            0);
  EXPECT_EQ(shared->signal, SIGTERM);
}

TEST_F(KeeperTest, a_gateway_that_does_not_leave_is_killed_when_the_time_is_over) {
  KeeperTimes impatient = times();
  impatient.stop = 100ms;
  EXPECT_EQ(keep(
                [](int, const Life& life) {
                  ::kill(life.parent, SIGTERM);
                  while (true) ::pause();
                  return 0;
                },
                impatient),
            1);
  EXPECT_EQ(shared->lives, 1);
  EXPECT_TRUE(contains(said(), "didn't leave within 100 ms")) << said();
}

TEST_F(KeeperTest, a_second_signal_ends_it_at_once) {
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(keep([](int, const Life& life) {
              ::signal(SIGTERM, note_signal);
              life.take_signals();
              ::kill(life.parent, SIGTERM);
              while (shared->signal == 0) ::usleep(1000);
              ::kill(life.parent, SIGTERM);
              while (true) ::pause();
              return 0;
            }),
            1);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 10s);
  EXPECT_TRUE(contains(said(), "second signal 15: leaving at once")) << said();
}

TEST_F(KeeperTest, a_signal_while_it_waits_for_the_next_start_ends_it) {
  KeeperTimes slow = times();
  slow.again = slow.again_max = 60s;
  const pid_t keeper = ::fork();
  if (keeper == 0) {
    ::_exit(keep(
        [](int, const Life& life) {
          life.up();
          die_by(SIGKILL);
          return 0;
        },
        slow));
  }
  while (shared->lives == 0) ::usleep(1000);
  while (::kill(shared->pid, 0) == 0) ::usleep(1000);  // until it has been waited for
  ::kill(keeper, SIGTERM);
  int status = 0;
  ASSERT_EQ(::waitpid(keeper, &status, 0), keeper);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_TRUE(contains(said(), "to be started again after signal 9")) << said();
}

TEST_F(KeeperTest, a_parent_that_is_killed_takes_its_gateway_along) {
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);  // so that the orphan is this test's to wait for
  const pid_t keeper = ::fork();
  if (keeper == 0) ::_exit(keep([](int, const Life& life) { return until_told(life); }));
  while (shared->pid == 0) ::usleep(1000);
  ::kill(keeper, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(keeper, &status, 0), keeper);
  ASSERT_EQ(::waitpid(shared->pid, &status, 0), shared->pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  ::prctl(PR_SET_CHILD_SUBREAPER, 0);
}

TEST_F(KeeperTest, quick_deaths_are_told_once_and_it_goes_on_trying) {
  keep([](int n, const Life&) {
    if (n <= 12) die_by(SIGKILL);
    return 0;
  });
  EXPECT_EQ(shared->lives, 13);
  const std::string text = said();
  const std::size_t at = text.find("the gateway ended 5 times in a row within 60 s of its start");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_EQ(text.find("times in a row", at + 30), std::string::npos) << text;
}

TEST(KeeperBackOff, doubles_up_to_its_limit_and_begins_again_after_a_long_life) {
  BackOff back_off{KeeperTimes{}};
  for (const Milliseconds wanted : {100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 6400ms, 10000ms, 10000ms})
    EXPECT_EQ(back_off.after(59999ms), wanted);
  EXPECT_EQ(back_off.quick_deaths(), 9);
  EXPECT_EQ(back_off.after(60s), 100ms);
  EXPECT_EQ(back_off.quick_deaths(), 0);
  EXPECT_EQ(back_off.after(1ms), 200ms);
}

}  // namespace
}  // namespace weighlock
