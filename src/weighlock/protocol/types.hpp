// The words of an update: policy, states, verdicts, causes. Values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/operation.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::protocol {

using UpdateId = std::string;      // "<boot>-<n>": unique over restarts, since the boot id is drawn anew
using CallId = std::uint64_t;      // one call to a worker or trainer; never used twice in a process
using TimerId = std::uint64_t;     // likewise
using ReplyToken = std::uint64_t;  // the edge's name for a client that waits; 0 = nobody

// What a transfer of a colocated pair consists of, in order: each step is of all members before the next. Others have
// the transfer alone.
enum class HandOverStep {
  release_optimizer,  // trainers
  resume_weights,     // workers
  transfer,           // all
  release_weights,    // trainers
  resume_kv_cache,    // workers
};
std::string_view name(HandOverStep step);

// A worker's memory, as far as a transfer of a colocated pair has to do with it. Resuming a tag twice ends SGLang's
// scheduler, so what may be sent is known by what was.
enum class EngineMemory {
  whole,           // nothing is owed to it
  released,        // a transfer began, and asked nothing of it yet
  weights_asked,   // ... asked it to resume its weights, and that has no good end
  weights_back,    // ... they are there
  kv_cache_asked,  // ... asked it to resume its cache, and that has no good end
};

// One version of a pair's weights. Numbers compare within a lineage only.
struct VersionRef {
  std::int64_t lineage = 0;  // 0 = what the engines started with
  std::int64_t version = 0;
  std::string directory;
  std::string label;
  std::string digest;  // hex; "" until known
  bool same_version(const VersionRef& o) const { return lineage == o.lineage && version == o.version; }
};

enum class UpdateState {
  queued,
  requested,
  preparing,
  pausing,
  loading,
  verifying,
  committing,
  resuming,
  restoring,
  succeeded,
  degraded,
  rolled_back,
  aborted,
  rejected,
  failed,
};
bool is_terminal(UpdateState state);

enum class Verdict { untouched, loaded, verified, torn, unknown };

enum class WorkerState {
  joining,
  ready,
  pausing,
  paused,
  loading,
  loaded,
  verified,
  resuming,
  unknown,
  torn,
  healing,
  quarantined,
  draining,  // its operator takes it out: it goes on with what it holds, and gets nothing new
  foreign,
  gone,
  abandoned,
};

enum class CauseCode {
  unreachable,  // no connection; nothing was sent to it in this update
  restarted,    // a new process: whatever was known of it is void
  pause_failed,
  label_failed,
  load_failed,
  load_unknown,
  verify_failed,
  flush_failed,
  heal_failed,
  resume_failed,
  probe_failed,    // it generates no valid token on verified weights
  no_last_good,    // there is nothing verified to heal it with
  outstanding,     // an earlier call may still run in it, and no barrier told that it ended
  needs_restart,   // only a new process can serve again
  suspect,         // the version killed two engines; not loaded again without an operator or a newer version
  credentials,     // it refused our key
  lagging,         // it is whole, but too many versions behind (`max_lag`)
  foreign,         // someone else wrote its label
  adapter_failed,  // LoRA: this version of the adapter is not served there; the worker itself is as before
  operator_hold,
};

struct Cause {
  CauseCode code = CauseCode::unreachable;
  std::string message;
  Instant since;
};

enum class OnFailure { degrade, rollback_all };
enum class PauseOwner { gateway, caller, never };
enum class DigestPolicy { overlap, before, off };
enum class TrainerKind { areal, external };
enum class SaveTrigger { all, rank0 };

struct Quorum {
  enum class Kind { half, all, count } kind = Kind::half;
  int count = 0;
  // How many of `members` must be verified; at least 1.
  int needed(int members) const;
};

