#include "weighlock/runtime/loop.hpp"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <thread>
#include <unordered_map>

#include "weighlock/core/check.hpp"
#include "weighlock/runtime/asio_loop.hpp"

namespace weighlock {

namespace asio = boost::asio;

struct Loop::Implementation {
  // The hint says that one thread runs the context; posts from other threads stay safe.
  asio::io_context context{1};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  std::unordered_map<TimerId, asio::steady_timer> timers;
  TimerId next_timer = 1;
  std::unique_ptr<asio::signal_set> signals;
  std::function<void(int)> signal_handler;
  std::atomic<std::thread::id> runner{};  // the thread in run(), or none

  void check_thread() const {
    const std::thread::id running = runner.load();
    WEIGHLOCK_CHECK(running == std::thread::id{} || running == std::this_thread::get_id(),
                    "a Loop is used from its own thread only");
  }

  void wait_for_signal() {
    signals->async_wait([this](const boost::system::error_code& failed, int signal) {
      if (failed) return;
      wait_for_signal();
      signal_handler(signal);
    });
  }
};

Loop::Loop() : implementation_(std::make_unique<Implementation>()) {
  // A write to a closed pipe or TLS connection is an error to handle, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
}

Loop::~Loop() = default;

void Loop::run() {
  implementation_->runner = std::this_thread::get_id();
  implementation_->context.run();
  implementation_->runner = std::thread::id{};
  // Only now, so that a stop() before run() isn't lost.
  implementation_->context.restart();
}

void Loop::stop() {
  implementation_->context.stop();
}

void Loop::post(std::function<void()> work) {
  asio::post(implementation_->context, std::move(work));
}

Instant Loop::now() const {
  const auto elapsed = std::chrono::steady_clock::now() - implementation_->start;
  return Instant{std::chrono::duration_cast<Milliseconds>(elapsed).count()};
}

Loop::TimerId Loop::after(Milliseconds delay, std::function<void()> work) {
  implementation_->check_thread();
  const TimerId id = implementation_->next_timer++;
  auto& timer = implementation_->timers.try_emplace(id, implementation_->context, delay).first->second;
  timer.async_wait(
      [state = implementation_.get(), id, work = std::move(work)](const boost::system::error_code& failed) {
        // The map decides, not the code: a timer may be cancelled after it expired and before this runs.
        if (failed || state->timers.erase(id) == 0) return;
        work();
      });
  return id;
}

void Loop::cancel(TimerId id) {
  implementation_->check_thread();
  implementation_->timers.erase(id);
}

void Loop::on_signal(std::function<void(int)> handler) {
  implementation_->check_thread();
  implementation_->signal_handler = std::move(handler);
  if (implementation_->signals != nullptr) return;
  implementation_->signals = std::make_unique<asio::signal_set>(implementation_->context, SIGTERM, SIGINT);
  implementation_->wait_for_signal();
}

asio::io_context& io_context_of(Loop& loop) {
  return loop.implementation().context;
}

}  // namespace weighlock
