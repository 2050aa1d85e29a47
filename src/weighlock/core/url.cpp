#include "weighlock/core/url.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace weighlock {
namespace {

Error bad(std::string_view text, std::string_view why) {
  return Error{ErrorCode::invalid_argument, fmt::format("URL '{}': {}", text.substr(0, 200), why)};
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return out;
}

// The canonical text of an IP literal, or the name itself. inet_pton knows only the four-part form of IPv4; the older
// forms ("0", "127.1", "0x7f000001") mean an address to the system resolver too, so inet_aton reads them.
Result<std::string> canonical_host(std::string_view text, const std::string& host, bool bracketed) {
  char buffer[INET6_ADDRSTRLEN];
  if (bracketed) {
    in6_addr six{};
    if (inet_pton(AF_INET6, host.c_str(), &six) != 1) return bad(text, "the host in brackets is not an IPv6 address");
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
      if (std::all_of(six.s6_addr + 12, six.s6_addr + 16, [](unsigned char b) { return b == 0; }))
        return bad(text, "the host is a wildcard address; give the address that others can connect to");
      return std::string(inet_ntop(AF_INET, six.s6_addr + 12, buffer, sizeof buffer));
    }
    if (IN6_IS_ADDR_UNSPECIFIED(&six))
      return bad(text, "the host is a wildcard address; give the address that others can connect to");
    return std::string(inet_ntop(AF_INET6, &six, buffer, sizeof buffer));
  }
  in_addr four{};
  if (inet_aton(host.c_str(), &four) == 1) {
    if (four.s_addr == 0)
      return bad(text, "the host is a wildcard address; give the address that others can connect to");
    return std::string(inet_ntop(AF_INET, &four, buffer, sizeof buffer));
  }
  const bool plain = std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  if (!plain || host.size() > 253) return bad(text, "the host name has characters that no host name has");
  return host;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  constexpr std::size_t kUrlBytesMax = 2048;
  if (text.size() > kUrlBytesMax) return bad(text, "longer than 2048 bytes");
  if (std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f; }))
    return bad(text, "contains spaces or control characters");
  const std::size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos) return bad(text, "must begin with http:// or https://");
  Url url;
  url.scheme = lower(text.substr(0, scheme_end));
  if (url.scheme != "http" && url.scheme != "https") return bad(text, "the scheme must be http or https");
  std::string_view rest = text.substr(scheme_end + 3);
  if (rest.find_first_of("?#") != std::string_view::npos) return bad(text, "a query or fragment is not allowed");
  const std::size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  std::string_view path = slash == std::string_view::npos ? std::string_view{} : rest.substr(slash);
  while (path.ends_with('/')) path.remove_suffix(1);
  if (authority.find('@') != std::string_view::npos)
    return bad(text, "user info is not allowed; give keys as credentials");
  const bool bracketed = authority.starts_with('[');
  std::string_view host;
  std::string_view port;
  if (bracketed) {
    const std::size_t close = authority.find(']');
    if (close == std::string_view::npos) return bad(text, "the bracket of the IPv6 address is not closed");
    host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
    if (!port.empty() && port.front() != ':') return bad(text, "unexpected text after the IPv6 address");
  } else {
    const std::size_t colon = authority.find(':');
    host = authority.substr(0, colon);
    port = colon == std::string_view::npos ? std::string_view{} : authority.substr(colon);
  }
  if (host.empty()) return bad(text, "the host is empty");
  url.port = url.scheme == "https" ? 443 : 80;
  if (!port.empty()) {
    port.remove_prefix(1);
    const auto [end, failure] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (failure != std::errc{} || end != port.data() + port.size() || url.port < 1 || url.port > 65535)
      return bad(text, "the port must be a number from 1 to 65535");
  }
  Result<std::string> canonical = canonical_host(text, lower(host), bracketed);
  if (!canonical) return std::move(canonical).error();
  url.host = *canonical;
  url.path = std::string(path);
  const bool is_six = url.host.find(':') != std::string::npos;
  url.text =
      fmt::format(fmt::runtime(is_six ? "{}://[{}]:{}{}" : "{}://{}:{}{}"), url.scheme, url.host, url.port, url.path);
  return url;
}

}  // namespace weighlock
