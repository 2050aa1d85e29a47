#include "weighlock/net/message_reader.hpp"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include <fmt/format.h>

#include "weighlock/core/check.hpp"

namespace weighlock {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using Failure = boost::system::error_code;

namespace {

// A peer that announces a large body and never sends it must not make us hold the room for it.
constexpr std::size_t kBodyReserveMax = 1024 * 1024;
constexpr std::size_t kUsualHeaders = 8;

std::string text(beast::string_view view) {
  return std::string(view.data(), view.size());
}

// What requests and answers have in common; `Message` is the value being filled.
template <bool kIsRequest, typename Message>
struct Collector : http::basic_parser<kIsRequest> {
  Message message;
  std::size_t header_bytes = 0;
  std::size_t header_bytes_max;
  int version = 0;
  int lengths = 0;
  int encodings = 0;
  bool chunked_exactly = false;
  bool header_ended = false;

  explicit Collector(ReaderLimits limits) : header_bytes_max(limits.header_bytes) {
    this->header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    this->body_limit(limits.body_bytes);
    this->eager(true);
    message.headers.reserve(kUsualHeaders);
  }

  void on_request_impl(http::verb, beast::string_view, beast::string_view, int, Failure&) override {}
  void on_response_impl(int, beast::string_view, int, Failure&) override {}

  void count(std::size_t bytes, Failure& failure) {
    header_bytes += bytes;
    if (header_bytes > header_bytes_max) failure = http::error::header_limit;
  }

  void on_field_impl(http::field field, beast::string_view name, beast::string_view value, Failure& failure) override {
    count(name.size() + value.size() + 4, failure);
    if (header_ended) return;  // a trailer
    // "2, 2" is two of them as well; Beast takes it for one.
    if (field == http::field::content_length) lengths += value.contains(',') ? 2 : 1;
    if (field == http::field::transfer_encoding) {
      ++encodings;
      chunked_exactly = beast::iequals(value, "chunked");
    }
    message.headers.push_back({text(name), text(value)});
  }

  // Why the framing isn't plain, or "".
  std::string_view framing_fault() const {
    if (encodings > 0 && version < 11) return "Transfer-Encoding on HTTP/1.0";
    if (encodings > 0 && lengths > 0) return "both Transfer-Encoding and Content-Length";
    if (encodings > 1) return "more than one Transfer-Encoding";
    if (encodings == 1 && !chunked_exactly) return "a Transfer-Encoding other than chunked";
    return {};
  }

  void on_body_init_impl(const boost::optional<std::uint64_t>& length, Failure&) override {
    if (length) message.body.reserve(std::min<std::uint64_t>(*length, kBodyReserveMax));
  }
  std::size_t on_body_impl(beast::string_view bytes, Failure&) override {
    message.body.append(bytes.data(), bytes.size());
    return bytes.size();
  }
  void on_chunk_header_impl(std::uint64_t, beast::string_view, Failure&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, beast::string_view bytes, Failure& failure) override {
    return on_body_impl(bytes, failure);
  }
  void on_finish_impl(Failure&) override {}

  // One step of the parser over `buffer`; `need_more` is no failure.
  Failure parse(std::string& buffer) {
    Failure failure;
    if (buffer.empty()) return failure;
    // What follows the header of a last chunk is at least its own end; Beast asserts that it isn't asked for less
    // again.
    constexpr std::size_t kLastChunkBytes = 5;  // "0", and two ends of line
    const bool may_be_last = this->is_header_done() && this->chunked() && buffer.front() == '0';
    if (may_be_last && buffer.size() < kLastChunkBytes) return failure;
    const std::size_t used = this->put(boost::asio::buffer(buffer), failure);
    buffer.erase(0, used);
    if (failure == http::error::need_more) failure = {};
    // Beast would wait for the end of a chunk's header, or of the trailers, without limit.
    if (!failure && !this->is_done() && buffer.size() > header_bytes_max) failure = http::error::header_limit;
    return failure;
  }
};

// The origin form of a target, or "" if it is none that a server of resources can answer.
std::string origin_form(std::string_view method, std::string_view target) {
  if (target.starts_with('/') || (target == "*" && method == "OPTIONS")) return std::string(target);
  const std::size_t scheme_end = target.find("://");
  if (scheme_end == std::string_view::npos) return {};
  const std::string_view scheme = target.substr(0, scheme_end);
  if (!beast::iequals({scheme.data(), scheme.size()}, "http") &&
      !beast::iequals({scheme.data(), scheme.size()}, "https")) {
    return {};
  }
  const std::string_view rest = target.substr(scheme_end + 3);
  const std::size_t host_end = rest.find_first_of("/?");
  if (host_end == 0) return {};
  if (host_end == std::string_view::npos) return "/";
  return rest[host_end] == '/' ? std::string(rest.substr(host_end)) : "/" + std::string(rest.substr(host_end));
}

}  // namespace

struct RequestReader::Parser final : Collector<true, HttpRequest> {
  int status = 0;
  std::string reason;
  std::size_t target_bytes_max;
  std::size_t headers_max;