// Milliseconds; every default is from design/protocol.md section 11.
struct Deadlines {
  Milliseconds save{600'000};
  Milliseconds pause{30'000};
  Milliseconds load{300'000};
  Milliseconds verify{30'000};
  Milliseconds resume{30'000};
  std::optional<Milliseconds> restore;  // 2 x load + verify + resume
  std::optional<Milliseconds> whole;    // their sum
  Milliseconds restore_or_default() const;
  Milliseconds whole_or_default() const;
};

// Policy of a pair, and of one update after the update's own settings were laid over it.
struct Policy {
  Quorum quorum;
  OnFailure on_failure = OnFailure::degrade;
  int canary =
      0;  // workers per dialect that load first; 1 by itself for an update that can't be compared with anything
  int max_lag = 0;
  PauseOwner pause = PauseOwner::gateway;
  PauseMode pause_mode = PauseMode::abort;
  int load_window = 0;     // loads at once; 0 = all
  double straggler = 3.0;  // x the median load time
  Milliseconds straggler_min{10'000};
  std::optional<Evidence> evidence;  // none given = the best that each worker can show
  DigestPolicy digest = DigestPolicy::overlap;
  int keep_versions = 3;
  std::string label_format = "{version}";
  bool allow_layout_change = false;
  bool coalesce = false;
  // While the pair is in use, that is within this time (or four times the longest between two updates, if that is
  // longer) of the last update or connect, workers are brought back by themselves. 0: never.
  Milliseconds pair_lease{3'600'000};
  Deadlines deadlines;
};

// A worker that its owner holds paused or has in its hands, or is about to.
struct HeldWorker {
  std::string url;
  std::string incarnation;  // "" = not known when it was written
  std::string label = {};   // under this one nothing has begun that could have torn it; "" = it may be torn under any
  bool held = true;         // false: if it is paused, then by somebody else, and only its label matters
  bool operator==(const HeldWorker&) const = default;
};

// Who owns a pair: one file on the pair's storage (protocol.md section 9). The highest number wins.
struct Epoch {
  std::int64_t number = 0;  // 0 = nobody ever took one
  std::string owner;        // a gateway's id; "" = the file can't be read as one of ours
  std::string host;         // for people, as the next two
  std::string written_at;
  std::string remark;              // why the file says no more
  std::vector<HeldWorker> paused;  // and those in hand that somebody else holds paused
};

struct WorkerSpec {
  std::string url;                     // normalised (core/url.hpp)
  std::optional<DialectKind> dialect;  // none = auto
  std::string key_references = {};     // the edge's own words for where the worker's keys are found; never a key
};

// A pair whose versions are LoRA adapters: version N is loaded under the name "<name>-v<N>" beside the others.
struct LoraSpec {
  std::string name;
  std::int64_t keep = 0;  // how many versions stay loaded; 0 = all
};

// A pair whose weights go from rank to rank in a collective of all its trainers and workers (docs/adr/0005).
struct AwexSpec {
  std::string master_addr;  // where the group's ranks meet; "" = the first worker's host
  int master_port = 0;      // 0 = a default
  bool colocate = false;    // trainers and workers share their devices
  std::string master_of;    // the worker whose address that is: the first one when the pair was connected
};

struct PairSpec {
  std::string name;
  std::string save_path;
  TrainerKind trainer_kind = TrainerKind::areal;
  std::vector<std::string> trainer_urls;
  SaveTrigger save_trigger = SaveTrigger::all;
  std::vector<WorkerSpec> workers;
  std::optional<LoraSpec> lora;                 // none = full models
  std::optional<AwexSpec> awex = std::nullopt;  // none = by files
  Policy policy;
};

// The name under which engines know one version of an adapter (AReaL's rule; "policy-v-1" for a negative one).
std::string adapter_name(const LoraSpec& lora, std::int64_t version);

std::string_view name(UpdateState state);
std::string_view name(Verdict verdict);
std::string_view name(WorkerState state);
std::string_view name(CauseCode code);
std::string_view name(OnFailure value);
std::string_view name(PauseOwner value);
std::string_view name(DigestPolicy value);

}  // namespace weighlock::protocol
