#include "weighlock/gateway/confinement.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

struct Address {
  unsigned char bytes[16];
  bool four = false;
};

std::optional<Address> address_from(const std::string& text) {
  Address out{};
  in_addr four{};
  if (inet_pton(AF_INET, text.c_str(), &four) == 1) {
    out.four = true;
    out.bytes[10] = out.bytes[11] = 0xff;
    std::memcpy(out.bytes + 12, &four, 4);
    return out;
  }
  if (inet_pton(AF_INET6, text.c_str(), out.bytes) == 1) return out;
  return std::nullopt;
}

bool inside(const unsigned char* address, const unsigned char* network, int bits) {
  const int whole = bits / 8;
  if (std::memcmp(address, network, static_cast<std::size_t>(whole)) != 0) return false;
  const int rest = bits % 8;
  return rest == 0 || ((address[whole] ^ network[whole]) >> (8 - rest)) == 0;
}

bool named(std::string_view host, std::string_view pattern) {
  if (pattern.starts_with("*.")) return host.size() > pattern.size() - 1 && host.ends_with(pattern.substr(1));
  return host == pattern;
}

// Where an IPv6 address leads to an IPv4 one, the latter as ::ffff:a.b.c.d.
std::optional<Address> embedded_four(const Address& six) {
  struct Form {
    const char* network;
    int bits;
    std::size_t at;  // of the four bytes
  };
  // NAT64 (RFC 6052), 6to4 (RFC 3056), SIIT (RFC 2765), IPv4-compatible (RFC 4291, 2.5.5.1).
  static constexpr Form kForms[] = {{"64:ff9b::", 96, 12}, {"2002::", 16, 2}, {"::ffff:0:0:0", 96, 12}, {"::", 96, 12}};
  if (six.four) return std::nullopt;
  for (const Form& form : kForms) {
    if (!inside(six.bytes, address_from(form.network)->bytes, form.bits)) continue;
    Address out{};
    out.four = true;
    out.bytes[10] = out.bytes[11] = 0xff;
    std::memcpy(out.bytes + 12, six.bytes + form.at, 4);
    const bool is_loopback = form.bits == 96 && six.bytes[12] == 0;  // ::1
    if (!is_loopback) return out;
  }
  return std::nullopt;
}

// Link-local, wildcard, multicast and reserved, and where clouds hand out credentials.
bool never_allowed(const Address& address) {
  static const char* const kNetworks[] = {"169.254.0.0/16", "fe80::/10",          "0.0.0.0/8",
                                          "::/128",         "224.0.0.0/4",        "240.0.0.0/4",
                                          "ff00::/8",       "100.100.100.200/32", "168.63.129.16/32",
                                          "192.0.0.192/32", "fd00:ec2::254/128",  "fd20:ce::254/128"};
  if (const std::optional<Address> four = embedded_four(address); four && never_allowed(*four)) return true;
  return std::any_of(std::begin(kNetworks), std::end(kNetworks), [&](std::string_view text) {
    const std::size_t slash = text.find('/');
    const std::optional<Address> network = address_from(std::string(text.substr(0, slash)));
    int bits = 0;
    std::from_chars(text.data() + slash + 1, text.data() + text.size(), bits);
    return inside(address.bytes, network->bytes, network->four ? bits + 96 : bits);
  });
}

bool never_allowed(const std::string& host) {
  if (host == "metadata" || host == "metadata.google.internal" || host == "instance-data") return true;
  const std::optional<Address> address = address_from(host);
  return address && never_allowed(*address);
}

}  // namespace

