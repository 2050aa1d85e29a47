// What happens to the machine. Every event carries the time at which it is stepped.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock::protocol {

// A client makes or changes a pair. In the compatible API, and with `new_lineage`, each connect starts a lineage: a
// running update is cancelled up to PREPARING and waited for later.
struct ConnectPair {
  ReplyToken token = 0;
  PairSpec spec;
  bool new_lineage = true;
};

// Drains and forgets a pair: the running update ends first, paused workers are healed once, what can't be is named.
struct RemovePair {
  ReplyToken token = 0;
  std::string pair;
};

struct RequestUpdate {
  ReplyToken token = 0;
  std::string pair;
  std::int64_t version = 0;
  std::optional<std::int64_t> lineage;  // none = the pair's present one
  std::string key;                      // idempotency key, "" = none
  std::string path;                     // a finished directory (trainer=external), "" = save
  Policy policy;                        // the pair's, with the update's own settings laid over it
  bool rollback = false;  // to a version that was committed before; `version` and `path` are not looked at
  std::optional<std::int64_t> rollback_to;  // none = the newest one committed before the present one
};

// What is asked of one worker of a pair, between updates or during one.
enum class WorkerChange {
  add,         // it is brought to the committed version, then it serves
  remove,      // at the end of the running update; brought back first if it is held paused
  drain,       // it leaves the updates' targets and goes on serving what it holds, until it is released or removed
  quarantine,  // it is held paused until it is released
  release,     // whatever held it back is over: it is brought to the committed version again
};

struct ChangeWorker {
  ReplyToken token = 0;
  std::string pair;
  WorkerChange change = WorkerChange::add;
  WorkerSpec worker;   // add: whole; else its URL
  std::string reason;  // quarantine, drain: an operator's own words
};

// Deletes what retention would delete after the pair's next update; not while one runs.
struct CollectVersions {
  ReplyToken token = 0;
  std::string pair;
  bool dry_run = false;  // only tells
};

struct CancelUpdate {
  ReplyToken token = 0;
  UpdateId update;
};

// A call to a worker ended by itself. Also sent, late, for calls that were given up (Cancel ends them without an
// event).
struct CallEnded {
  CallId call = 0;
  Outcome outcome;
};

enum class SaveOutcomeKind { ok, failed, unknown, not_sent };

struct SaveEnded {
  CallId call = 0;
  SaveOutcomeKind kind = SaveOutcomeKind::unknown;
  std::string text;            // the rank's own words, or the transport's
  bool may_run = false;        // a proxy gave up for it: the rank may be in its collective still
  bool blames_a_peer = false;  // of a transfer: its words tell of another member
};

struct Prepared {
  UpdateId update;
  Result<std::string> directory;
};

struct SealedVersion {
  std::uint64_t bytes = 0;
  std::uint64_t tensors = 0;
  bool blind = false;                  // the directory can't be seen from here: nothing was inspected
  bool compared = false;               // names, shapes and dtypes were compared with the reference
  bool layout_changed = false;         // ... and differ (only with allow_layout_change)
  bool reference_clean = false;        // the reference directory was readable here and inspected clean
  std::string reference_reason;        // why not
  std::string digest;                  // hex, if it was computed before the seal or the saver gave one
  bool differs_from_reference = true;  // false: the digests agree
  std::optional<std::int64_t> adapter_rank = std::nullopt;  // LoRA: the greatest rank of its modules
  std::string adapter_base_reason = {};  // LoRA: why its names were not compared with the base model's; "" = they were
};

struct Sealed {
  UpdateId update;
  Result<SealedVersion> version;
};

struct DigestDone {
  UpdateId update;
  Result<std::string> digest;
};

// A directory was to be removed. On an error it may still be there.
struct Discarded {
  std::string directory;
  std::optional<Error> error;
};

struct ClaimedEpoch {
  std::int64_t epoch = 0;              // ours; its file is on the storage
  std::optional<Epoch> predecessor;    // of another owner, read after ours was there
  std::optional<Epoch> superseded_by;  // another took a higher one; nothing else is told then
};

// Errors: storage_not_visible = this host can't keep an epoch there at all; any other: the storage refused.
struct EpochClaimed {
  std::uint64_t ask = 0;
  std::string pair;
  Result<ClaimedEpoch> claimed;
};

struct EpochSeen {
  std::uint64_t ask = 0;
  std::string pair;
  Result<Epoch> highest;
};

// A worker that failed by itself while a group was built: by its own words, or it could not be reached.
struct RefusedWorker {
  std::string url;
  std::string words;
  bool unreachable = false;
};

// What came of a BuildGroup. On an error nothing of the group is left where it could be taken back.
struct GroupBuilt {
  std::uint64_t ask = 0;
  std::optional<Error> error;
  bool port_taken = false;                  // a member says that somebody else listens where the group was to meet
  std::vector<RefusedWorker> refused = {};  // none where a trainer failed by itself: no group without them helps then
};

struct TimerFired {
  TimerId timer = 0;
};

// The commit record's group is on disk (sent by the driver).
struct CommitDurable {
  UpdateId update;
};

// The first event after a replay that left something undone: updates of the gateway that died are ended or undone.
struct Recover {};

// SIGTERM: admission stops; running updates are compensated or finished.
struct Shutdown {};

using EventBody = std::variant<ConnectPair, RemovePair, ChangeWorker, RequestUpdate, CollectVersions, CancelUpdate,
                               CallEnded, SaveEnded, Prepared, Sealed, DigestDone, TimerFired, CommitDurable, Recover,
                               Shutdown, EpochClaimed, EpochSeen, GroupBuilt, Discarded>;

struct Event {
  Instant now;
  EventBody body;
};

}  // namespace weighlock::protocol
