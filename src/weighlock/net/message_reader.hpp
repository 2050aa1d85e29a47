// Reads HTTP/1.x messages out of bytes, strictly: the framing of a message is either plain or an error.
//
// Around Beast 1.81's parser, whose gaps are closed here: it frames "Transfer-Encoding: gzip" with a Content-Length by
// the length, accepts Transfer-Encoding on HTTP/1.0, limits each header line rather than all of them, joins folded
// header lines, which other parsers read as two, and puts trailers among the headers (ours are dropped). No sockets, no
// clock; one reader reads one message.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "weighlock/core/http.hpp"
#include "weighlock/core/limits.hpp"

namespace weighlock {

struct ReaderLimits {
  std::size_t header_bytes;  // first line, header and trailers together; also one chunk's header
  std::size_t body_bytes;
  std::size_t target_bytes = limits::kRequestTargetBytesMax;
  std::size_t headers = limits::kRequestHeadersMax;  // of a request, trailers not counted
};

enum class ReadState { more, done, failed };

class RequestReader {
 public:
  explicit RequestReader(ReaderLimits limits);
  ~RequestReader();

  // Takes what belongs to this request from the front of `buffer`; what follows it stays there.
  ReadState feed(std::string& buffer);

  // Once done:
  HttpRequest take();  // target in origin form ("*" for OPTIONS)
  // What it holds of the request so far.
  std::size_t body_bytes() const;
  // From the end of the header on:
  bool header_done() const;
  bool keep_alive() const;
  bool http_1_1() const;
  bool expects_continue() const;
  // Once failed: what to answer.
  int refusal_status() const;
  const std::string& refusal() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

class AnswerReader {
 public:
  AnswerReader(ReaderLimits limits, bool to_head);
  ~AnswerReader();

  // As above. Interim answers (1xx) are skipped.
  ReadState feed(std::string& buffer);
  // The peer closed in good order: done for an answer that ends so, failed for one cut short.
  ReadState end();

  // Once the header is there: how long the body is, or may be where the header doesn't say so. None for one of at most
  // a MiB.
  std::optional<std::size_t> body_to_come() const;

  HttpResponse take();
  bool keep_alive() const;
  // Once failed: malformed or too_large, or reset for one cut short, with a text.
  TransportError::Kind failure() const;
  const std::string& failure_text() const;

 private:
  struct Parser;
  ReaderLimits limits_;
  bool to_head_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace weighlock