  explicit Parser(ReaderLimits limits)
      : Collector(limits), target_bytes_max(limits.target_bytes), headers_max(limits.headers) {}

  // Before Beast sees the header. Two readers of a line that is folded, or ends without a CR, may see two requests.
  Failure parse_strictly(std::string& buffer) {
    // Beast may have taken all of a header but the last two bytes of it.
    if (!header_ended && !buffer.starts_with("\r\n")) {
      const std::string_view head = std::string_view(buffer).substr(0, buffer.find("\r\n\r\n"));
      if (head.find("\r\n ") != std::string_view::npos || head.find("\r\n\t") != std::string_view::npos) {
        refuse(400, "the request has a folded header line");
        return http::error::bad_field;
      }
      for (std::size_t at = head.find('\n'); at != std::string_view::npos; at = head.find('\n', at + 1)) {
        if (at > 0 && head[at - 1] == '\r') continue;
        refuse(400, "a line of the request's header ends without a carriage return");
        return http::error::bad_line_ending;
      }
    }
    return parse(buffer);
  }

  void refuse(int with, std::string why) {
    status = with;
    reason = std::move(why);
  }

  void on_request_impl(http::verb, beast::string_view method, beast::string_view target, int with_version,
                       Failure& failure) override {
    version = with_version;
    count(method.size() + target.size() + 12, failure);
    if (target.size() > target_bytes_max) {
      refuse(414,
             fmt::format("the request target has {} bytes; at most {} are taken", target.size(), target_bytes_max));
      failure = http::error::bad_target;
      return;
    }
    message.method = text(method);
    message.target = origin_form(message.method, {target.data(), target.size()});
    if (!message.target.empty()) return;
    refuse(400, "the request target is neither a path nor an http URL");
    failure = http::error::bad_target;
  }

  void on_header_impl(Failure& failure) override {
    header_ended = true;
    std::string why;
    if (message.headers.size() > headers_max) {
      refuse(431, fmt::format("the request has {} headers; at most {} are taken", message.headers.size(), headers_max));
      failure = http::error::header_limit;
      return;
    }
    const auto hosts = std::count_if(message.headers.begin(), message.headers.end(),
                                     [](const HttpHeader& h) { return beast::iequals(h.name, "Host"); });
    if (const std::string_view fault = framing_fault(); !fault.empty()) {
      why = fmt::format("the request has {}", fault);
    } else if (lengths > 1) {
      why = "the request has more than one Content-Length";
    } else if (hosts > 1 || (hosts == 0 && version == 11)) {
      why = fmt::format("the request has {} Host headers; HTTP/1.1 wants one", hosts);
    }
    if (why.empty()) return;
    refuse(400, std::move(why));
    failure = http::error::bad_field;
  }

