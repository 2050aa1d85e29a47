// One accepted connection: reads a request, hands it over, writes the answer, reads the next.
//
//   reading -> answering -> reading ...       a request at a time; what comes early waits in `in_`, bounded
//      \           \-> draining -> closed     after the last answer the peer is let to read it before the socket goes
//       \-> closed
//
// Thread rule: loop thread only. Owned by its server's table; it leaves the table by calling `on_gone` once.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/net/http_text.hpp"
#include "weighlock/net/message_reader.hpp"
#include "weighlock/net/server.hpp"
#include "weighlock/runtime/watch.hpp"

namespace weighlock {

class ServerConnection;

// How a Responder on any thread reaches the loop, as long as the server lives.
struct Mailbox {
  std::mutex mutex;
  Loop* loop;  // null once the server is gone; guarded by `mutex`

  void post(std::function<void()> work);
};

// What a Responder and its connection share about one request.
struct ExchangeState {
  std::shared_ptr<Mailbox> mailbox;
  std::weak_ptr<ServerConnection> connection;  // loop thread only
  std::atomic<bool> answered{false};           // an answer was given or begun
  std::atomic<bool> ended{false};              // ... and handed over whole
  std::atomic<bool> closed{false};             // the peer is gone
  // The rest is the loop thread's.
  bool delivered = false;  // the answer is on its way, nobody waits for a hang-up any more
  std::vector<std::function<void()>> on_closed;
  std::function<void(const HttpResponse&)> on_answer;
};
using ExchangePointer = std::shared_ptr<ExchangeState>;

Responder responder_for(const ExchangePointer& exchange);

class ServerConnection : public std::enable_shared_from_this<ServerConnection> {
 public:
  struct Shared {  // the server's, outlives its connections
    Loop& loop;
    ServerLimits limits;
    std::shared_ptr<Mailbox> mailbox;
    HttpServer::Handler handler;
    std::function<void(ServerConnection*)> on_gone;
    std::list<ServerConnection*> idle = {};  // those between two requests, the longest first
    std::size_t requests_bytes = 0;          // held for requests that aren't handed over yet
  };

  ServerConnection(Shared& shared, int socket);

  void start();
  // Answers 503 to whatever comes, for a connection too many.
  void refuse_busy();
  void close(bool abruptly);

  // The Responder's deeds; each is ignored unless `exchange` is the one being answered.
  void respond(const ExchangePointer& exchange, const HttpResponse& response);
  void respond_apart(const ExchangePointer& exchange, const HttpResponse& head,
                     const std::shared_ptr<const std::string>& body);
  void begin_stream(const ExchangePointer& exchange, const HttpResponse& head);
  void write_stream(const ExchangePointer& exchange, const std::string& bytes);
  void end_stream(const ExchangePointer& exchange);
  void answer_raw(const ExchangePointer& exchange, std::string bytes);
  void answer_dripping(const ExchangePointer& exchange, const HttpResponse& response, Milliseconds per_byte);
  void hang(const ExchangePointer& exchange);
  void abort(const ExchangePointer& exchange, bool reset);

 private:
  enum class State { reading, answering, draining, closed };

  bool current(const ExchangePointer& exchange) const { return state_ == State::answering && exchange == exchange_; }
  void arm_read();
  void on_readable();
  void on_end_of_input();
  void read_request();
  void begin_request();
  void continue_if_expected();
  void dispatch();
  void refuse(int status, std::string detail);  // by value: the reader goes, and its words with it
  void account(std::size_t bytes);
  void begin_idle();
  void end_idle();
  void set_timer(Milliseconds delay, void (ServerConnection::*expired)());
  void stop_timer();
  void on_read_timeout();
  void on_idle();
  void on_stall();
  void send(std::string bytes);
  void flush();
  std::size_t out_bytes() const { return out_.size() + (apart_ ? apart_->size() : 0); }
  ssize_t send_some();
  void on_flushed();
  void finish_answer(bool keep_alive);
  void drip_next(Milliseconds per_byte);
  void drain();
  void peer_gone();
  AnswerFraming framing(const HttpResponse& response) const;

  Shared& shared_;
  Watch watch_;
  State state_ = State::reading;
  std::string in_;
  std::string out_;
  std::shared_ptr<const std::string> apart_;  // goes out after `out_`; others read it, too
  std::size_t out_sent_ = 0;                  // of both together
  std::optional<RequestReader> reader_;
  std::optional<std::list<ServerConnection*>::iterator> idle_place_;
  std::size_t accounted_ = 0;  // our part of Shared::requests_bytes
  ExchangePointer exchange_;
  std::optional<Loop::TimerId> timer_;
  std::optional<Loop::TimerId> drip_timer_;
  std::string drip_;  // what a dripping answer has yet to send, reversed
  bool timing_request_ = false;
  bool before_first_line_ = false;
  bool input_ended_ = false;
  bool continued_ = false;
  bool to_head_ = false;
  bool chunked_ = false;
  bool streaming_ = false;
  bool hanging_ = false;
  bool answer_ended_ = false;  // all of the answer is in `out_`
  bool keep_alive_ = false;
};

}  // namespace weighlock
