#include "weighlock/runtime/watch.hpp"

#include <unistd.h>

#include "weighlock/runtime/asio_loop.hpp"
#include "weighlock/runtime/poller.hpp"

namespace weighlock {

struct Watch::State {
  Poller& poller;
  Poller::Id id;
  bool open = true;
};

Watch::Watch(Loop& loop, int descriptor)
    : descriptor_(descriptor),
      state_(std::make_shared<State>(State{poller_of(loop), poller_of(loop).add(descriptor)})) {}

Watch::~Watch() {
  close();
}

void Watch::when_readable(std::function<void()> ready) {
  if (state_->open) state_->poller.when_readable(state_->id, std::move(ready));
}

void Watch::when_writable(std::function<void()> ready) {
  if (state_->open) state_->poller.when_writable(state_->id, std::move(ready));
}

void Watch::close() {
  if (!std::exchange(state_->open, false)) return;
  state_->poller.remove(state_->id);
  ::close(descriptor_);
}

}  // namespace weighlock
