#include "weighlock/core/http.hpp"

#include <algorithm>
#include <cctype>

namespace weighlock {

std::string_view header(const std::vector<HttpHeader>& headers, std::string_view name) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  for (const HttpHeader& h : headers) {
    if (std::equal(h.name.begin(), h.name.end(), name.begin(), name.end(), same)) return h.value;
  }
  return {};
}

std::string_view name(TransportError::Kind kind) {
  switch (kind) {
    case TransportError::Kind::resolve:
      return "resolve";
    case TransportError::Kind::refused:
      return "refused";
    case TransportError::Kind::unreachable:
      return "unreachable";
    case TransportError::Kind::reset:
      return "reset";
    case TransportError::Kind::timeout:
      return "timeout";
    case TransportError::Kind::tls:
      return "tls";
    case TransportError::Kind::malformed:
      return "malformed";
    case TransportError::Kind::too_large:
      return "too_large";
    case TransportError::Kind::cancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace weighlock
