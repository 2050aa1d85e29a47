// What clients may name: hosts of workers and trainers, and directories. A gateway that calls whatever it is told to is
// a way into every network it stands in.
//
// Pure: names are not resolved here. Never allowed, whatever the lists say: link-local addresses and the metadata
// services of clouds. For a name that is seen when it has been resolved: the client asks `may_be_called` before it
// connects.
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
  static bool may_be_called(const SocketAddress& resolved);
  // Absolute, without "..", beneath a root. By its text alone: where links lead is looked at by VersionStorage, on the
  // pool, when the directory is used.
  Status check_directory(std::string_view path, std::string_view what) const;
  const std::vector<std::string>& storage_roots() const { return roots_; }  // normalised

 private:
  struct Range {
    unsigned char address[16];  // IPv4 as ::ffff:a.b.c.d
    int bits;
  };
  std::vector<Range> ranges_;
  std::vector<std::string> names_;
  std::vector<std::string> roots_;
};

}  // namespace weighlock
