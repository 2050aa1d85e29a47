// The machine's storage effects over store/: prepare, seal, digest, discard, and what is remembered between them.
//
// Thread rule: blocking members on a pool, several at once; `expectations_of` from any thread. A `save_path` that this
// host can't see is blind: trainers make the directories, nothing is inspected, and every sealed version says so.
//
// What clients named is confined to the storage roots here once more, with links followed: `permission_denied` names
// the path. It is looked at before each use, so whoever can swap a directory for a link between look and use can get
// out.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "weighlock/core/operation.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"
#include "weighlock/store/version_store.hpp"

namespace weighlock {

class VersionStorage {
 public:
  // `owner`: this gateway's id, written into attempt records and manifests. `roots`: absolute; empty = any place.
  // `files` outlives this.
  VersionStorage(FileSystem& files, std::string owner, std::vector<std::string> roots)
      : store_(files), owner_(std::move(owner)), roots_(std::move(roots)) {}

  Result<std::string> prepare(const protocol::Prepare& prepare);
  Result<protocol::SealedVersion> seal(const protocol::Seal& seal);
  Result<std::string> digest(const std::string& directory);
  // Whether what was sealed is what it was; gives its digest, "" where nothing is known to compare with. Nothing is
  // written or remembered. `seal.stored`, and what a seal of it would say.
  Result<std::string> verify(const protocol::Seal& seal);
  Status discard(const std::string& save_path, const std::string& directory);
  Status mark_latest(const std::string& save_path, const std::string& directory);

  // Knows the version as if it had been sealed in this process: an earlier one did it. Nothing if it can't be read.
  void recall(const std::string& directory);

  // What an engine should show of a version sealed (or inspected as a reference) in this process; null: not known.
  std::shared_ptr<const Expectations> expectations_of(const std::string& directory) const;

  // Ends running digests early: the process is leaving, and a large version takes minutes. Any thread.
  void stop() { stopping_ = true; }
  bool stopping() const { return stopping_; }

 private:
  // Versions remembered of one place (the folder that they lie in): what a pair has in use must not be forgotten
  // because others are busy. One is about a megabyte for a model of a thousand tensors.
  static constexpr std::size_t kRememberedMax = 32;
  static constexpr std::size_t kBasesMax = 8;  // pairs with adapters of different models, and a version or two of each

  struct Known {
    Inspection inspection;
    Manifest manifest;
    bool sealed = false;  // false: a reference, only inspected
    std::shared_ptr<const Expectations> expectations;
  };

  std::shared_ptr<Known> find(const std::string& directory) const;
  void remember(const std::string& directory, std::shared_ptr<Known> known);
  void forget_order(const std::string& directory);  // the lock is held
  // The reference inspected, from memory if it was; null with the reason where it can't be.
  std::shared_ptr<Known> reference(const std::string& directory, std::string& reason);
  // The tensors of an adapter's base model; null with the reason where they can't be read here.
  std::shared_ptr<const Layout> base_layout(const std::string& directory, std::string& reason);
  // The manifest of what was inspected is written; its warnings are told.
  Result<std::shared_ptr<Known>> seal_inspected(const protocol::Seal& seal, Inspection found);
  Result<protocol::SealedVersion> seal_adapter(const protocol::Seal& seal);
  // Sealed before: still what it was? Nothing is written. `look` reads the manifest and compares all but the digest.
  Result<protocol::SealedVersion> check_stored(const protocol::Seal& seal);
  Result<std::shared_ptr<Known>> look_at_stored(const protocol::Seal& seal);
  Result<std::string> digest_of_stored(const protocol::Seal& seal, const Known& known);
  Result<std::string> prepare_blind(const protocol::Prepare& prepare, const std::string& why);
  bool is_blind(const std::string& directory) const;
  Status confine(const std::string& path) const;

  VersionStore store_;
  std::string owner_;
  std::vector<std::string> roots_;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;  // all below
  std::map<std::string, std::shared_ptr<Known>> known_;
  std::map<std::string, std::deque<std::string>> order_;        // of known_ by place, oldest first
  std::map<std::string, std::shared_ptr<const Layout>> bases_;  // of adapters, bounded
  std::set<std::string> seen_;   // save paths that were visible once: later trouble is an error, not blindness
  std::set<std::string> blind_;  // directories handed out blind
};

}  // namespace weighlock
