#include "weighlock/runtime/pool.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "weighlock/core/check.hpp"
#include "weighlock/runtime/asio_loop.hpp"

namespace weighlock {

namespace {
using WorkGuard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;
}

struct Pool::Implementation {
  struct Job {
    std::function<void()> job;
    std::function<void()> done;
    WorkGuard guard;  // the loop has something left to do until `done` is posted
  };

  Loop& loop;
  std::mutex mutex;  // guards the two below
  std::deque<Job> queue;
  bool stopping = false;
  std::condition_variable changed;
  std::vector<std::thread> threads;

  explicit Implementation(Loop& on) : loop(on) {}

  void work() {
    while (true) {
      std::optional<Job> next;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return stopping || !queue.empty(); });
        if (stopping) return;
        next.emplace(std::move(queue.front()));
        queue.pop_front();
      }
      next->job();
      next->job = nullptr;  // what it holds is released before `done` can run
      loop.post(std::move(next->done));
    }
  }
};

Pool::Pool(Loop& loop, std::size_t threads) : implementation_(std::make_unique<Implementation>(loop)) {
  WEIGHLOCK_CHECK(threads >= 1, "a pool has at least one thread");
  for (std::size_t i = 0; i < threads; ++i) {
    implementation_->threads.emplace_back([state = implementation_.get()] { state->work(); });
  }
}

Pool::~Pool() {
  {
    const std::scoped_lock lock(implementation_->mutex);
    implementation_->stopping = true;
  }
  implementation_->changed.notify_all();
  for (std::thread& thread : implementation_->threads) thread.join();
}

void Pool::run(std::function<void()> job, std::function<void()> done) {
  WorkGuard guard(io_context_of(implementation_->loop).get_executor());
  {
    const std::scoped_lock lock(implementation_->mutex);
    implementation_->queue.push_back({std::move(job), std::move(done), std::move(guard)});
  }
  implementation_->changed.notify_one();
}

}  // namespace weighlock
