#include "weighlock/runtime/loop.hpp"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "weighlock/core/check.hpp"
#include "weighlock/runtime/asio_loop.hpp"
#include "weighlock/runtime/poller.hpp"

namespace weighlock {

namespace asio = boost::asio;

struct Loop::Implementation {
  // The hint says that one thread runs the context; posts from other threads stay safe.
  asio::io_context context{1};
  using Time = std::chrono::steady_clock::time_point;

  Poller poller{context};
  Time start = std::chrono::steady_clock::now();
  // All timers wait behind one of Asio's: each call of the gateway has a few, and nearly all are cancelled.
  std::map<std::pair<Time, TimerId>, std::function<void()>> timers;
  std::unordered_map<TimerId, Time> due;
  asio::steady_timer earliest{context};
  std::optional<Time> armed_for;
  TimerId next_timer = 1;
  std::unique_ptr<asio::signal_set> signals;
  std::function<void(int)> signal_handler;
  std::atomic<std::thread::id> runner{};  // the thread in run(), or none

  void check_thread() const {
    const std::thread::id running = runner.load();
    WEIGHLOCK_CHECK(running == std::thread::id{} || running == std::this_thread::get_id(),
                    "a Loop is used from its own thread only");
  }

  void arm() {
    if (timers.empty()) {
      if (std::exchange(armed_for, std::nullopt)) earliest.cancel();
      return;
    }
    const Time next = timers.begin()->first.first;
    if (armed_for && *armed_for <= next) return;  // a wake-up for one that was cancelled does no harm
    armed_for = next;
    earliest.expires_at(next);
    earliest.async_wait([this](const boost::system::error_code& failed) {
      if (!failed) fire();
    });
  }

  void fire() {
    armed_for.reset();
    const Time now = std::chrono::steady_clock::now();
    while (!timers.empty() && timers.begin()->first.first <= now && !context.stopped()) {
      auto node = timers.extract(timers.begin());
      due.erase(node.key().second);
      node.mapped()();
    }
    arm();
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
  const Implementation::Time due = std::chrono::steady_clock::now() + delay;
  implementation_->due[id] = due;
  implementation_->timers.emplace(std::pair{due, id}, std::move(work));
  implementation_->arm();
  return id;
}

void Loop::cancel(TimerId id) {
  implementation_->check_thread();
  const auto node = implementation_->due.extract(id);
  if (node.empty()) return;
  implementation_->timers.erase({node.mapped(), id});
  if (implementation_->timers.empty()) implementation_->arm();
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

Poller& poller_of(Loop& loop) {
  return loop.implementation().poller;
}

}  // namespace weighlock
