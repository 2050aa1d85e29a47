#include "weighlock/net/socket.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>

namespace weighlock {

void SocketAddress::set_port(int port) {
  // Both families keep it at the same place, but the types must agree.
  const auto number = htons(static_cast<std::uint16_t>(port));
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = number;
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = number;
  }
}

std::optional<SocketAddress> numeric_address(const std::string& host, int port) {
  SocketAddress address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    address.size = sizeof(sockaddr_in);
    address.set_port(port);
    return address;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    address.size = sizeof(sockaddr_in6);
    address.set_port(port);
    return address;
  }
  return std::nullopt;
}

std::string local_address(int socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return "";
  char digits[INET6_ADDRSTRLEN] = {};
  const void* from = nullptr;
  if (storage.ss_family == AF_INET) from = &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr;
  if (storage.ss_family == AF_INET6) from = &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
  if (from == nullptr || inet_ntop(storage.ss_family, from, digits, sizeof digits) == nullptr) return "";
  return digits;
}

int open_socket(int family) {
  const int socket = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
  if (socket >= 0) set_no_delay(socket);
  return socket;
}

std::size_t raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max && ::setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<std::size_t>(limit.rlim_cur);
}

DescriptorShares descriptor_shares(std::size_t limit) {
  constexpr std::size_t kKept = 48;      // a gateway has 30 open when nobody calls
  constexpr std::size_t kCallsMin = 16;  // with fewer nothing is done in time
  const std::size_t rest = limit / 2 > kKept ? limit / 2 - kKept : 0;
  return DescriptorShares{limit * 7 / 16, limit / 16, std::max(rest, kCallsMin)};
}

void set_no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void reset_on_close(int socket) {
  const linger at_once{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

}  // namespace weighlock