  void explain(const Failure& failure) {
    if (status != 0) return;
    if (failure == http::error::header_limit) {
      return refuse(431, fmt::format("request header is larger than {} bytes", header_bytes_max));
    }
    if (failure == http::error::body_limit) return refuse(413, "request body is too large");
    // Beast checks part of the framing itself, at the header in question.
    refuse(400, fmt::format("the request is not HTTP/1.1: {}", failure.message()));
  }
};

RequestReader::RequestReader(ReaderLimits limits) : parser_(std::make_unique<Parser>(limits)) {}
RequestReader::~RequestReader() = default;

ReadState RequestReader::feed(std::string& buffer) {
  const Failure failure = parser_->parse_strictly(buffer);
  if (!failure) return parser_->is_done() ? ReadState::done : ReadState::more;
  parser_->explain(failure);
  return ReadState::failed;
}

HttpRequest RequestReader::take() {
  return std::move(parser_->message);
}
std::size_t RequestReader::body_bytes() const {
  return parser_->message.body.size();
}
bool RequestReader::header_done() const {
  return parser_->header_ended;
}
bool RequestReader::keep_alive() const {
  return parser_->header_ended && parser_->keep_alive();
}
bool RequestReader::http_1_1() const {
  return parser_->version == 11;
}
bool RequestReader::expects_continue() const {
  const std::string_view expect = header(parser_->message.headers, "Expect");
  return http_1_1() && beast::iequals({expect.data(), expect.size()}, "100-continue");
}
int RequestReader::refusal_status() const {
  return parser_->status;
}
const std::string& RequestReader::refusal() const {
  return parser_->reason;
}

struct AnswerReader::Parser final : Collector<false, HttpResponse> {
  TransportError::Kind kind = TransportError::Kind::malformed;
  std::string reason;

  using Collector::Collector;

  void on_response_impl(int status, beast::string_view phrase, int with_version, Failure& failure) override {
    version = with_version;
    message.status = status;
    count(phrase.size() + 15, failure);
  }

  void on_header_impl(Failure& failure) override {
    header_ended = true;
    std::string_view fault = framing_fault();
    if (message.status == 101) fault = "status 101, which was not asked for";
    if (fault.empty()) return;
    reason = fmt::format("malformed answer: it has {}", fault);
    failure = http::error::bad_field;
  }

  ReadState fail(const Failure& failure, ReaderLimits limits) {
    if (failure == http::error::header_limit) {
      kind = TransportError::Kind::too_large;
      reason = fmt::format("the answer's header is larger than {} bytes", limits.header_bytes);
    } else if (failure == http::error::body_limit) {
      kind = TransportError::Kind::too_large;
      reason = fmt::format("the answer's body is larger than {} bytes", limits.body_bytes);
    } else if (reason.empty()) {
      reason = fmt::format("malformed answer: {}", failure.message());
    }
    return ReadState::failed;
  }
};

AnswerReader::AnswerReader(ReaderLimits limits, bool to_head)
    : limits_(limits), to_head_(to_head), parser_(std::make_unique<Parser>(limits)) {
  parser_->skip(to_head);
}
AnswerReader::~AnswerReader() = default;

ReadState AnswerReader::feed(std::string& buffer) {
  // Each interim answer takes bytes off the buffer, so this ends.
  while (true) {
    const Failure failure = parser_->parse(buffer);
    if (failure) return parser_->fail(failure, limits_);
    if (!parser_->is_done()) return ReadState::more;
    if (parser_->message.status >= 200) return ReadState::done;
    parser_ = std::make_unique<Parser>(limits_);
    parser_->skip(to_head_);
  }
}

ReadState AnswerReader::end() {
  if (parser_->is_done()) return ReadState::done;
  Failure failure = http::error::partial_message;
  if (parser_->got_some()) parser_->put_eof(failure);
  if (!failure) return ReadState::done;
  parser_->kind = TransportError::Kind::reset;
  parser_->reason = fmt::format("connection closed in the middle of the answer, after {} bytes of its body",
                                parser_->message.body.size());
  return ReadState::failed;
}

std::optional<std::size_t> AnswerReader::body_to_come() const {
  if (!parser_->header_ended || to_head_) return std::nullopt;
  const auto length = parser_->content_length();
  const std::size_t bytes = length ? static_cast<std::size_t>(*length) : limits_.body_bytes;
  return bytes > kBodyReserveMax ? std::optional(bytes) : std::nullopt;
}

HttpResponse AnswerReader::take() {
  return std::move(parser_->message);
}
bool AnswerReader::keep_alive() const {
  return parser_->header_ended && parser_->keep_alive() && !parser_->need_eof();
}
TransportError::Kind AnswerReader::failure() const {
  return parser_->kind;
}
const std::string& AnswerReader::failure_text() const {
  return parser_->reason;
}

}  // namespace weighlock
