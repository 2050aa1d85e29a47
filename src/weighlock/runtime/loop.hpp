// The event loop: one thread, on which every decision and every socket of a gateway lives.
//
// Thread rule: everything but `post` and `stop` is called on the loop's own thread. Callbacks run on it, one at a time.
// Asio stays behind this header; net/ reaches it by `runtime/asio_loop.hpp`, which only .cpp files include.
#pragma once

#include <functional>
#include <memory>

#include "weighlock/core/time.hpp"

namespace weighlock {

class Loop {
 public:
  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs until `stop`, or until nothing is left to do.
  void run();
  void stop();

  // Queues `work` for the loop's thread; never runs it at once. Safe from any thread.
  void post(std::function<void()> work);

  // Monotonic time since the loop was made.
  Instant now() const;

  // Runs `work` once after `delay`, unless cancelled. The id is never used twice.
  using TimerId = std::uint64_t;
  TimerId after(Milliseconds delay, std::function<void()> work);
  void cancel(TimerId id);  // no effect if it ran already

  // Calls `handler(signal number)` once for each SIGTERM or SIGINT.
  void on_signal(std::function<void(int)> handler);

  struct Implementation;
  Implementation& implementation() { return *implementation_; }

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
