// Who owns a pair: numbered files beside its versions (design: protocol.md section 9; README.md tells what lies where).
//
// A number is taken once: its file is written whole under another name, synced, and linked to its own, which fails for
// all but one of those that try. The highest number wins. A file with the caller's id is the caller's at any number, so
// what was taken in a process that died is found again. Only its owner changes a file.
//
// Two gateways that meet can't miss each other: a taker links its file and then reads its predecessor's list; an owner
// writes its list and then looks for a higher file. Whichever comes second sees what the other did.
//
// Every function blocks; safe from several threads. The FileSystem must outlive it. Errors name the file; their codes:
//   storage_not_visible   this host can't see the place or may not write there (blind): no epoch can be kept
//   storage_full, storage_failed, conflict   the storage refused; a file that was named before is whole all the same
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/io/directory.hpp"

namespace weighlock {

inline constexpr int kEpochsKept = 4;  // the present one, and what a person on call may want to compare it with

struct EpochWorker {
  std::string url;
  std::string incarnation;  // "" = not known
  std::string label = {};   // as protocol/types.hpp, HeldWorker
  bool held = true;         // likewise
  bool operator==(const EpochWorker&) const = default;
};

struct EpochRecord {
  std::int64_t number = 0;  // 0 = there is none
  std::string owner;        // "" = the file can't be read as one of ours; `remark` says why
  std::string host;
  std::string started;     // when the owner's process began
  std::string written_at;  // RFC 3339, as given by the caller
  std::string remark;
  std::vector<EpochWorker> paused;  // held paused by the owner or in its hands, or about to be
};

struct EpochClaim {
  std::int64_t number = 0;                   // the caller's
  std::optional<EpochRecord> predecessor;    // the next lower one, if another's
  std::optional<EpochRecord> superseded_by;  // `rewrite` only: another's is higher
};

class EpochStore {
 public:
  explicit EpochStore(FileSystem& files) : files_(&files) {}

  // The folder of one pair's files, beneath `save_path`. Any name of a pair gives one, and no two the same.
  static std::string folder_of(const std::string& save_path, const std::string& pair);

  Result<EpochRecord> highest(const std::string& save_path, const std::string& pair) const;
  // Takes the next number; `mine.number` isn't looked at. If the highest one has the caller's id it stays that one.
  // The file lists what `mine` says and, until it is rewritten, what the predecessor held: who dies in between leaves
  // nothing out. Older files of the caller are removed, but for the last few.
  Result<EpochClaim> claim(const std::string& save_path, const std::string& pair, EpochRecord mine) const;
  // Writes the file `mine.number` again, then looks. It is renamed over the old one: the name is the caller's alone, so
  // nobody is raced for it, and a reader sees the old list or the new.
  Result<EpochClaim> rewrite(const std::string& save_path, const std::string& pair, const EpochRecord& mine) const;

 private:
  FileSystem* files_;
};

}  // namespace weighlock
