// What clients may name: hosts of workers and trainers, and directories. A gateway that calls whatever it is told to is
// a way into every network it stands in.
//
// Pure: names are not resolved here. Never allowed, whatever the lists say: link-local, multicast and wildcard
// addresses and the metadata services of clouds, also inside an IPv6 address that leads to an IPv4 one (mapped, NAT64,
// 6to4).
//
// A name that is listed is good wherever it leads but there. A name that isn't is judged by the ranges when it has been
// resolved: `proof_needed` says so at registration, and the client asks `may_be_called` each time before it connects.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/http.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/net/socket.hpp"

namespace weighlock {

class Confinement {
 public:
  // `worker_hosts`: names ("gpu1", "*.cluster.local"), addresses and CIDRs ("10.0.0.0/8", "fd00::/8"); empty = any.
  // `storage_roots`: absolute directories; empty = any. Errors name the entry.
  static Result<Confinement> make(std::vector<std::string> worker_hosts, std::vector<std::string> storage_roots);

  Status check_host(const Url& url) const;
  // The host is an unlisted name: it is good only at an address within the ranges.
  bool proof_needed(const Url& url) const;
  bool may_be_called(const std::string& host, const SocketAddress& resolved) const;
  // Absolute, without "..", of a length that leaves room for what is put below, beneath a root. By its text alone:
  // where links lead is looked at by VersionStorage, on the pool, when the directory is used.
  Status check_directory(std::string_view path, std::string_view what) const;
  const std::vector<std::string>& storage_roots() const { return roots_; }  // normalised

 private:
  struct Range {
    unsigned char address[16];  // IPv4 as ::ffff:a.b.c.d
    int bits;
  };
  bool is_named(const std::string& host) const;
  bool in_range(const unsigned char* address) const;

  std::vector<Range> ranges_;
  std::vector<std::string> names_;
  std::vector<std::string> roots_;
};

}  // namespace weighlock
