#include "http_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace weighlock::bench {
namespace {

// Events below this number are listeners', by address; connections are numbered from here.
constexpr std::uint64_t kFirstConnection = 1'000'000;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "fleet: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::size_t content_length(std::string_view head) {
  static constexpr std::string_view kName = "content-length:";
  for (std::size_t at = head.find("\r\n"); at != std::string_view::npos; at = head.find("\r\n", at + 2)) {
    const char* line = head.data() + at + 2;
    if (head.size() - at - 2 < kName.size() || strncasecmp(line, kName.data(), kName.size()) != 0) continue;
    return std::strtoul(line + kName.size(), nullptr, 10);
  }
  return 0;
}

}  // namespace

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)), next_connection_(kFirstConnection) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) die("epoll_create1");
}

HttpServer::~HttpServer() {
  for (const auto& [id, connection] : connections_) close(connection.socket);
  for (const int listener : listeners_) close(listener);
  close(epoll_);
}

int HttpServer::listen(const std::string& host, int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) die("socket");
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // accepted ones inherit it
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &where.sin_addr) != 1) die("inet_pton");
  if (bind(socket, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0) die("bind");
  if (::listen(socket, 512) != 0) die("listen");
  const int address = static_cast<int>(listeners_.size());
  listeners_.push_back(socket);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<std::uint64_t>(address);
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) != 0) die("epoll_ctl");
  return address;
}

int HttpServer::port_of(int address) const {
  sockaddr_in where{};
  socklen_t size = sizeof where;
  getsockname(listeners_[static_cast<std::size_t>(address)], reinterpret_cast<sockaddr*>(&where), &size);
  return ntohs(where.sin_port);
}

void HttpServer::accept_all(int address) {
  while (true) {
    const int socket =
        accept4(listeners_[static_cast<std::size_t>(address)], nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) return;
    ++accepted_;
    const std::uint64_t id = next_connection_++;
    connections_[id] = Connection{socket, address, {}, {}, false, false};
    epoll_event event{};
    event.events = EPOLLIN | EPOLLRDHUP;
    event.data.u64 = id;
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event) != 0) die("epoll_ctl");
  }
}

void HttpServer::drop(std::uint64_t id) {
  const auto node = connections_.extract(id);
  if (node.empty()) return;
  if (node.mapped().busy) --in_flight_;
  close(node.mapped().socket);
}

void HttpServer::on_readable(std::uint64_t id) {
  static std::array<char, 64 * 1024> buffer;
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const ssize_t got = recv(found->second.socket, buffer.data(), buffer.size(), 0);
  if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return drop(id);
  if (got < 0) return;
  found->second.in.append(buffer.data(), static_cast<std::size_t>(got));
  take_requests(id);
}

void HttpServer::take_requests(std::uint64_t id) {
  auto found = connections_.find(id);
  while (found != connections_.end() && !found->second.busy) {
    Connection& connection = found->second;
    const std::size_t head_end = connection.in.find("\r\n\r\n");
    if (head_end == std::string::npos) return;
    const std::string_view head(connection.in.data(), head_end);
    const std::size_t body_size = content_length(head);
    if (connection.in.size() < head_end + 4 + body_size) return;
    const std::string text = std::exchange(connection.in, connection.in.substr(head_end + 4 + body_size));
    const std::size_t method_end = text.find(' ');
    const std::size_t target_end = text.find(' ', method_end + 1);
    const std::string_view whole(text);
    connection.busy = true;
    ++in_flight_;
    handler_({connection.address, whole.substr(0, method_end),
              whole.substr(method_end + 1, target_end - method_end - 1), whole.substr(head_end + 4, body_size),
              Clock::now(), id});
    found = connections_.find(id);
  }
}

void HttpServer::answer(std::uint64_t id, std::string text, bool close_after) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  found->second.busy = false;
  --in_flight_;
  found->second.close_after = close_after;
  found->second.out += text;
  flush(id, found->second);
}

void HttpServer::flush(std::uint64_t id, Connection& connection) {
  const ssize_t sent = send(connection.socket, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
  if (sent < 0 && errno != EAGAIN) return drop(id);
  connection.out.erase(0, sent > 0 ? static_cast<std::size_t>(sent) : 0);
  if (!connection.out.empty()) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP;
    event.data.u64 = id;
    epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.socket, &event);
    return;
  }
  if (connection.close_after) drop(id);
}

void HttpServer::after(std::chrono::microseconds delay, std::function<void()> work) {
  timers_.push({Clock::now() + delay, next_timer_++, std::move(work)});
}

int HttpServer::close_idle(int first, int last) {
  std::vector<std::uint64_t> idle;
  for (const auto& [id, connection] : connections_) {
    if (connection.address >= first && connection.address < last && !connection.busy) idle.push_back(id);
  }
  for (const std::uint64_t id : idle) drop(id);
  return static_cast<int>(idle.size());
}

std::optional<timespec> HttpServer::next_timeout() {
  while (!timers_.empty() && timers_.top().due <= Clock::now()) {
    const std::function<void()> work = timers_.top().work;
    timers_.pop();
    work();
  }
  if (timers_.empty()) return std::nullopt;
  const std::chrono::nanoseconds left = std::max<Clock::duration>(timers_.top().due - Clock::now(), Clock::duration(0));
  return timespec{left.count() / 1'000'000'000, left.count() % 1'000'000'000};
}

void HttpServer::run() {
  std::array<epoll_event, 256> events;
  while (true) {
    const std::optional<timespec> timeout =
        next_timeout();  // in ns: epoll_wait's milliseconds would be counted as ours
    const int count =
        epoll_pwait2(epoll_, events.data(), static_cast<int>(events.size()), timeout ? &*timeout : nullptr, nullptr);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const std::uint64_t id = event.data.u64;
      if (id < kFirstConnection) {
        accept_all(static_cast<int>(id));
        continue;
      }
      if ((event.events & EPOLLOUT) != 0) {
        if (const auto found = connections_.find(id); found != connections_.end()) flush(id, found->second);
      }
      if ((event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) on_readable(id);
    }
  }
}

}  // namespace weighlock::bench
