// Keys of engines, by worker. Clients give references ({"env": NAME} or {"file": "/path"}), never keys; keys are never
// logged and never shown.
//
// Thread rule: loop thread only. Owned by Gateway. Key files are opened on the loop, without waiting: regular files of
// at most 4 KiB only, and on a local disk, since a mount that hangs would hold the loop.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "weighlock/core/json.hpp"
#include "weighlock/engines/conversation.hpp"
#include "weighlock/gateway/settings.hpp"

namespace weighlock {

class CredentialStore {
 public:
  explicit CredentialStore(Credentials for_all) : for_all_(std::move(for_all)) {}

  void set(const std::string& worker_url, Credentials credentials) { by_worker_[worker_url] = std::move(credentials); }
  // The worker's own, or the gateway's for all.
  const Credentials& of(const std::string& worker_url) const;

 private:
  Credentials for_all_;
  std::map<std::string, Credentials> by_worker_;
};

// Reads what the reference points to; null is no key. `field` names it in errors, which never show the key.
std::optional<FieldError> read_key_reference(const json::value& reference, std::string_view field, std::string& key);

}  // namespace weighlock
