// HTTP/1.1 messages as bytes on the wire. Framing headers are always ours: a Content-Length, Transfer-Encoding,
// Connection or Host in the value's headers is left out, and control characters in a header become spaces.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "weighlock/core/http.hpp"

namespace weighlock {

// The whole request; `peer.path` goes before the target.
std::string request_text(const Url& peer, const HttpRequest& request);

struct AnswerFraming {
  bool to_head = false;                   // no body, but its length
  bool keep_alive = true;                 // otherwise "Connection: close"
  bool streamed = false;                  // the head of a stream: no length
  bool chunked = false;                   // streamed on HTTP/1.1
  std::optional<std::size_t> apart = {};  // length of a body that isn't in the value, and is sent apart
};

// The head of the answer, and its body unless streamed, apart or to HEAD.
std::string answer_text(const HttpResponse& response, const AnswerFraming& framing);

std::string chunk_text(const std::string& bytes);  // `bytes` not empty
inline constexpr const char* kLastChunk = "0\r\n\r\n";

// {"detail": `detail`}, as application/json.
HttpResponse problem(int status, const std::string& detail);

}  // namespace weighlock
