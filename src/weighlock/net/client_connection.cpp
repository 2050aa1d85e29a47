#include "weighlock/net/client_connection.hpp"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "weighlock/core/check.hpp"
#include "weighlock/core/limits.hpp"

namespace weighlock {

namespace {

using Kind = TransportError::Kind;

std::array<char, 64 * 1024>& read_buffer() {
  // One for all connections of a thread: what is read goes on to the parser at once.
  static thread_local std::array<char, 64 * 1024> buffer;
  return buffer;
}

Kind connect_kind(int why) {
  if (why == ECONNREFUSED) return Kind::refused;
  if (why == ECONNRESET) return Kind::reset;
  if (why == ETIMEDOUT) return Kind::timeout;
  return Kind::unreachable;
}

std::string connect_text(int why) {
  if (why == ECONNREFUSED) return "connection refused";
  return fmt::format("cannot connect: {}", std::strerror(why));
}

std::string seconds(Milliseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

ClientConnection::ClientConnection(Loop& loop, std::shared_ptr<const TlsContext> tls, std::string host)
    : loop_(loop), tls_(std::move(tls)), host_(std::move(host)) {}

ClientConnection::~ClientConnection() {
  if (connect_timer_) loop_.cancel(*connect_timer_);
  if (state_ == State::idle && wire_ != nullptr) wire_->farewell();
}

void ClientConnection::abandon() {
  if (watch_ != nullptr) reset_on_close(watch_->descriptor());
  if (connect_timer_) loop_.cancel(*connect_timer_);
  connect_timer_.reset();
  state_ = State::dead;
  wire_.reset();
  watch_.reset();
  done_ = nullptr;
  gone_ = nullptr;
}

void ClientConnection::finish(Outcome outcome) {
  if (connect_timer_) loop_.cancel(*connect_timer_);
  connect_timer_.reset();
  const Done done = std::exchange(done_, nullptr);
  if (done) done(std::move(outcome));
}

void ClientConnection::fail(Kind kind, std::string text, bool broken_unanswered) {
  const bool nothing_sent = !sent_any_;
  state_ = State::dead;
  // Data of the request that still waits here must not be delivered after it was reported as failed.
  if (watch_ != nullptr) reset_on_close(watch_->descriptor());
  wire_.reset();
  watch_.reset();
  finish({std::nullopt, {kind, nothing_sent, std::move(text)}, broken_unanswered});
}

// Connecting

void ClientConnection::connect(std::vector<SocketAddress> addresses, Milliseconds at_most, Done done) {
  WEIGHLOCK_CHECK(state_ == State::fresh && !addresses.empty(), "a fresh connection connects once");
  state_ = State::connecting;
  addresses_ = std::move(addresses);
  connect_at_most_ = at_most;
  connect_until_ = loop_.now() + at_most;
  done_ = std::move(done);
  // Not at once: a refusal by this very host may be known immediately.
  loop_.post([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && self->state_ == State::connecting) self->try_next();
  });
}

void ClientConnection::try_next() {
  const SocketAddress& address = addresses_[next_address_];
  const std::size_t left = addresses_.size() - next_address_++;
  const int socket = open_socket(address.family());
  if (socket < 0)
    return address_failed(Kind::unreachable, fmt::format("cannot open a socket: {}", std::strerror(errno)));
  watch_ = std::make_unique<Watch>(loop_, socket);
  if (::connect(socket, address.get(), address.size) != 0 && errno != EINPROGRESS) {
    return address_failed(connect_kind(errno), connect_text(errno));
  }
  // Each address gets an equal share of what is left, so that a dead first one doesn't use it up.
  const Milliseconds share = std::max(Milliseconds{1}, (connect_until_ - loop_.now()) / static_cast<int>(left));
  connect_timer_ = loop_.after(share, [this] {
    const auto keep = shared_from_this();
    connect_timer_.reset();
    address_failed(Kind::timeout, fmt::format("no connection within {}", seconds(connect_at_most_)));
  });
  watch_->when_writable([this] {
    const auto keep = shared_from_this();
    on_connect_ready();
  });
}

void ClientConnection::on_connect_ready() {
  int why = 0;
  socklen_t size = sizeof why;
  ::getsockopt(watch_->descriptor(), SOL_SOCKET, SO_ERROR, &why, &size);
  if (why != 0) return address_failed(connect_kind(why), connect_text(why));
  start_wire();
}

void ClientConnection::address_failed(Kind kind, std::string text) {
  if (connect_timer_) loop_.cancel(*connect_timer_);
  connect_timer_.reset();
  watch_.reset();
  if (next_address_ < addresses_.size()) return try_next();
  fail(kind, std::move(text));
}

void ClientConnection::start_wire() {
  if (tls_ == nullptr) {
    wire_ = plain_wire(watch_->descriptor());
    return connected();
  }
  state_ = State::handshaking;
  wire_ = tls_->connect(watch_->descriptor(), host_);
  shake_hands();
}

void ClientConnection::shake_hands() {
  const WireResult result = wire_->handshake();
  if (result.kind == WireResult::Kind::ok) return connected();
  if (result.kind == WireResult::Kind::want_read || result.kind == WireResult::Kind::want_write) {
    return wait_for(result.kind);
  }
  // An address that connects but fails in TLS is the peer all the same: no other one is tried.
  const std::string why = result.text.empty() ? "the peer closed the connection" : result.text;
  fail(Kind::tls, fmt::format("TLS handshake with '{}' failed: {}", host_, why));
}

void ClientConnection::connected() {
  state_ = State::idle;
  finish({});
}

// Exchanging

void ClientConnection::exchange(std::string request, Expected expected, Done done) {
  WEIGHLOCK_CHECK(state_ == State::idle, "one exchange at a time");
  state_ = State::busy;
  gone_ = nullptr;
  done_ = std::move(done);
  out_ = std::move(request);
  out_sent_ = 0;
  sent_any_ = false;
  answer_bytes_ = 0;
  in_.clear();
  reader_.emplace(ReaderLimits{limits::kAnswerHeaderBytesMax, expected.body_bytes_max}, expected.to_head);
  place_ = std::move(expected.place);
  // Nearly always it fits into the socket at once. What went wrong is found by `pump`, since nothing is told from here.
  const WireResult result = wire_->write(out_.data(), out_.size());
  if (result.kind == WireResult::Kind::ok) {
    sent_any_ = true;
    out_sent_ = result.bytes;
  } else if (tls_ != nullptr && result.kind != WireResult::Kind::failed) {
    sent_any_ = true;  // part of a record may be out
  }
  wait_for(out_sent_ == out_.size() ? WireResult::Kind::want_read : WireResult::Kind::want_write);
}

void ClientConnection::wait_for(WireResult::Kind kind) {
  const auto event = [this] {
    const auto keep = shared_from_this();
    if (state_ == State::handshaking) return shake_hands();
    if (state_ == State::busy) return pump();
    if (state_ == State::idle) on_idle_event();
  };
  if (kind == WireResult::Kind::want_write) return watch_->when_writable(event);
  watch_->when_readable(event);
}

// Reads before it writes: an early answer, or the end of a connection that was kept too long, is seen first.
void ClientConnection::pump() {
  if (!pump_in()) return;
  pump_out();
}

// False once the exchange is over.
bool ClientConnection::pump_out() {
  while (out_sent_ < out_.size() && !write_broken_) {
    const WireResult result = wire_->write(out_.data() + out_sent_, out_.size() - out_sent_);
    if (result.kind == WireResult::Kind::ok) {
      sent_any_ = true;
      out_sent_ += result.bytes;
      continue;
    }
    if (result.kind == WireResult::Kind::want_read || result.kind == WireResult::Kind::want_write) {
      // Under TLS part of a record may be out already.
      if (tls_ != nullptr) sent_any_ = true;
      wait_for(result.kind);
      return true;
    }
    if (!sent_any_) {
      on_broken(result);
      return false;
    }
    // The peer stopped reading; its answer may be here already.
    write_broken_ = true;
    return pump_in();
  }
  return true;
}

bool ClientConnection::pump_in() {
  while (true) {
    const WireResult result = wire_->read(read_buffer().data(), read_buffer().size());
    switch (result.kind) {
      case WireResult::Kind::ok:
        answer_bytes_ += result.bytes;
        in_.append(read_buffer().data(), result.bytes);
        if (!take_answer(reader_->feed(in_))) return false;
        if (!has_room()) return true;
        break;
      case WireResult::Kind::want_read:
      case WireResult::Kind::want_write:
        wait_for(result.kind);
        return true;
      case WireResult::Kind::end:
        if (answer_bytes_ > 0) {
          take_answer(reader_->end());
        } else {
          on_broken(result);
        }
        return false;
      case WireResult::Kind::failed:
        on_broken(result);
        return false;
    }
  }
}

// False while others take the room that this body needs: then nothing is read, and the peer waits.
bool ClientConnection::has_room() {
  const std::optional<std::size_t> bytes = place_ ? reader_->body_to_come() : std::nullopt;
  if (!bytes) return true;
  const auto place = std::exchange(place_, nullptr);  // its owner keeps it
  return place->enter(*bytes, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self != nullptr && self->state_ == State::busy) self->pump();
  });
}

