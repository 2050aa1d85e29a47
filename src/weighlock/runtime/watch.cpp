#include "weighlock/runtime/watch.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>

#include "weighlock/runtime/asio_loop.hpp"

namespace weighlock {

namespace asio = boost::asio;
using Descriptor = asio::posix::stream_descriptor;

struct Watch::State : std::enable_shared_from_this<State> {
  State(asio::io_context& context, int fd) : descriptor(context, fd) {}

  Descriptor descriptor;
  std::function<void()> readable;
  std::function<void()> writable;
  bool read_armed = false;
  bool write_armed = false;

  void arm(Descriptor::wait_type type, std::function<void()> State::*callback, bool State::*armed) {
    if (this->*armed) return;
    this->*armed = true;
    descriptor.async_wait(type, [self = shared_from_this(), callback, armed](const boost::system::error_code& failed) {
      (*self).*armed = false;
      // Moved out first: the callback may arm again, or destroy the Watch.
      const std::function<void()> ready = std::exchange((*self).*callback, nullptr);
      if (!failed && ready) ready();
    });
  }

  void close() {
    readable = nullptr;
    writable = nullptr;
    boost::system::error_code ignored;
    descriptor.close(ignored);
  }
};

Watch::Watch(Loop& loop, int descriptor)
    : descriptor_(descriptor), state_(std::make_shared<State>(io_context_of(loop), descriptor)) {}

Watch::~Watch() {
  close();
}

void Watch::when_readable(std::function<void()> ready) {
  state_->readable = std::move(ready);
  state_->arm(Descriptor::wait_read, &State::readable, &State::read_armed);
}

void Watch::when_writable(std::function<void()> ready) {
  state_->writable = std::move(ready);
  state_->arm(Descriptor::wait_write, &State::writable, &State::write_armed);
}

void Watch::close() {
  state_->close();
}

}  // namespace weighlock
