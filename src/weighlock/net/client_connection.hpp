// One connection to a peer: connects, sends a request and reads its answer, then may be used again.
//
// Thread rule: loop thread only. Each callback is called at most once; not after the object is gone, nor after
// `abandon`, and never inside the call that takes it. The owner may let go of the connection inside a callback.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/core/http.hpp"
#include "weighlock/net/answer_room.hpp"
#include "weighlock/net/message_reader.hpp"
#include "weighlock/net/socket.hpp"
#include "weighlock/net/tls.hpp"
#include "weighlock/net/wire.hpp"
#include "weighlock/runtime/watch.hpp"

namespace weighlock {

class ClientConnection : public std::enable_shared_from_this<ClientConnection> {
 public:
  // What came of connecting, or of an exchange. `broken_unanswered`: the connection ended before any byte of the
  // answer.
  struct Outcome {
    std::optional<HttpResponse> response;
    TransportError error;
    bool broken_unanswered = false;
  };
  using Done = std::function<void(Outcome)>;

  // `tls` null: plain. `host` names the peer to TLS.
  ClientConnection(Loop& loop, std::shared_ptr<const TlsContext> tls, std::string host);
  ~ClientConnection();

  // Tries the addresses one after the other; all of it, TLS included, may take `at_most`. `done` gets no response; an
  // error with an empty text is none.
  void connect(std::vector<SocketAddress> addresses, Milliseconds at_most, Done done);

  struct Expected {
    bool to_head = false;  // an answer without a body, whatever its header says
    std::size_t body_bytes_max = limits::kAnswerBodyBytesMax;
    std::shared_ptr<AnswerRoom::Place> place = {};  // a large body isn't read before it has room here
  };
  void exchange(std::string request, Expected expected, Done done);

  // Nothing is under way, and the last answer ended cleanly.
  bool idle() const { return state_ == State::idle; }
  // Nothing is under way, the last answer ended cleanly, and the peer has neither closed nor sent anything since.
  bool reusable();
  // Calls `gone` when an idle connection stops being reusable.
  void when_unusable(std::function<void()> gone);

  // Bytes of the present request that were handed to the socket.
  bool sent_any() const { return sent_any_; }
  std::size_t answer_bytes() const { return answer_bytes_; }

  // Closes by RST; no callback comes any more.
  void abandon();

 private:
  enum class State { fresh, connecting, handshaking, idle, busy, dead };

  void try_next();
  void on_connect_ready();
  void address_failed(TransportError::Kind kind, std::string text);
  void start_wire();
  void shake_hands();
  void connected();
  void finish(Outcome outcome);
  void fail(TransportError::Kind kind, std::string text, bool broken_unanswered = false);
  void wait_for(WireResult::Kind kind);
  void pump();
  bool pump_out();
  bool pump_in();
  bool take_answer(ReadState state);
  bool has_room();
  void on_broken(const WireResult& result);
  void on_idle_event();
  bool still_quiet();

  Loop& loop_;
  std::shared_ptr<const TlsContext> tls_;
  std::string host_;
  State state_ = State::fresh;
  std::vector<SocketAddress> addresses_;
  std::size_t next_address_ = 0;
  Instant connect_until_;
  Milliseconds connect_at_most_{0};
  std::optional<Loop::TimerId> connect_timer_;
  std::unique_ptr<Watch> watch_;
  std::unique_ptr<Wire> wire_;
  Done done_;
  std::function<void()> gone_;
  std::string out_;
  std::size_t out_sent_ = 0;
  bool sent_any_ = false;
  bool write_broken_ = false;
  std::string in_;
  std::size_t answer_bytes_ = 0;
  std::optional<AnswerReader> reader_;
  std::shared_ptr<AnswerRoom::Place> place_;  // until the body has entered
};

}  // namespace weighlock
