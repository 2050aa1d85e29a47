#include "weighlock/net/server_connection.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>

#include "weighlock/net/socket.hpp"

namespace weighlock {

namespace {

using namespace std::chrono_literals;

// Of requests sent ahead while one is being answered; then the kernel's buffers push back.
constexpr std::size_t kReadAheadBytesMax = 64 * 1024;
// Of one answer, until the loop looks at its other connections: a large one to a fast reader must not hold them up.
constexpr std::size_t kTurnBytesMax = 256 * 1024;
// How long a peer may take to read a last answer and close. Closing with its bytes unread would send a reset, and the
// answer might be lost with it (RFC 9112, 9.6).
constexpr auto kDrainTimeout = 2s;

std::array<char, 64 * 1024>& read_buffer() {
  // One for all connections of a thread: an idle connection costs no buffer.
  static thread_local std::array<char, 64 * 1024> buffer;
  return buffer;
}

bool says_close(const HttpResponse& response) {
  std::string value(header(response.headers, "Connection"));
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
  return value == "close";
}

}  // namespace

void Mailbox::post(std::function<void()> work) {
  const std::scoped_lock lock(mutex);
  if (loop != nullptr) loop->post(std::move(work));
}

ServerConnection::ServerConnection(Shared& shared, int socket) : shared_(shared), watch_(shared.loop, socket) {}

void ServerConnection::start() {
  begin_idle();
  arm_read();
}

void ServerConnection::refuse_busy() {
  refuse(503, "too many connections; close idle ones or try again later");
  arm_read();
}

// Reading

void ServerConnection::arm_read() {
  if (state_ == State::closed || input_ended_) return;
  if (state_ == State::answering && in_.size() >= kReadAheadBytesMax) return;
  watch_.when_readable([this] {
    const auto keep = shared_from_this();
    on_readable();
  });
}

void ServerConnection::on_readable() {
  const ssize_t n = ::recv(watch_.descriptor(), read_buffer().data(), read_buffer().size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return arm_read();
  if (n < 0) return close(true);
  if (n == 0) return on_end_of_input();
  if (state_ == State::draining) return arm_read();
  in_.append(read_buffer().data(), static_cast<std::size_t>(n));
  if (state_ == State::reading) read_request();
  arm_read();
}

void ServerConnection::on_end_of_input() {
  input_ended_ = true;
  if (state_ != State::answering || hanging_) return close(false);
  peer_gone();
  if (streaming_) close(false);
}

void ServerConnection::begin_idle() {
  idle_place_ = shared_.idle.insert(shared_.idle.end(), this);
  set_timer(shared_.limits.idle, &ServerConnection::on_idle);
}

void ServerConnection::end_idle() {
  if (idle_place_) shared_.idle.erase(*idle_place_);
  idle_place_.reset();
}

void ServerConnection::begin_request() {
  end_idle();
  reader_.emplace(ReaderLimits{shared_.limits.header_bytes, shared_.limits.body_bytes});
  timing_request_ = true;
  before_first_line_ = true;
  continued_ = false;
  set_timer(shared_.limits.request_read, &ServerConnection::on_read_timeout);
}

void ServerConnection::read_request() {
  // The clock starts with the first byte, be it of an empty line, which is ignored (RFC 9112, 2.2).
  if (!timing_request_) begin_request();
  if (before_first_line_) {
    std::size_t at = 0;
    while (in_.compare(at, 2, "\r\n") == 0) at += 2;
    in_.erase(0, at);
    if (in_.empty() || in_ == "\r") return;
    before_first_line_ = false;
  }
  switch (reader_->feed(in_)) {
    case ReadState::more:
      account(reader_->body_bytes() + in_.size());
      if (shared_.requests_bytes > shared_.limits.requests_bytes && accounted_ > kReadAheadBytesMax)
        return refuse(503, "too many bytes of requests are held; try again later");
      return continue_if_expected();
    case ReadState::done:
      account(0);
      return dispatch();
    case ReadState::failed:
      return refuse(reader_->refusal_status(), reader_->refusal());
  }
}

void ServerConnection::continue_if_expected() {
  if (continued_ || !reader_->header_done() || !reader_->expects_continue()) return;
  continued_ = true;
  send("HTTP/1.1 100 Continue\r\n\r\n");
}

void ServerConnection::dispatch() {
  stop_timer();
  timing_request_ = false;
  state_ = State::answering;
  answer_ended_ = false;
  HttpRequest request = reader_->take();
  to_head_ = request.method == "HEAD";
  keep_alive_ = reader_->keep_alive();
  exchange_ = std::make_shared<ExchangeState>();
  exchange_->mailbox = shared_.mailbox;
  exchange_->connection = weak_from_this();
  if (input_ended_) exchange_->closed = true;
  shared_.handler(std::move(request), responder_for(exchange_));
}

void ServerConnection::account(std::size_t bytes) {
  shared_.requests_bytes += bytes - accounted_;
  accounted_ = bytes;
}

void ServerConnection::refuse(int status, std::string detail) {
  end_idle();
  stop_timer();
  account(0);
  reader_.reset();
  state_ = State::answering;
  keep_alive_ = false;
  answer_ended_ = true;
  in_.clear();
  HttpResponse refusal = problem(status, detail);
  if (status == 503) refusal.headers.push_back({"Retry-After", "1"});  // places get free as requests are answered
  send(answer_text(refusal, {.keep_alive = false}));
}

// Time

void ServerConnection::set_timer(Milliseconds delay, void (ServerConnection::*expired)()) {
  stop_timer();
  timer_ = shared_.loop.after(delay, [this, expired] {
    const auto keep = shared_from_this();
    timer_.reset();
    (this->*expired)();
  });
}

void ServerConnection::stop_timer() {
  if (timer_) shared_.loop.cancel(*timer_);
  timer_.reset();
}

void ServerConnection::on_read_timeout() {
  refuse(408, "the request was not complete in time");
}
void ServerConnection::on_idle() {
  close(false);
}
void ServerConnection::on_stall() {
  close(true);
}

// Writing

void ServerConnection::send(std::string bytes) {
  if (out_.empty()) {
    out_ = std::move(bytes);
  } else {
    out_ += bytes;
  }
  flush();
}

ssize_t ServerConnection::send_some() {
  std::string_view part = out_sent_ < out_.size() ? std::string_view(out_).substr(out_sent_)
                                                  : std::string_view(*apart_).substr(out_sent_ - out_.size());
  part = part.substr(0, kTurnBytesMax);
  const int more = out_sent_ + part.size() < out_bytes() ? MSG_MORE : 0;
  return ::send(watch_.descriptor(), part.data(), part.size(), MSG_NOSIGNAL | more);
}

void ServerConnection::flush() {
  if (state_ == State::closed) return;
  std::size_t turn = 0;
  while (out_sent_ < out_bytes() && turn < kTurnBytesMax) {
    const ssize_t n = send_some();
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return close(true);
    if (n < 0) break;
    out_sent_ += static_cast<std::size_t>(n);
    turn += static_cast<std::size_t>(n);
  }
  if (out_sent_ == out_bytes()) {
    out_.clear();
    apart_.reset();
    out_sent_ = 0;
    if (state_ == State::answering) stop_timer();
    return on_flushed();
  }
  if (state_ == State::answering && (turn > 0 || !timer_)) {
    set_timer(shared_.limits.answer_stall, &ServerConnection::on_stall);
  }
  watch_.when_writable([this] {
    const auto keep = shared_from_this();
    flush();
  });
}

// All that was to be written is written; was that the answer's end?
void ServerConnection::on_flushed() {
  if (state_ != State::answering || !answer_ended_) return;
  if (exchange_ != nullptr) {
    exchange_->delivered = true;
    exchange_->on_closed.clear();
    exchange_.reset();
  }
  streaming_ = false;
  if (!keep_alive_ || (input_ended_ && in_.empty())) return drain();
  state_ = State::reading;
  begin_idle();
  if (!in_.empty()) read_request();
  if (state_ == State::reading && input_ended_) return close(false);
  arm_read();
}

void ServerConnection::drain() {
  if (input_ended_) return close(false);
  ::shutdown(watch_.descriptor(), SHUT_WR);
  state_ = State::draining;
  in_.clear();
  set_timer(Milliseconds(kDrainTimeout), &ServerConnection::on_idle);
  arm_read();
}

void ServerConnection::peer_gone() {
  if (exchange_ == nullptr || exchange_->closed.exchange(true)) return;
  const auto callbacks = std::exchange(exchange_->on_closed, {});
  for (const auto& callback : callbacks) callback();
}

void ServerConnection::close(bool abruptly) {
  if (state_ == State::closed) return;
  const auto keep = shared_from_this();
  state_ = State::closed;
  end_idle();
  account(0);
  stop_timer();
  if (drip_timer_) shared_.loop.cancel(*drip_timer_);
  if (abruptly) reset_on_close(watch_.descriptor());
  watch_.close();
  peer_gone();
  exchange_.reset();
  shared_.on_gone(this);
}

// Answers

AnswerFraming ServerConnection::framing(const HttpResponse& response) const {
  return {.to_head = to_head_, .keep_alive = keep_alive_ && !says_close(response)};
}

void ServerConnection::finish_answer(bool keep_alive) {
  keep_alive_ = keep_alive;
  answer_ended_ = true;
}

void ServerConnection::respond(const ExchangePointer& exchange, const HttpResponse& response) {
  if (!current(exchange)) return;
  if (exchange->on_answer) exchange->on_answer(response);
  const AnswerFraming how = framing(response);
  finish_answer(how.keep_alive);
  send(answer_text(response, how));
}

void ServerConnection::respond_apart(const ExchangePointer& exchange, const HttpResponse& head,
                                     const std::shared_ptr<const std::string>& body) {
  if (!current(exchange)) return;
  AnswerFraming how = framing(head);
  how.apart = body->size();
  finish_answer(how.keep_alive);
  if (!to_head_) apart_ = body;
  send(answer_text(head, how));
}

void ServerConnection::begin_stream(const ExchangePointer& exchange, const HttpResponse& head) {
  if (!current(exchange)) return;
  AnswerFraming how = framing(head);
  how.streamed = true;
  chunked_ = how.chunked = reader_->http_1_1() && !to_head_;
  keep_alive_ = how.keep_alive = how.keep_alive && (chunked_ || to_head_);
  streaming_ = true;
  send(answer_text(head, how));
  if (input_ended_) close(false);
}

void ServerConnection::write_stream(const ExchangePointer& exchange, const std::string& bytes) {
  if (!current(exchange) || !streaming_ || bytes.empty() || to_head_) return;
  if (out_bytes() - out_sent_ > shared_.limits.stream_backlog_bytes) return close(true);
  send(chunked_ ? chunk_text(bytes) : bytes);
}

void ServerConnection::end_stream(const ExchangePointer& exchange) {
  if (!current(exchange) || !streaming_) return;
  finish_answer(keep_alive_);
  if (chunked_) return send(kLastChunk);
  flush();
}

void ServerConnection::answer_raw(const ExchangePointer& exchange, std::string bytes) {
  if (!current(exchange)) return;
  finish_answer(false);
  send(std::move(bytes));
}

void ServerConnection::answer_dripping(const ExchangePointer& exchange, const HttpResponse& response,
                                       Milliseconds per_byte) {
  if (!current(exchange)) return;
  const AnswerFraming how = framing(response);
  keep_alive_ = how.keep_alive;
  drip_ = answer_text(response, how);
  std::reverse(drip_.begin(), drip_.end());
  drip_next(per_byte);
}

void ServerConnection::drip_next(Milliseconds per_byte) {
  drip_timer_.reset();
  const char next = drip_.back();
  drip_.pop_back();
  if (drip_.empty()) {
    finish_answer(keep_alive_);
  } else {
    drip_timer_ = shared_.loop.after(per_byte, [this, per_byte] {
      const auto keep = shared_from_this();
      drip_next(per_byte);
    });
  }
  send(std::string(1, next));
}

void ServerConnection::hang(const ExchangePointer& exchange) {
  if (!current(exchange)) return;
  hanging_ = true;
  if (input_ended_) close(false);
}

void ServerConnection::abort(const ExchangePointer& exchange, bool reset) {
  if (current(exchange)) close(reset);
}

}  // namespace weighlock
