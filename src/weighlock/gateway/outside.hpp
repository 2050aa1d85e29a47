// What a body names that can't be judged on the spot: host names, by where they lead, and files with keys, by what they
// hold. A name server that doesn't answer and a mount that hangs must not hold the loop.
//
// Thread rule: loop thread only. Files are opened on threads of their own, at most kReadsMax at a time, which nobody
// waits for: one that hangs is left behind, and its reader is told after limits::kKeyFileTimeout. `done` is called
// once, at once when there is nothing to look at; never after the end of this object.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/core/time.hpp"
#include "weighlock/gateway/confinement.hpp"
#include "weighlock/gateway/credentials.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {

struct DoubtfulHost {
  std::string field;  // as errors name it
  std::string host;
};

// The hosts among `urls`, which were checked before, that are only good at some addresses; `field` with its index.
void find_doubtful(const Confinement& confinement, const std::vector<std::string>& urls, std::string_view field,
                   std::string_view after_index, std::vector<DoubtfulHost>& out);

class Outside {
 public:
  using ReadFile = std::function<std::optional<std::string>(const std::string& path)>;

  // `read_file` runs on any thread.
  Outside(Loop& loop, HttpClient& http, ReadFile read_file);
  ~Outside();
  Outside(const Outside&) = delete;
  Outside& operator=(const Outside&) = delete;

  // The first failure in the order of the lists, or none: then each of `keys` has its `key`.
  using Done = std::function<void(std::optional<FieldError> failure, std::vector<KeyFile> keys)>;
  void look(std::vector<DoubtfulHost> hosts, std::vector<KeyFile> keys, Done done);

 private:
  struct Look;
  struct Door;
  void look_at_hosts(const std::shared_ptr<Look>& look);
  void look_at_keys(const std::shared_ptr<Look>& look);

  Loop& loop_;
  HttpClient& http_;
  ReadFile read_file_;
  std::shared_ptr<Door> door_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weighlock
