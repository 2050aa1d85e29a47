// HTTP messages as values: what the pure modules make and read, and what net/ carries.
//
// Bodies are whole: control calls are small, and every limit stands in core/limits.hpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weighlock {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method = "GET";
  std::string target = "/";  // origin form: path and query
  std::vector<HttpHeader> headers;
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::vector<HttpHeader> headers;
  std::string body;
  std::string local_address = {};  // of an answer to us: our own end of the connection, in digits; "" = not known
};

// The first value of the header (names compare without case), or "".
std::string_view header(const std::vector<HttpHeader>& headers, std::string_view name);

// Why no answer came. `nothing_sent` is true only where not one byte of the request can have reached the peer: then,
// and only then, the call surely had no effect.
struct TransportError {
  enum class Kind { resolve, refused, unreachable, reset, timeout, tls, malformed, too_large, cancelled };
  Kind kind = Kind::reset;
  bool nothing_sent = false;
  std::string text;  // for people: "connection refused", "connection reset after the request was sent", ...
};

std::string_view name(TransportError::Kind kind);

// What a call ended with.
using HttpResult = std::variant<HttpResponse, TransportError>;

// An absolute http or https URL, split and normalised: the scheme and host in lower case, the port always explicit, no
// trailing slash in the base path. Two spellings of one worker give one `text`.
struct Url {
  std::string scheme;  // "http" or "https"
  std::string host;    // without brackets for IPv6
  int port = 0;
  std::string path;  // "" or "/prefix"
  std::string text;  // normalised, port always shown: "http://10.0.0.7:30000"
};

}  // namespace weighlock
