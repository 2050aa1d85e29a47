// An HTTP/1.1 server: strict about framing, bounded in everything (core/limits.hpp), port 0 for tests.
//
// Thread rule: loop thread only, but for `Responder`, whose members may be called from any thread (they post to the
// loop). Requests that a client sends ahead are handed over one at a time, so answers keep their order. For HEAD the
// handler answers as for GET; the body is left out. Framing headers of an answer (Content-Length, Transfer-Encoding,
// Connection) are the server's own; "Connection: close" in an answer's headers closes the connection after it. A
// request is refused before the handler sees it: 400 for Transfer-Encoding other than exactly "chunked", together with
// Content-Length, or on HTTP/1.0; 413, 414, 431, 408 for size and time, 503 when too many connections or too many
// bytes of requests are held; each with `Connection: close` and a problem body.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "weighlock/core/http.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/core/time.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {

// The one answer to one request. Dropping the last copy without an answer sends 500; dropping it in the middle of a
// stream closes the connection. A second answer is ignored. Once the server is gone all members do nothing.
//
// A peer that only closes its sending side counts as hung up, but still gets an answer that comes.
class Responder {
 public:
  struct Exchange;
  explicit Responder(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  void respond(HttpResponse response) const;
  // The same, with a body that many answers share: it is sent from where it lies, never copied. `head.body` is unused.
  void respond(HttpResponse head, std::shared_ptr<const std::string> body) const;

  // A streamed answer (server-sent events): head first, then any number of writes, then end. A write after the peer has
  // gone is dropped; `closed()` tells.
  void begin_stream(HttpResponse head) const;
  void write(std::string bytes) const;
  void end_stream() const;
  bool closed() const;
  // Runs `on_closed` on the loop when the peer hangs up before or during the answer.
  void on_closed(std::function<void()> on_closed) const;
  // Loop thread only, before there is an answer: looks at it, on the loop, when it is handed over whole. Streams,
  // bodies that are shared and faults don't come here, nor what has nobody to go to.
  void on_answer(std::function<void(const HttpResponse&)> on_answer) const;

  // For the programs that play faulty peers (tinyengine, tests).
  void reset() const;                 // closes by RST without an answer
  void raw(std::string bytes) const;  // writes these bytes instead of an HTTP answer, then closes
  void drip(HttpResponse response, Milliseconds per_byte) const;  // the right answer, a byte at a time
  void hang() const;                                              // keeps the connection open and never answers

 private:
  std::shared_ptr<Exchange> exchange_;
};

// The defaults are what core/limits.hpp says and why; tests set smaller ones.
struct ServerLimits {
  std::size_t header_bytes = limits::kRequestHeaderBytesMax;
  std::size_t body_bytes = limits::kRequestBodyBytesMax;
  std::size_t requests_bytes = limits::kRequestsBytesMax;  // of all connections together
  std::size_t connections = limits::kConnectionsMax;
  std::size_t stream_backlog_bytes = limits::kStreamBacklogBytesMax;
  Milliseconds request_read{limits::kRequestReadTimeout};
  Milliseconds idle{limits::kIdleTimeout};
  Milliseconds answer_stall{limits::kAnswerStallTimeout};
};

class HttpServer {
 public:
  struct Settings {
    std::string host = "127.0.0.1";  // an address, not a name
    int port = 0;                    // 0: any free one
    int socket = -1;  // one that `bind` made, of whoever lends it: it stays open, and keeps its queue, when this goes
    ServerLimits limits = {};
  };
  using Handler = std::function<void(HttpRequest, Responder)>;

  HttpServer(Loop& loop, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // A socket for Settings::socket that nobody can connect to yet; the caller's to close. A port in use is tried for
  // again until `patience` is over: a process that was killed holds it until its last thread is gone. Blocks.
  static Result<int> bind(const std::string& host, int port, Milliseconds patience = Milliseconds{0});
  // Binds, unless a socket is lent, and accepts. `port()` is the real one afterwards.
  Status listen(const Settings& settings);
  int port() const;
  // For good: who connects from now on is refused, also where the socket is lent. Open connections go on.
  void stop_accepting();
  // Closes the listening socket and every connection (by reset if `abruptly`). A lent socket goes on taking connections
  // into its queue, for the next server.
  void close(bool abruptly = false);

  struct Implementation;

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
