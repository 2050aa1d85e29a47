// Bytes to and from a connected, non-blocking socket: plain, or under TLS. The caller waits for readiness and owns the
// socket.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace weighlock {

struct WireResult {
  enum class Kind { ok, want_read, want_write, end, failed };
  Kind kind = Kind::ok;
  std::size_t bytes = 0;  // ok: how many were read, or handed to the socket
  bool reset = false;     // failed: the peer reset the connection
  std::string text = {};  // failed: for people
};

class Wire {
 public:
  virtual ~Wire() = default;
  // ok once bytes may be exchanged.
  virtual WireResult handshake() = 0;
  virtual WireResult read(char* into, std::size_t size) = 0;
  virtual WireResult write(const char* from, std::size_t size) = 0;
  // Says goodbye, without waiting.
  virtual void farewell() {}
};

std::unique_ptr<Wire> plain_wire(int socket);

}  // namespace weighlock