bool ClientConnection::take_answer(ReadState state) {
  if (state == ReadState::more) return true;
  if (state == ReadState::failed) {
    fail(reader_->failure(), reader_->failure_text());
    return false;
  }
  const bool clean = reader_->keep_alive() && in_.empty() && out_sent_ == out_.size() && !write_broken_;
  state_ = clean ? State::idle : State::dead;
  out_.clear();
  out_.shrink_to_fit();
  HttpResponse response = reader_->take();
  if (watch_) response.local_address = local_address(watch_->descriptor());
  reader_.reset();
  finish({std::move(response), {}, false});
  return false;
}

void ClientConnection::on_broken(const WireResult& result) {
  const bool closed = result.kind == WireResult::Kind::end;
  const std::string how = closed ? "closed" : result.reset ? "reset" : fmt::format("broken ({})", result.text);
  if (answer_bytes_ == 0) {
    const std::string when = sent_any_ ? "before any answer byte" : "before the request was sent";
    return fail(Kind::reset, fmt::format("connection {} {}", how, when), true);
  }
  fail(Kind::reset, fmt::format("connection {} in the middle of the answer, after {} bytes", how, answer_bytes_));
}

// Idle

bool ClientConnection::reusable() {
  return state_ == State::idle && still_quiet();
}

// TLS may have things of its own to read (session tickets); data of HTTP, or the end, spoils the connection.
bool ClientConnection::still_quiet() {
  char byte = 0;
  const WireResult result = wire_->read(&byte, 1);
  if (result.kind == WireResult::Kind::want_read) return true;
  state_ = State::dead;
  return false;
}

void ClientConnection::when_unusable(std::function<void()> gone) {
  WEIGHLOCK_CHECK(state_ == State::idle, "only an idle connection is watched");
  gone_ = std::move(gone);
  wait_for(WireResult::Kind::want_read);
}

void ClientConnection::on_idle_event() {
  if (still_quiet()) return wait_for(WireResult::Kind::want_read);
  const auto gone = std::exchange(gone_, nullptr);
  if (gone) gone();
}

}  // namespace weighlock
