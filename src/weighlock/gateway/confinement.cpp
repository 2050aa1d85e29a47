#include "weighlock/gateway/confinement.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>

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

// Link-local, and where clouds hand out credentials.
bool never_allowed(const Address& address) {
  static const char* const kNetworks[] = {"169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "100.100.100.200/32"};
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
                 fmt::format("{}: link-local and metadata addresses are never called", url.text)};
  if (names_.empty() && ranges_.empty()) return {};
  if (std::any_of(names_.begin(), names_.end(), [&](const std::string& name) { return named(url.host, name); }))
    return {};
  if (const std::optional<Address> address = address_from(url.host)) {
    if (std::any_of(ranges_.begin(), ranges_.end(),
                    [&](const Range& r) { return inside(address->bytes, r.address, r.bits); }))
      return {};
  }
  return Error{
      ErrorCode::permission_denied,
      fmt::format("{}: its host is not in worker_hosts; start the gateway with --worker-hosts ...,{}{}", url.text,
                  url.host,
                  address_from(url.host) ? "" : " (names are listed by name; ranges hold for addresses only)")};
}

bool Confinement::may_be_called(const SocketAddress& resolved) {
  Address address{};
  if (resolved.family() == AF_INET) {
    address.four = true;
    address.bytes[10] = address.bytes[11] = 0xff;
    std::memcpy(address.bytes + 12, &reinterpret_cast<const sockaddr_in*>(resolved.get())->sin_addr, 4);
  } else {
    std::memcpy(address.bytes, &reinterpret_cast<const sockaddr_in6*>(resolved.get())->sin6_addr, 16);
  }
  return !never_allowed(address);
}

Status Confinement::check_directory(std::string_view path, std::string_view what) const {
  if (!path.starts_with('/'))
    return Error{ErrorCode::invalid_argument, fmt::format("{}: '{}' is not an absolute path", what, path)};
  if (path.find('\0') != std::string_view::npos)
    return Error{ErrorCode::invalid_argument, fmt::format("{}: contains a NUL", what)};
  const std::filesystem::path given(path);
  if (std::any_of(given.begin(), given.end(), [](const auto& part) { return part == ".."; }))
    return Error{ErrorCode::invalid_argument, fmt::format("{}: '{}' must not contain '..'", what, path)};
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
