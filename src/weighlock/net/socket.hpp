// The few socket calls that server and client share. IPv4 and IPv6, non-blocking, close-on-exec, no Nagle delay.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

namespace weighlock {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  void set_port(int port);
};

// `host` as digits ("10.0.0.7", "fd00::7"), or nothing if it is a name.
std::optional<SocketAddress> numeric_address(const std::string& host, int port);

// The address at our end of a connected socket, as digits without brackets; "" = not known.
std::string local_address(int socket);

// A new TCP socket, or -1 with errno set.
int open_socket(int family);
// Raises the process' soft limit of open files to the hard one, as far as it may, and returns what holds then.
std::size_t raise_descriptor_limit();
// Who may open how many files, when `limit` may be open in all: half are for the clients' connections, some are kept
// for journal, storage, names and pools, the rest is for calls to workers.
struct DescriptorShares {
  std::size_t clients = 0;
  std::size_t refused_clients = 0;  // beyond those, to be told so
  std::size_t calls = 0;
};
DescriptorShares descriptor_shares(std::size_t limit);
void set_no_delay(int socket);
// The close that follows sends RST and drops what wasn't delivered.
void reset_on_close(int socket);

}  // namespace weighlock
