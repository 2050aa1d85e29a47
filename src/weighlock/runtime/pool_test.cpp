#include "weighlock/runtime/pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace weighlock {

TEST(Pool, job_runs_elsewhere_and_done_on_the_loop) {
  Loop loop;
  Pool pool(loop, 2);
  std::thread::id job;
  std::thread::id done;
  pool.run([&] { job = std::this_thread::get_id(); }, [&] { done = std::this_thread::get_id(); });
  // The job under way keeps the loop running.
  loop.run();
  EXPECT_NE(std::this_thread::get_id(), job);
  EXPECT_EQ(std::this_thread::get_id(), done);
}

TEST(Pool, runs_as_many_jobs_at_once_as_it_has_threads) {
  Loop loop;
  Pool pool(loop, 3);
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  std::atomic<int> met = 0;
  int done = 0;
  std::promise<void> together;
  const std::shared_future<void> all = together.get_future().share();
  for (int i = 0; i < 9; ++i) {
    pool.run(
        [&] {
          const int now = ++running;
          for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
          }
          if (++met == 3) together.set_value();
          all.wait();
          --running;
        },
        [&] { ++done; });
  }
  loop.run();
  EXPECT_EQ(9, done);
  EXPECT_EQ(3, most);
}

TEST(Pool, queued_jobs_are_dropped_at_its_end_and_running_ones_waited_for) {
  Loop loop;
  std::promise<void> begun;
  std::promise<void> go;
  bool finished = false;
  bool queued_ran = false;
  std::thread opener;
  {
    Pool pool(loop, 1);
    pool.run(
        [&] {
          begun.set_value();
          go.get_future().wait();
          finished = true;
        },
        [] {});
    pool.run([&] { queued_ran = true; }, [&] { queued_ran = true; });
    begun.get_future().wait();
    opener = std::thread([&] {
      std::this_thread::sleep_for(Milliseconds{20});  // the destructor below is waiting by then
      go.set_value();
    });
  }
  EXPECT_TRUE(finished);
  opener.join();
  loop.run();
  EXPECT_FALSE(queued_ran);
}

}  // namespace weighlock
