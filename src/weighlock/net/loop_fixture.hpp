// For tests of net/: a loop on a thread of its own, and plain blocking sockets on the test's thread.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "weighlock/core/http.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/net/server.hpp"
#include "weighlock/net/socket.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock::testing {

inline TransportError error_of(const HttpResult& result) {
  if (const auto* error = std::get_if<TransportError>(&result)) return *error;
  ADD_FAILURE() << "answered " << std::get<HttpResponse>(result).status;
  return {};
}

inline HttpResponse response_of(const HttpResult& result) {
  if (const auto* response = std::get_if<HttpResponse>(&result)) return *response;
  ADD_FAILURE() << name(std::get<TransportError>(result).kind) << ": " << std::get<TransportError>(result).text;
  return {0, {}, {}};
}

inline HttpCallOptions within(Milliseconds deadline) {
  return {.deadline = deadline};
}

// A blocking IPv4 socket whose reads fail after 5 s rather than hang a test.
class RawSocket {
 public:
  explicit RawSocket(int socket) : socket_(socket) {
    const timeval limit{5, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  static RawSocket connect_to(int port) {
    RawSocket made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto address = numeric_address("127.0.0.1", port);
    EXPECT_EQ(0, ::connect(made.socket_, address->get(), address->size));
    return made;
  }
  ~RawSocket() { close(); }
  RawSocket(RawSocket&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
  }

  int descriptor() const { return socket_; }
  void send(const std::string& bytes) const {
    for (std::size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return;  // the peer has had enough
      at += static_cast<std::size_t>(n);
    }
  }
  // What the peer sends until `end` has come, or the connection ends.
  std::string read_until(const std::string& end) const {
    std::string all;
    char byte = 0;
    while (!all.ends_with(end) && ::recv(socket_, &byte, 1, 0) == 1) all.push_back(byte);
    return all;
  }
  std::string read_to_end() const {
    std::string all;
    char some[4096];
    for (ssize_t n = 0; (n = ::recv(socket_, some, sizeof some, 0)) > 0;) all.append(some, static_cast<std::size_t>(n));
    return all;
  }
  void reset() {
    reset_on_close(socket_);
    close();
  }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }
  void end_sending() const { ::shutdown(socket_, SHUT_WR); }

 private:
  int socket_;
};

class RawListener {
 public:
  explicit RawListener(int backlog = 16) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto any = numeric_address("127.0.0.1", 0);
    EXPECT_EQ(0, ::bind(socket_, any->get(), any->size));
    EXPECT_EQ(0, ::listen(socket_, backlog));
    const timeval limit{5, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);  // of accept
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&bound), &size);
    port_ = ntohs(bound.sin_port);
  }
  ~RawListener() { close(); }
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;

  int port() const { return port_; }
  RawSocket accept() const { return RawSocket(::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

 private:
  int socket_;
  int port_ = 0;
};

inline Url url_of(int port) {
  Url url{"http", "127.0.0.1", port, "", ""};
  url.text = "http://127.0.0.1:" + std::to_string(port);
  return url;
}

class LoopFixture : public ::testing::Test {
 protected:
  LoopFixture() {
    // Keeps run() from ending while a test has nothing under way.
    loop_.after(Milliseconds{3'600'000}, [] {});
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~LoopFixture() override {
    on_loop([this] {
      client_.reset();
      server_.reset();
    });
    loop_.stop();
    thread_.join();
  }

  void on_loop(const std::function<void()>& work) {
    std::promise<void> done;
    loop_.post([&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  void use_client(HttpClient::Settings settings) {
    on_loop([&] { client_ = std::make_unique<HttpClient>(loop_, std::move(settings)); });
  }

  int serve(HttpServer::Handler handler, ServerLimits limits = {}) {
    on_loop([&] {
      server_ = std::make_unique<HttpServer>(loop_, std::move(handler));
      HttpServer::Settings settings;
      settings.limits = limits;
      EXPECT_TRUE(server_->listen(settings));
    });
    return server_->port();
  }

  std::future<HttpResult> begin_call(const Url& peer, HttpRequest request, HttpCallOptions options = {}) {
    auto result = std::make_shared<std::promise<HttpResult>>();
    on_loop([&] {
      if (client_ == nullptr) client_ = std::make_unique<HttpClient>(loop_);
      last_call_ = client_->send(peer, std::move(request), options,
                                 [result](HttpResult got) { result->set_value(std::move(got)); });
    });
    return result->get_future();
  }
  HttpResult call(const Url& peer, HttpRequest request, HttpCallOptions options = {}) {
    return begin_call(peer, std::move(request), options).get();
  }

  Loop loop_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<HttpClient> client_;
  HttpClient::CallId last_call_ = 0;

 private:
  std::thread thread_;
};

}  // namespace weighlock::testing
