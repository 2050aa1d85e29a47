// Keys of engines, by worker. Clients give references ({"env": NAME} or {"file": "/path"}), never keys; keys are never
// logged and never shown.
//
// Thread rule: loop thread only, but for `read_key_file`. Owned by Gateway.
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
  void forget(const std::string& worker_url) { by_worker_.erase(worker_url); }
  // The worker's own, or the gateway's for all.
  const Credentials& of(const std::string& worker_url) const;

 private:
  Credentials for_all_;
  std::map<std::string, Credentials> by_worker_;
};

// A key that stands in a file, which a mount may hold up: it is read elsewhere (outside.hpp).
struct KeyFile {
  std::string field;  // "workers[0].admin_key", for errors
  std::string worker;
  std::string path;
  bool is_admin = false;  // else the API key
  std::string key;
};

// Reads what the reference points to: null is no key, {"env"} is `key`, {"file"} an absolute path that is still to be
// read. `field` names it in errors, which never show the key.
std::optional<FieldError> read_key_reference(const json::value& reference, std::string_view field, std::string& key,
                                             std::string& path);

// Blocks as long as the mount does; from any thread. Regular files of at most limits::kKeyBytesMax only; nothing if it
// can't be read or is no such file.
std::optional<std::string> read_key_file(const std::string& path);
// What the file held becomes its key, if it is one.
std::optional<FieldError> take_key(const std::optional<std::string>& held, KeyFile& file);

}  // namespace weighlock
