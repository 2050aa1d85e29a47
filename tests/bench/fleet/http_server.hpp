// A small HTTP/1.1 server on epoll for many addresses at once: what the fleet of imposters answers with.
//
// It is a test tool that must never be what a benchmark measures, so it does little: one thread, requests with a
// Content-Length, answers that the caller has written out whole. It trusts its peers.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weighlock::bench {

using Clock = std::chrono::steady_clock;

struct Request {
  int address = 0;  // the number that `listen` gave
  std::string_view method;
  std::string_view target;
  std::string_view body;
  Clock::time_point received;
  std::uint64_t connection = 0;
};

class HttpServer {
 public:
  // Called once for each request, on the server's thread. The views hold until it returns; the request is answered with
  // `answer`, at once or later.
  using Handler = std::function<void(const Request&)>;

  explicit HttpServer(Handler handler);
  ~HttpServer();

  // Listens at host:port (port 0: any) and returns the number of this address. Ends the program when it can't.
  int listen(const std::string& host, int port);
  int port_of(int address) const;

  // `text` is the whole answer, status line included. A connection that is gone by then drops it.
  void answer(std::uint64_t connection, std::string text, bool close_after);
  void after(std::chrono::microseconds delay, std::function<void()> work);
  // Closes the connections of addresses in [first, last) that have no request under way; returns how many.
  int close_idle(int first, int last);

  void run();  // until the process ends
  std::uint64_t accepted() const { return accepted_; }
  // Requests that wait for their answer, on connections that are open: one that its client gave up isn't in flight.
  int in_flight() const { return in_flight_; }
  std::size_t open_connections() const { return connections_.size(); }

 private:
  struct Connection {
    int socket = -1;
    int address = 0;
    std::string in;
    std::string out;  // what the socket didn't take
    bool busy = false;
    bool close_after = false;
  };
  struct Timer {
    Clock::time_point due;
    std::uint64_t order;
    std::function<void()> work;
    bool operator>(const Timer& other) const { return due != other.due ? due > other.due : order > other.order; }
  };

  void accept_all(int address);
  void on_readable(std::uint64_t id);
  void take_requests(std::uint64_t id);
  void flush(std::uint64_t id, Connection& connection);
  void drop(std::uint64_t id);
  std::optional<timespec> next_timeout();

  Handler handler_;
  int epoll_ = -1;
  std::vector<int> listeners_;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  std::uint64_t next_connection_;
  std::uint64_t next_timer_ = 0;
  std::uint64_t accepted_ = 0;
  int in_flight_ = 0;
};

}  // namespace weighlock::bench
