// A bounded pool of threads for what blocks: hashing, fsync, SQLite, directory walks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "weighlock/runtime/loop.hpp"

namespace weighlock {

class Pool {
 public:
  // `threads` at least 1. `loop` must outlive the pool.
  Pool(Loop& loop, std::size_t threads);
  ~Pool();  // waits for running jobs; queued ones are dropped
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Runs `job` on a thread of the pool, then `done` on the loop. Safe from any thread.
  void run(std::function<void()> job, std::function<void()> done);

  struct Implementation;

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