Result<Confinement> Confinement::make(std::vector<std::string> worker_hosts, std::vector<std::string> storage_roots) {
  Confinement out;
  for (std::string& entry : worker_hosts) {
    std::transform(entry.begin(), entry.end(), entry.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::size_t slash = entry.find('/');
    const std::optional<Address> address = address_from(entry.substr(0, slash));
    const int bits_max = address && address->four ? 32 : 128;
    int bits = bits_max;
    if (slash != std::string::npos) {
      const auto [end, failure] = std::from_chars(entry.data() + slash + 1, entry.data() + entry.size(), bits);
      if (!address || failure != std::errc{} || end != entry.data() + entry.size() || bits < 0 || bits > bits_max)
        return Error{ErrorCode::invalid_argument,
                     fmt::format("worker_hosts: '{}' is not an address with a prefix length", entry)};
    }
    if (entry.empty()) return Error{ErrorCode::invalid_argument, "worker_hosts: an entry is empty"};
    if (!address) {
      out.names_.push_back(std::move(entry));
      continue;
    }
    Range range{};
    std::memcpy(range.address, address->bytes, sizeof range.address);
    range.bits = address->four ? bits + 96 : bits;
    out.ranges_.push_back(range);
  }
  for (std::string& root : storage_roots) {
    if (!root.starts_with('/'))
      return Error{ErrorCode::invalid_argument, fmt::format("storage_roots: '{}' is not an absolute path", root)};
    std::string normal = std::filesystem::path(root).lexically_normal().string();
    while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
    out.roots_.push_back(std::move(normal));
  }
  return out;
}

Status Confinement::check_host(const Url& url) const {
  if (never_allowed(url.host))
    return Error{ErrorCode::permission_denied,
                 fmt::format("{}: link-local, multicast and metadata addresses are never called", url.text)};
  if ((names_.empty() && ranges_.empty()) || is_named(url.host)) return {};
  const std::optional<Address> address = address_from(url.host);
  // An unlisted name is judged where it leads.
  if (address ? in_range(address->bytes) : !ranges_.empty()) return {};
  return Error{ErrorCode::permission_denied,
               fmt::format("{}: its host is not in worker_hosts; start the gateway with --worker-hosts ...,{}",
                           url.text, url.host)};
}

bool Confinement::is_named(const std::string& host) const {
  return std::any_of(names_.begin(), names_.end(), [&](const std::string& name) { return named(host, name); });
}

bool Confinement::in_range(const unsigned char* address) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& range) { return inside(address, range.address, range.bits); });
}

bool Confinement::proof_needed(const Url& url) const {
  return !ranges_.empty() && !address_from(url.host) && !is_named(url.host);
}

bool Confinement::may_be_called(const std::string& host, const SocketAddress& resolved) const {
  Address address{};
  if (resolved.family() == AF_INET) {
    address.four = true;
    address.bytes[10] = address.bytes[11] = 0xff;
    std::memcpy(address.bytes + 12, &reinterpret_cast<const sockaddr_in*>(resolved.get())->sin_addr, 4);
  } else {
    std::memcpy(address.bytes, &reinterpret_cast<const sockaddr_in6*>(resolved.get())->sin6_addr, 16);
  }
  if (never_allowed(address)) return false;
  return (names_.empty() && ranges_.empty()) || is_named(host) || in_range(address.bytes);
}

Status Confinement::check_directory(std::string_view path, std::string_view what) const {
  const auto bad = [what](std::string text) {
    return Error{ErrorCode::invalid_argument, fmt::format("{}: {}", what, text)};
  };
  if (path.size() > limits::kPathBytesMax)
    return bad(fmt::format("has {} bytes; at most {} are taken", path.size(), limits::kPathBytesMax));
  if (!path.starts_with('/'))
    return bad(fmt::format("'{}' is not an absolute path", printable(path, limits::kEchoBytesMax)));
  if (std::any_of(path.begin(), path.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }))
    return bad("contains control characters");
  const std::filesystem::path given(path);
  if (std::any_of(given.begin(), given.end(),
                  [](const auto& part) { return part.native().size() > limits::kPathNameBytesMax; }))
    return bad(fmt::format("has a name of more than {} bytes in it", limits::kPathNameBytesMax));
  if (std::any_of(given.begin(), given.end(), [](const auto& part) { return part == ".."; }))
    return bad(fmt::format("'{}' must not contain '..'", path));
  if (roots_.empty()) return {};
  const std::string normal = given.lexically_normal().string();
  const bool beneath = std::any_of(roots_.begin(), roots_.end(), [&](const std::string& root) {
    return root == "/" || normal == root || normal.starts_with(root + "/");
  });
  if (beneath) return {};
  return Error{
      ErrorCode::permission_denied,
      fmt::format("{}: '{}' is outside storage_roots ({}); start the gateway with --storage-roots ...,DIR, a directory "
                  "above it",
                  what, path, fmt::join(roots_, ", "))};
}

}  // namespace weighlock
