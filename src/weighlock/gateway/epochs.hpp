// The machine's epoch effects over store/: who owns a pair (docs/ownership.md).
//
// Thread rule: both members block; call them on a pool, several at once. What clients named is confined to the storage
// roots, as everywhere: outside of them no epoch can be kept.
#pragma once

#include <string>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"
#include "weighlock/store/epoch.hpp"
#include "weighlock/store/version_store.hpp"

namespace weighlock {

class Epochs {
 public:
  // `files` outlives this. `roots`: absolute; empty = any place.
  Epochs(FileSystem& files, std::vector<std::string> roots);

  // Errors: storage_not_visible = none can be kept there; any other: the storage refused.
  Result<protocol::ClaimedEpoch> claim(const protocol::ClaimEpoch& claim) const;
  Result<protocol::Epoch> look(const protocol::LookEpoch& look) const;

 private:
  Status confine(const std::string& save_path) const;

  VersionStore store_;
  EpochStore epochs_;
  std::vector<std::string> roots_;
  std::string host_;     // of this process, for people
  std::string started_;  // likewise
};

}  // namespace weighlock
