#include "weighlock/net/server.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <unordered_map>

#include "weighlock/core/check.hpp"
#include "weighlock/net/server_connection.hpp"
#include "weighlock/net/socket.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {

namespace {

constexpr int kAcceptsPerTurn = 64;        // then other sockets get their turn
constexpr std::size_t kRefusalsMax = 256;  // connections beyond the limit that are told so; the rest is reset
constexpr Milliseconds kBindAgain{10};
constexpr Milliseconds kAcceptPause{100};  // out of descriptors: some get free, or not

int bound_port(int socket) {
  SocketAddress bound;
  bound.size = sizeof bound.storage;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) return 0;
  return bound.family() == AF_INET6 ? ntohs(reinterpret_cast<sockaddr_in6*>(&bound.storage)->sin6_port)
                                    : ntohs(reinterpret_cast<sockaddr_in*>(&bound.storage)->sin_port);
}

// For `errno` as the step left it.
Error cannot_listen(const std::string& host, int port, const char* step) {
  return Error{ErrorCode::internal,
               fmt::format("cannot listen on '{}:{}': {}: {}", host, port, step, std::strerror(errno))};
}

}  // namespace

struct HttpServer::Implementation {
  ServerConnection::Shared shared;
  std::unordered_map<ServerConnection*, std::shared_ptr<ServerConnection>> connections;
  std::unique_ptr<Watch> listening;
  std::optional<Loop::TimerId> pause;
  std::size_t refusals_max = kRefusalsMax;
  int port = 0;

  Implementation(Loop& loop, Handler handler)
      : shared{loop, {}, std::make_shared<Mailbox>(), std::move(handler), [this](ServerConnection* gone) {
                 connections.erase(gone);
               }} {
    shared.mailbox->loop = &loop;
  }

  void arm_accept() {
    listening->when_readable([this] { accept_some(); });
  }

  void accept_some() {
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      const int socket = ::accept4(listening->descriptor(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (socket >= 0) {
        admit(socket);
        continue;
      }
      if (errno == EAGAIN) break;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
        continue;  // that peer's own trouble
      log_warn("port {}: cannot accept a connection: {}; raise the limit of open files", port, std::strerror(errno));
      pause = shared.loop.after(kAcceptPause, [this] {
        pause.reset();
        arm_accept();
      });
      return;
    }
    arm_accept();
  }

  void admit(int socket) {
    set_no_delay(socket);
    if (connections.size() >= shared.limits.connections + refusals_max) {
      reset_on_close(socket);
      ::close(socket);
      return;
    }
    // The one that has been silent for longest makes room: who opens connections and says nothing keeps nobody out.
    if (connections.size() >= shared.limits.connections && !shared.idle.empty()) shared.idle.front()->close(false);
    const bool busy = connections.size() >= shared.limits.connections;
    const auto connection = std::make_shared<ServerConnection>(shared, socket);
    connections.emplace(connection.get(), connection);
    if (busy) {
      connection->refuse_busy();
    } else {
      connection->start();
    }
  }

  void take_limits(const ServerLimits& limits) {
    shared.limits = limits;
    const std::size_t descriptors = raise_descriptor_limit();
    const DescriptorShares shares = descriptor_shares(descriptors);
    refusals_max = std::min(refusals_max, shares.refused_clients);
    if (shares.clients >= limits.connections) return;
    shared.limits.connections = shares.clients;
    log_info("at most {} connections at a time, since {} files may be open; raise the limit of open files for more",
             shared.limits.connections, descriptors);
  }

  void stop_accepting() {
    if (pause) shared.loop.cancel(*pause);
    pause.reset();
    listening.reset();
  }

  void close_connections(bool abruptly) {
    const auto open = connections;  // each takes itself out
    for (const auto& entry : open) entry.second->close(abruptly);
  }
};

HttpServer::HttpServer(Loop& loop, Handler handler)
    : implementation_(std::make_unique<Implementation>(loop, std::move(handler))) {}

HttpServer::~HttpServer() {
  {
    const std::scoped_lock lock(implementation_->shared.mailbox->mutex);
    implementation_->shared.mailbox->loop = nullptr;
  }
  close();
}

Result<int> HttpServer::bind(const std::string& host, int port, Milliseconds patience) {
  const auto address = numeric_address(host, port);
  if (!address) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("cannot listen on '{}:{}': the host is not an IP address; use 0.0.0.0 or :: for all", host, port)};
  }
  const int socket = open_socket(address->family());
  if (socket < 0) return cannot_listen(host, port, "socket");
  const int on = 1;
  // Connections of an earlier process in TIME_WAIT don't keep a new one from its port.
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto give_up_at = std::chrono::steady_clock::now() + patience;
  while (::bind(socket, address->get(), address->size) != 0) {
    if (errno == EADDRINUSE && std::chrono::steady_clock::now() < give_up_at) {
      std::this_thread::sleep_for(kBindAgain);
      continue;
    }
    Error failure = cannot_listen(host, port, "bind");
    ::close(socket);
    return failure;
  }
  return socket;
}

Status HttpServer::listen(const Settings& settings) {
  WEIGHLOCK_CHECK(implementation_->listening == nullptr, "a server listens once");
  const bool lent = settings.socket >= 0;
  Result<int> bound =
      lent ? Result<int>(::fcntl(settings.socket, F_DUPFD_CLOEXEC, 0)) : bind(settings.host, settings.port);
  if (!bound) return std::move(bound).error();
  if (*bound < 0) return cannot_listen(settings.host, settings.port, "dup");
  if (::listen(*bound, limits::kListenBacklog) != 0) {
    Error failure = cannot_listen(settings.host, settings.port, "listen");
    ::close(*bound);
    return failure;
  }
  implementation_->take_limits(settings.limits);
  implementation_->port = bound_port(*bound);
  implementation_->listening = std::make_unique<Watch>(implementation_->shared.loop, *bound);
  implementation_->arm_accept();
  return {};
}

int HttpServer::port() const {
  return implementation_->port;
}
void HttpServer::stop_accepting() {
  // Reaches every copy of a lent socket; closing this one wouldn't.
  if (implementation_->listening) ::shutdown(implementation_->listening->descriptor(), SHUT_RD);
  implementation_->stop_accepting();
}

void HttpServer::close(bool abruptly) {
  implementation_->stop_accepting();
  implementation_->close_connections(abruptly);
}

}  // namespace weighlock
