#include "weighlock/runtime/loop.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "weighlock/runtime/watch.hpp"

namespace weighlock {

TEST(Loop, run_ends_when_nothing_is_left_and_may_be_repeated) {
  Loop loop;
  int ran = 0;
  for (int i = 1; i <= 2; ++i) {
    loop.post([&] { ++ran; });
    loop.run();
    EXPECT_EQ(i, ran);
  }
}

TEST(Loop, posted_work_runs_later_and_in_order) {
  Loop loop;
  std::string order;
  loop.post([&] {
    loop.post([&] { order += 'c'; });
    order += 'a';
  });
  loop.post([&] { order += 'b'; });
  EXPECT_EQ("", order);
  loop.run();
  EXPECT_EQ("abc", order);
}

TEST(Loop, stop_before_run_is_not_lost) {
  Loop loop;
  loop.after(Milliseconds{3'600'000}, [] {});
  loop.stop();
  loop.run();
}

TEST(Loop, timers_run_once_in_the_order_of_their_time) {
  Loop loop;
  std::string order;
  const Instant begin = loop.now();
  loop.after(Milliseconds{20}, [&] { order += 'b'; });
  loop.after(Milliseconds{1}, [&] { order += 'a'; });
  loop.after(Milliseconds{30}, [&] { order += 'c'; });
  loop.run();
  EXPECT_EQ("abc", order);
  EXPECT_GE(loop.now() - begin, Milliseconds{29});
}

TEST(Loop, cancelled_timer_never_runs_even_when_it_is_due) {
  Loop loop;
  bool ran = false;
  Loop::TimerId second = 0;
  // Both are due in one turn of the loop; the first cancels the second.
  loop.after(Milliseconds{5}, [&] { loop.cancel(second); });
  second = loop.after(Milliseconds{5}, [&] { ran = true; });
  std::this_thread::sleep_for(Milliseconds{10});
  loop.run();
  EXPECT_FALSE(ran);
  loop.cancel(second);
  loop.cancel(12345);
}

TEST(Loop, other_threads_post_safely) {
  Loop loop;
  int sum = 0;
  const auto forever = loop.after(Milliseconds{3'600'000}, [] {});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        loop.post([&] {
          if (++sum == 4000) loop.cancel(forever);
        });
      }
    });
  }
  loop.run();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(4000, sum);
}

TEST(Loop, each_signal_is_told_once) {
  Loop loop;
  std::vector<int> told;
  loop.on_signal([&](int signal) {
    told.push_back(signal);
    if (told.size() == 2) return loop.stop();
    std::raise(SIGINT);
  });
  loop.post([] { std::raise(SIGTERM); });
  loop.run();
  EXPECT_EQ((std::vector<int>{SIGTERM, SIGINT}), told);
}

TEST(LoopDeathTest, timer_from_a_foreign_thread_aborts) {
  // The style that is safe once other tests have started threads.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Loop loop;
        loop.post([&] { std::thread([&] { loop.after(Milliseconds{1}, [] {}); }).join(); });
        loop.run();
      },
      "own thread");
}

TEST(Watch, tells_readable_and_may_be_destroyed_by_its_callback) {
  Loop loop;
  int pipe[2];
  ASSERT_EQ(0, ::pipe2(pipe, O_NONBLOCK | O_CLOEXEC));
  auto watch = std::make_unique<Watch>(loop, pipe[0]);
  std::string got;
  watch->when_readable([&] {
    char byte = 0;
    EXPECT_EQ(1, ::read(pipe[0], &byte, 1));
    got += byte;
    // Left unread data makes the next wait end at once.
    watch->when_readable([&] {
      got += '!';
      watch.reset();
    });
  });
  ASSERT_EQ(2, ::write(pipe[1], "ab", 2));
  loop.run();
  EXPECT_EQ("a!", got);
  EXPECT_EQ(-1, ::fcntl(pipe[0], F_GETFD));
  ::close(pipe[1]);
}

TEST(Watch, closed_watch_is_silent) {
  Loop loop;
  int pipe[2];
  ASSERT_EQ(0, ::pipe2(pipe, O_NONBLOCK | O_CLOEXEC));
  Watch watch(loop, pipe[1]);
  bool ran = false;
  watch.when_writable([&] { ran = true; });
  watch.close();
  loop.run();
  EXPECT_FALSE(ran);
  ::close(pipe[0]);
}

TEST(Watch, both_directions_are_told_apart) {
  Loop loop;
  int pair[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
  Watch watch(loop, pair[0]);
  std::string order;
  watch.when_readable([&] { order += 'r'; });
  watch.when_writable([&] { order += 'w'; });
  loop.after(Milliseconds{5}, [&] { EXPECT_EQ(1, ::write(pair[1], "a", 1)); });
  loop.run();
  EXPECT_EQ("wr", order);
  ::close(pair[1]);
}

TEST(Watch, end_that_comes_while_nobody_waits_is_told_to_who_waits_next) {
  Loop loop;
  int pair[2];
  ASSERT_EQ(0, ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
  Watch watch(loop, pair[0]);
  bool told = false;
  watch.when_writable([&] { ::close(pair[1]); });
  loop.after(Milliseconds{5}, [&] { watch.when_readable([&] { told = true; }); });
  loop.run();
  EXPECT_TRUE(told);
}

TEST(Loop, a_timer_that_was_cancelled_keeps_no_loop_running) {
  Loop loop;
  const Loop::TimerId far = loop.after(Milliseconds{60'000}, [] { FAIL(); });
  loop.after(Milliseconds{1}, [&] { loop.cancel(far); });
  const auto began = std::chrono::steady_clock::now();
  loop.run();
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds{30});
}

}  // namespace weighlock
