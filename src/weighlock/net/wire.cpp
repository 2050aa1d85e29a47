#include "weighlock/net/wire.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace weighlock {

namespace {

class PlainWire final : public Wire {
 public:
  explicit PlainWire(int socket) : socket_(socket) {}

  WireResult handshake() override { return {}; }

  WireResult read(char* into, std::size_t size) override {
    const ssize_t n = ::recv(socket_, into, size, 0);
    if (n == 0) return {.kind = WireResult::Kind::end};
    return result(n, WireResult::Kind::want_read);
  }

  WireResult write(const char* from, std::size_t size) override {
    return result(::send(socket_, from, size, MSG_NOSIGNAL), WireResult::Kind::want_write);
  }

 private:
  static WireResult result(ssize_t n, WireResult::Kind to_wait) {
    if (n >= 0) return {.bytes = static_cast<std::size_t>(n)};
    if (errno == EAGAIN || errno == EINTR) return {.kind = to_wait};
    const bool reset = errno == ECONNRESET || errno == EPIPE;
    return {.kind = WireResult::Kind::failed, .reset = reset, .text = std::strerror(errno)};
  }

  int socket_;
};

}  // namespace

std::unique_ptr<Wire> plain_wire(int socket) {
  return std::make_unique<PlainWire>(socket);
}

}  // namespace weighlock
