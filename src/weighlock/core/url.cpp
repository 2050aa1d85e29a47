#include "weighlock/core/url.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

// Without what may be a password or a token: errors go to the log, and to whoever asked.
std::string harmless(std::string_view text) {
  std::string out(text);
  if (const auto query = out.find('?'); query != std::string::npos) out.replace(query + 1, std::string::npos, "***");
  const auto at = out.rfind('@');
  if (at == std::string::npos) return out;
  const auto scheme_end = out.find("://");
  const std::size_t begin = scheme_end < at ? scheme_end + 3 : 0;
  return out.replace(begin, at - begin, "***");
}

Error bad(std::string_view text, std::string_view why) {
  return Error{ErrorCode::invalid_argument, fmt::format("URL '{}': {}", printable(harmless(text), 200), why)};
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return out;
}

Error wildcard(std::string_view text) {
  return bad(text, "the host is a wildcard address; give the address that others can connect to");
}

// RFC 1123, and RFC 952 but for the underscore, which real clusters use.
bool is_host_name(std::string_view host) {
  constexpr std::size_t kNameBytesMax = 253;
  return host.size() <= kNameBytesMax && std::all_of(host.begin(), host.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
         });
}

bool has_good_labels(std::string_view host) {
  constexpr std::size_t kLabelBytesMax = 63;
  for (std::size_t at = 0; at <= host.size();) {
    const std::size_t dot = std::min(host.find('.', at), host.size());
    if (dot == at || dot - at > kLabelBytesMax) return false;
    at = dot + 1;
  }
  return true;
}

// A name whose last label is a number is an address that was written wrongly: no top-level domain is a number.
bool ends_in_number(std::string_view host) {
  std::string_view last = host.substr(host.rfind('.') == std::string_view::npos ? 0 : host.rfind('.') + 1);
  if (last.starts_with("0x")) return true;
  return std::all_of(last.begin(), last.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// The canonical text of an IP literal, or the name itself. inet_pton knows only the four-part form of IPv4; the older
// forms ("0", "127.1", "0x7f000001") mean an address to the system resolver too, so inet_aton reads them.
Result<std::string> canonical_host(std::string_view text, const std::string& host, bool bracketed) {
  char buffer[INET6_ADDRSTRLEN];
  if (bracketed) {
    in6_addr six{};
    if (inet_pton(AF_INET6, host.c_str(), &six) != 1) return bad(text, "the host in brackets is not an IPv6 address");
    if (IN6_IS_ADDR_V4MAPPED(&six)) {
      if (six.s6_addr[12] == 0) return wildcard(text);
      return std::string(inet_ntop(AF_INET, six.s6_addr + 12, buffer, sizeof buffer));
    }
    if (IN6_IS_ADDR_UNSPECIFIED(&six)) return wildcard(text);
    return std::string(inet_ntop(AF_INET6, &six, buffer, sizeof buffer));
  }
  in_addr four{};
  if (inet_aton(host.c_str(), &four) == 1) {
    // All of 0.0.0.0/8 is "this network": no host has such an address.
    if ((ntohl(four.s_addr) >> 24) == 0) return wildcard(text);
    return std::string(inet_ntop(AF_INET, &four, buffer, sizeof buffer));
  }
  if (!is_host_name(host)) return bad(text, "the host name is too long, or has characters that no host name has");
  if (!has_good_labels(host)) return bad(text, "a label of the host name is empty or longer than 63 bytes");
  if (ends_in_number(host)) return bad(text, "the host is no IPv4 address, and no host name ends in a number");
  return host;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  if (text.size() > limits::kUrlBytesMax) return bad(text, fmt::format("longer than {} bytes", limits::kUrlBytesMax));
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
  if (std::any_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    return bad(text, "the path has characters outside ASCII; give them percent-encoded");
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
  // "host." is the same name, and 127.0.0.1. the same address.
  if (!bracketed && host.ends_with('.')) host.remove_suffix(1);
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
