// Waits until a descriptor can be read or written; the loop's part of every socket.
//
// Thread rule: loop thread only. A Watch owns its descriptor and closes it. No callback runs once the Watch is gone, or
// after `close`; a callback may destroy the Watch that calls it. Callbacks never run inside the call that arms them.
#pragma once

#include <functional>
#include <memory>

#include "weighlock/runtime/loop.hpp"

namespace weighlock {

class Watch {
 public:
  // `descriptor` must be pollable and non-blocking.
  Watch(Loop& loop, int descriptor);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int descriptor() const { return descriptor_; }

  // Calls `ready` once, as soon as a read (or write) would not block: data, end, or an error to be read. While one is
  // armed, arming it again only replaces the callback.
  void when_readable(std::function<void()> ready);
  void when_writable(std::function<void()> ready);

  void close();

 private:
  struct State;
  int descriptor_;
  std::shared_ptr<State> state_;
};

}  // namespace weighlock
