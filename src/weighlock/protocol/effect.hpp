// What the machine asks of the edge. An effect is performed only after all records of its group are durable.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weighlock/core/error.hpp"
#include "weighlock/protocol/record.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock::protocol {

struct Append {
  Record record;
};

// One operation with one worker. It has no time limit of its own: the machine gives up by timers. Answered by
// CallEnded. `dialect` is none for OperationKind::identify, and only for that.
struct Call {
  CallId call = 0;
  std::string worker;
  std::optional<DialectKind> dialect;
  Operation operation;
  UpdateId update;
  bool intent_durable = false;  // it stood in an earlier group, so nothing is to be waited for
};

// The call's connection is closed by reset; no CallEnded follows. What it started may go on in the engine.
struct Cancel {
  CallId call = 0;
};

// POST /save to one rank; answered by SaveEnded, however late.
struct TriggerSave {
  CallId call = 0;
  std::string trainer;
  std::string directory;
  UpdateId update;
};

// Whether the rank has come out of a save that an earlier process asked it for: a call that its queue answers after
// what came before. Answered by SaveEnded for `call` once it has, however late; never by one that can't tell.
struct AskTrainer {
  CallId call = 0;
  std::string trainer;
};

// Free space, attempt record, directory. Answered by Prepared.
struct Prepare {
  UpdateId update;
  std::string save_path;
  std::int64_t lineage = 0;
  std::int64_t version = 0;
  std::int64_t attempt = 0;
  std::uint64_t bytes_needed = 0;  // of the version before; 0 = not known
};

// Inspect, compare with the reference, write the manifest. Answered by Sealed. With `stored` nothing is written: it was
// sealed before, and is looked at whether it is still what was.
struct Seal {
  UpdateId update;
  std::string pair;
  std::string save_path;
  std::string directory;
  bool foreign = false;             // handed over: never deleted, its own files never changed
  std::string reference_directory;  // the committed version's, or the start model's; "" = none
  std::int64_t lineage = 0;
  std::int64_t version = 0;
  std::int64_t attempt = 0;
  bool allow_layout_change = false;
  bool stored = false;              // see above
  std::string digest;               // stored: what the journal knows of its bytes, "" = nothing
  bool digest_now = false;          // complete the digest before answering; stored: read it whole, if there is a digest
  bool is_adapter = false;          // LoRA: an adapter is inspected, and `reference_directory` is the adapter before
  std::string adapter_base;         // LoRA: the directory of the model that its names must belong to; "" = not known
  std::string adapter_base_reason;  // LoRA: why that is not known
};

// Read the sealed version whole, complete its manifest. Answered by DigestDone.
struct ComputeDigest {
  UpdateId update;
  std::string directory;
};

// The attempt's directory is taken out of sight and removed; only if it is ours. Answered by Discarded.
struct Discard {
  UpdateId update;
  std::string save_path;
  std::string directory;
};

// The pair's committed version, for people and restarts. Best effort.
struct MarkLatest {
  std::string save_path;
  std::string directory;
};

// With `epoch` 0: take the next epoch of the pair's storage; the list of its predecessor is taken along in the file.
// Else: write the list of paused workers of our own epoch again, then look. Answered by EpochClaimed.
struct ClaimEpoch {
  std::uint64_t ask = 0;
  std::string pair;
  std::string save_path;
  std::string owner;
  std::int64_t epoch = 0;
  std::vector<HeldWorker> paused;
};

// Which epoch is the highest? Answered by EpochSeen.
struct LookEpoch {
  std::uint64_t ask = 0;
  std::string pair;
  std::string save_path;
};

// Brings trainers and workers together to a group that can transfer weights: reports, metadata, bring-up, warm-up.
// Answered by GroupBuilt. The name was never used before.
struct BuildGroup {
  std::uint64_t ask = 0;
  std::string pair;
  std::string name;
  AwexSpec awex;
  std::vector<std::string> trainers;  // in the order of ranks
  std::vector<std::string> workers;
};

// The group is not used any more: trainers are told to leave it, its metadata goes. Best effort.
struct DropGroup {
  std::string pair;
  std::string name;
  AwexSpec awex;
  std::vector<std::string> trainers;
};

// The collective, or one of the steps around it: every member is asked once, all at the same time. Each worker's answer
// is the CallEnded of its Call, which is of the same group of effects and has Operation::transfer; each trainer's is a
// SaveEnded.
struct RunTransfer {
  struct Member {
    CallId call = 0;
    std::string url;
  };
  UpdateId update;
  std::string pair;
  std::string name;  // the group's
  std::int64_t version = 0;
  bool colocate = false;
  HandOverStep step = HandOverStep::transfer;
  std::vector<Member> trainers;  // those that are asked in this step
  std::vector<Member> workers;
};

struct StartTimer {
  TimerId timer = 0;
  Milliseconds after{0};
};

struct CancelTimer {
  TimerId timer = 0;
};

// The worker may not serve: run the fence hook, if one is configured.
struct Fence {
  std::string worker;
  std::string pair;
  Cause cause;
};

// The answer to a client's event. With `update` set and no error the request was accepted as (or joined) that update.
struct Reply {
  ReplyToken token = 0;
  std::optional<Error> error;
  UpdateId update;
  std::vector<std::string> abandoned;       // RemovePair: workers left paused, each with its cause
  std::vector<std::string> collected = {};  // CollectVersions: the directories that go
};

// The update is in a terminal state, and durable: whoever waits for it is answered.
struct UpdateEnded {
  UpdateId update;
};

// Ask the driver for CommitDurable once the group of this effect is durable.
struct AwaitDurable {
  UpdateId update;
};

// After Shutdown: nothing is left to do.
struct Stopped {};

using Effect = std::variant<Append, Call, Cancel, TriggerSave, Prepare, Seal, ComputeDigest, Discard, MarkLatest,
                            StartTimer, CancelTimer, Fence, Reply, UpdateEnded, AwaitDurable, Stopped, ClaimEpoch,
                            LookEpoch, AskTrainer, BuildGroup, DropGroup, RunTransfer>;
using Effects = std::vector<Effect>;

}  // namespace weighlock::protocol
