// Versions of weights on shared storage, as the gateway needs them (README.md tells what lies where).
//
// Every function blocks and is safe to call from several threads at once; each path has one writer, which is the
// protocol's to see to. The FileSystem must outlive the store. Errors name path, expected and real value; their codes:
//   checkpoint_invalid, checkpoint_missing, checkpoint_layout_changed   what the trainers saved isn't a version
//   storage_not_visible   not there or not readable from this host; the text has host, uid, mode bits and the likely
//   cause storage_full, storage_failed, storage_not_visible (ESTALE)   the storage refused; ends the attempt, nothing
//   is repeated conflict, permission_denied   not ours to change
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/core/operation.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/core/time.hpp"
#include "weighlock/io/file_system.hpp"
#include "weighlock/store/inspection.hpp"
#include "weighlock/store/manifest.hpp"

namespace weighlock {

// The clock by which `inspect` looks again; tests have one of their own.
struct Patience {
  std::function<Instant()> now;
  std::function<void(Milliseconds)> sleep;
  static Patience real();
};

struct Storage {
  bool visible = false;  // false: blind
  std::string reason;    // why blind; or a remark
};

struct PrepareRequest {
  std::string save_path;
  std::int64_t version = 0;
  std::int64_t lineage = 0;
  std::int64_t attempt = 0;
  std::string owner;               // the gateway's id
  std::uint64_t bytes_needed = 0;  // of the version before; 0 = not known
  bool trainers_make_it = false;   // the directory is only claimed; the trainers make it
};

struct PreparedAttempt {
  std::string name;
  std::string directory;
};

struct SealInfo {
  std::string pair;
  std::int64_t lineage = 0;
  std::int64_t version = 0;
  std::int64_t attempt = 0;
  std::string writer;
  // The directory is another's: nothing is written into it. The manifest goes to `.weighlock/manifests` of `save_path`
  // if there is one, and else nowhere.
  bool foreign = false;
  std::string save_path;
};

struct DigestControl {
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // about every 8 MiB, from the calling thread
  const std::atomic<bool>* cancel = nullptr;                              // looked at as often
};

struct Digest {
  std::string version;
  std::map<std::string, std::string, std::less<>> files;
  std::map<std::string, std::string, std::less<>> tensors;
  std::uint64_t bytes = 0;  // read
  std::vector<std::string> warnings;
};

// A version whose values are compared with the new one's.
struct PreviousVersion {
  std::string directory;
  Inspection inspection;
};

// Raw bytes that `expectations` hashes for engines that tell SHA-256; the whole of the rest is covered by `digest`.
inline constexpr std::uint64_t kExpectedHashBytesMax = std::uint64_t{512} << 20;  // under 2 s of one core

// Whether the files read now are those of the manifest, as far as it has digests: `conflict`, with the tensors and
// files that differ by name, when sealed bytes were changed.
Status compare_digest(const Manifest& manifest, const Digest& digest);

class VersionStore {
 public:
  explicit VersionStore(FileSystem& files, Patience patience = Patience::real());

  // Whether this host sees `save_path` and may write there. Makes `.weighlock` in it; never makes `save_path` itself.
  Storage probe_save_path(const std::string& save_path) const;

  // Checks the free space (1.1 x bytes_needed), claims a name that was never used here, makes the directory.
  // `save_path` itself is made if its parent is there.
  Result<PreparedAttempt> prepare(const PrepareRequest& request) const;

  // The structure of what lies in `directory`, strictly; reads headers and small files, no tensors. Whatever fails but
  // a changed layout is looked at again, by opening, until `wait_visible` has passed.
  Result<Inspection> inspect(const std::string& directory, const InspectOptions& options) const;

  // Syncs what was inspected and writes the manifest last. Sealing again what is sealed with the same content gives the
  // manifest that lies there; other content is a conflict. After a failure there is no manifest or, if the storage
  // refused even its removal, a right one.
  Result<Manifest> seal(const std::string& directory, const Inspection& inspection, const SealInfo& info) const;
  Result<Manifest> load_manifest(const std::string& directory) const;
  // Of a directory that others made, which was sealed under `save_path`.
  Result<Manifest> load_foreign_manifest(const std::string& save_path, const std::string& directory) const;
  // The manifest is there, every file has its size and header, and no weights file is there that it doesn't name.
  Status verify_sealed(const std::string& directory, const Reach& reach = {}) const;
  // The same by a manifest that lies elsewhere.
  Status verify_against(const Manifest& manifest, const std::string& directory, const Reach& reach = {}) const;

  // Reads every file whole. A file that was cut or has grown since the inspection, or whose header changed, is an
  // error.
  Result<Digest> digest(const std::string& directory, const Inspection& inspection,
                        const DigestControl& control = {}) const;
  // Writes the manifest again with the digests, atomically. `conflict` when it has others already.
  Result<Manifest> complete_manifest(Manifest manifest, const Digest& digest) const;

  // What engines should show of this version. Up to 8 tensors have leading values: small unfused ones first, and before
  // all those that differ from `previous`. Norms, embeddings and lm_head have the SHA-256 of their raw bytes, smallest
  // first, until kExpectedHashBytesMax is reached; what was left out for that is said in `notes`. Tensors with no
  // leading values are there for their hash only.
  Result<Expectations> expectations(const std::string& directory, const Inspection& inspection,
                                    const PreviousVersion* previous = nullptr,
                                    std::vector<std::string>* notes = nullptr) const;

  // Renames the attempt's directory into the trash and removes it there. Only what has our record is touched, never
  // what LATEST names, and what is sealed only with `sealed_too`. A directory that isn't there is a success: a late
  // save may bring it back, and then it is discarded once more.
  Status discard(const std::string& save_path, const std::string& directory, bool sealed_too = false) const;
  Status mark_latest(const std::string& save_path, const std::string& directory) const;

  // A checkpoint of no tensors in our own folder, made if it isn't there: vLLM puts its kernel tensors back when it
  // loads it. Gives its directory.
  Result<std::string> ensure_empty_checkpoint(const std::string& save_path) const;
  static std::string empty_checkpoint_of(const std::string& save_path);
  Result<std::string> latest(const std::string& save_path) const;  // what LATEST says; `not_found` without one

  // The path, normalised, if it is absolute, has no "..", and lies in one of `roots` (any, if there are none) without a
  // link that leads out of it. Parts that don't exist yet are fine.
  Result<std::string> confine(const std::string& path, const std::vector<std::string>& roots) const;

 private:
  FileSystem* files_;
  Patience patience_;
};

}  // namespace weighlock
