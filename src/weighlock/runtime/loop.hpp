// The event loop: one thread, on which every decision and every socket of a gateway lives.
//
// Thread rule: everything but `post` and `stop` is called on the loop's own thread. Callbacks run on it, one at a time.
// Before `run` the thread that made the loop may call everything. A wrong thread aborts (a check).
// Asio stays behind this header: descriptors are waited for with `runtime/watch.hpp`.
// Making a Loop sets SIGPIPE to be ignored, for the whole process.
#pragma once

#include <cstdint>
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

  // Runs until `stop`, or until nothing is left to do (a signal handler, an armed timer or an open server count as
  // something). May be called again afterwards. A `stop` before `run` makes that run return at once.
  void run();
  void stop();  // safe from any thread

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
