#include "weighlock/net/http_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "weighlock/core/json.hpp"

namespace weighlock {

namespace {

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 507:
      return "Insufficient Storage";
    default:
      return "";  // allowed by RFC 9112; clients go by the number
  }
}

bool is_framing(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kFraming = {"content-length", "transfer-encoding", "connection",
                                                               "host"};
  const auto same = [](unsigned char a, unsigned char b) { return std::tolower(a) == b; };
  return std::any_of(kFraming.begin(), kFraming.end(), [&](std::string_view one) {
    return std::equal(name.begin(), name.end(), one.begin(), one.end(), same);
  });
}

// A value can't begin a header of its own.
void append_without_controls(std::string& out, std::string_view value) {
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    out += (byte < 0x20 && c != '\t') || byte == 0x7f ? ' ' : c;
  }
}

void append_headers(std::string& out, const std::vector<HttpHeader>& headers) {
  for (const HttpHeader& h : headers) {
    if (is_framing(h.name)) continue;
    append_without_controls(out, h.name);
    out += ": ";
    append_without_controls(out, h.value);
    out += "\r\n";
  }
}

// A space in a target would end it; a control character, the line.
std::string escaped_target(std::string_view target) {
  std::string out;
  for (const char c : target) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7f) {
      fmt::format_to(std::back_inserter(out), "%{:02X}", byte);
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

std::string request_text(const Url& peer, const HttpRequest& request) {
  const bool default_port = peer.port == (peer.scheme == "https" ? 443 : 80);
  const std::string path = peer.path + request.target;  // without a target the URL is called as it is given
  const std::string target = escaped_target(path.empty() ? "/" : path);
  std::string out = fmt::format("{} {} HTTP/1.1\r\nHost: ", request.method, target);
  out += peer.host.find(':') == std::string::npos ? peer.host : "[" + peer.host + "]";
  if (!default_port) out += fmt::format(":{}", peer.port);
  out += "\r\nConnection: keep-alive\r\n";
  append_headers(out, request.headers);
  const bool may_have_body = request.method == "POST" || request.method == "PUT" || request.method == "PATCH";
  if (may_have_body || !request.body.empty()) out += fmt::format("Content-Length: {}\r\n", request.body.size());
  out += "\r\n";
  out += request.body;
  return out;
}

std::string answer_text(const HttpResponse& response, const AnswerFraming& framing) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", response.status, reason_phrase(response.status));
  append_headers(out, response.headers);
  const bool bodyless = response.status < 200 || response.status == 204 || response.status == 304;
  if (framing.chunked) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (!framing.streamed && !bodyless) {
    out += fmt::format("Content-Length: {}\r\n", framing.apart.value_or(response.body.size()));
  }
  out += framing.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  if (!framing.streamed && !framing.apart && !framing.to_head && !bodyless) out += response.body;
  return out;
}

std::string chunk_text(const std::string& bytes) {
  return fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes);
}

HttpResponse problem(int status, const std::string& detail) {
  return {status, {{"Content-Type", "application/json"}}, json::serialize(json::object{{"detail", detail}})};
}

}  // namespace weighlock
