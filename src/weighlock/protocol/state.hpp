// Everything the machine knows. Plain data, owned by the driver; the edge reads it for status answers, only `step`
// writes it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weighlock/core/error.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/event.hpp"
#include "weighlock/protocol/lora_state.hpp"
#include "weighlock/protocol/ownership_state.hpp"

namespace weighlock::protocol {

// A call whose answer was given up or lost: it may still run in the engine, or take effect later.
struct EarlierCall {
  CallId call = 0;
  OperationKind kind = OperationKind::load;
  PauseMode pause_mode = PauseMode::abort;
  bool may_answer = false;  // its connection is still open, and its own answer would end the doubt
  bool held_before =
      false;               // a pause: whether the worker was held paused by us already; a load: whether it was touched
  bool unpaused = false;   // sent to an engine that was not paused: some have no barrier for it then
  bool since_read = true;  // no reading came after it, so a process that is seen first now may have got it
  bool carries_label = false;   // a load: its label is written with it, where the dialect does so
  bool resumes_memory = false;  // a load that is no more than that: Worker::memory says of what
  bool keeps_cache = false;     // a load in mode `keep`: what was cached stays, and is of other weights then
  bool drops_cache = false;     // its success leaves no prefix of former weights
  bool owed_before = false;     // with `keeps_cache`: a flush was owed already
  bool pays_flush = false;      // the watch's flush of an owed one: nothing that follows depends on whether it ran
};

// Its weights were replaced in mode `keep`, and no flush of its cache has succeeded since: an engine refuses one while
// requests run. Asked for again between updates until it is done (watch.cpp), by the load's records also after a
// restart.
struct OwedFlush {
  std::optional<Instant> since;  // READY with it since; none: not READY yet
  int tries = 0;                 // by this process, since the last load
};

// The look that is kept on a worker between updates (watch.cpp).
struct Watch {
  std::optional<TimerId> timer;    // the next look; while a call runs, its limit
  std::optional<CallId> call;      // the worker's `in_flight`, if that is ours
  bool whole = true;               // the next look reads the incarnation too
  int brief_looks = 0;             // since one did
  int failures = 0;                // in a row; they stretch the time to the next look
  int continues = 0;               // found running since this was last told
  int holds = 0;                   // found paused by another since the last update, or since it ran
  std::optional<Instant> told_at;  // when a record last said that it was found running
  std::optional<Cause> trouble;    // why the last look failed, since the first that did; none = it was answered
};

// How often bringing a worker to the committed version failed, between updates (join.cpp).
struct JoinHistory {
  int failures = 0;           // in a row
  Instant not_before;         // of the next try; of this process only
  std::string doubtful_load;  // the version ("lineage/version") whose load had no known end in this incarnation, or ""
};

// One worker of the registry, keyed by its normalised URL. It belongs to the gateway; `pair` is its one full-model
// pair ("" = none: only LoRA pairs use it, and it stays READY).
struct Worker {
  std::string url;
  std::optional<DialectKind> dialect;
  std::string pair;
  WorkerState state = WorkerState::ready;  // baseline: before the first update it may serve (protocol.md section 2)
  std::optional<VersionRef> version;       // what it holds, when known; none = what it started with
  Evidence evidence = Evidence::none;
  std::optional<Cause> cause;

  std::string incarnation;             // "" until first read
  std::optional<DialectKind> seen_as;  // the dialect by which that process was read: another one than `dialect` is
                                       // another process
  int strange_readings = 0;  // in a row, with an answer that the dialect doesn't know; from `kStrangeReadings` on it is
                             // asked what it is
  std::vector<std::string>
      labels;                 // what we may have written last in this incarnation; a label is ours if it is one of
                              // these (several while an answer is missing), or the start label when there is none
  std::string start_label;    // the label found when the incarnation was first seen
  std::string start_path;     // the model path that it started with
  bool paused_by_us = false;  // a pause intent of ours in this incarnation has no known end
  bool pause_since_read =
      false;  // a pause was sent after the last reading: whichever process answers next may have got it
  bool load_since_read =
      false;  // a load ended after the last reading, not without effect: it may have been of a new process
  bool paused_by_other = false;
  bool touched = false;  // a load was sent since it was READY or a new process: its label needn't say what it holds
  EngineMemory memory = EngineMemory::whole;
  std::optional<OwedFlush> owes_flush;

  std::vector<EarlierCall> earlier;
  std::optional<EarlierCall> in_flight;  // at most one
  UpdateId locked_by;                    // "" = free
  Watch watch;
  std::optional<TakenOver> taken_over;  // from another gateway, and not read since its calls have ended
  JoinHistory joins;
};

// A process of it was read: before that nothing says that there is an engine, whatever its state.
bool was_read(const Worker& worker);

// It serves, and that is known: what routers and people are told (`state` is the baseline that an update begins with).
bool is_ready(const Worker& worker);

// Why it isn't ready, with what its looks found since: what people are told.
std::optional<Cause> cause_of(const Worker& worker);

enum class Role { member, extra };

// What a target is doing. The order is the order of an update; heal_* serve catch-up and restoring alike.
enum class Step {
  surveying,
  surveyed,
  pausing,
  paused,
  labelling,
  assembling,  // ready for the collective, which waits for the others
  loading,
  answered,  // its part of the collective is over; what it did shows when all have answered
  asking,    // the answer to the load was lost: a barrier, and what the engine says it holds
  labelling_version,
  flushing,
  adapter_unloading,
  adapter_loading,
  verifying,
  adapter_listing,
  repausing,
  judged,  // has a verdict, waits for the decision
  barrier,
  cache_resuming,  // colocated: it came out of the collective late, and gets its memory before anything else
  heal_reading,
  heal_pausing,
  heal_labelling,
  heal_loading,
  heal_emptying,
  heal_reloading,
  heal_labelling_version,
  heal_flushing,
  heal_verifying,
  former_label,
  resuming,
  resume_waiting,
  checking,
  flushing_after,
  probing,
  fencing,
  adapter_undoing,
  done,
};

struct Target {
  std::string worker;
  Role role = Role::member;
  Step step = Step::surveying;
  int batch = 0;
  bool included = true;  // false: left out before its load was sent
  bool was_paused = false;
  bool pause_sent = false;
  bool paused = false;
  bool label_changed = false;
  bool resume_sent = false;
  bool flushed_after = false;  // mode keep: the one flush after the resume was sent
  bool load_sent = false;
  bool asked = false;            // the answer to its load was lost once, and it was asked
  bool unproven = false;         // ... and showed the new label: only evidence above that counts
  bool may_have_loaded = false;  // ... and nothing shows that this load did nothing, whatever the next one says
  bool transferred = false;      // its own part of the collective was answered well
  bool blames_a_peer = false;    // ... badly, with words that tell of another member
  bool counted_lost = false;     // a member lost before its load was sent leaves the count
  std::string incarnation;
  std::string former_label;
  std::optional<VersionRef> former_version;
  WorkerState former_state = WorkerState::ready;
  std::optional<Cause> former_cause;
  Verdict verdict = Verdict::untouched;
  Evidence evidence = Evidence::none;
  bool vacuous = false;
  bool needs_restart = false;
  std::optional<Cause> cause;
  std::optional<VersionRef> goal;  // what a heal brings it to
  int repauses = 0;
  int tries = 0;            // of the present step, where it may be repeated
  bool caught_up = false;   // the one catch-up was tried
  bool reached = false;     // the survey's read was answered
  bool read_whole = false;  // a brief reading left a doubt: from now on readings are whole
  bool recovered = false;   // taken over from a gateway that died, and not read since
  bool read_twice = false;  // of a takeover: its label was asked for once more before it is believed
  std::optional<CallId> call;
  Instant called_at;                    // when the last one was sent
  std::optional<Step> waiting_load;     // of a heal: it waits for a reading of the process that it is for
  std::vector<OperationKind> intended;  // steps of its pipeline that were recorded when it began
  Instant load_started;
  std::optional<Milliseconds> load_took;
  std::optional<Instant> paused_at;
  std::optional<Instant> resumed_at;
  std::optional<Instant> switched_at;
  std::optional<AdapterProgress> adapter;  // LoRA
  std::optional<WorkerState> ended_as;     // the worker's state when the update ended; later ones may move it on
};

enum class UpdateKind {
  update,
  leave,  // heals once what a removed pair or worker left paused
  join,   // brings one worker to the committed version, between updates: a job beside the pair's active one
};
std::string_view name(UpdateKind kind);

struct Rank {
  std::string trainer;
  CallId call = 0;
  bool ended = false;
  SaveOutcomeKind kind = SaveOutcomeKind::unknown;
  std::string text;
  bool blames_a_peer = false;
  // Of a hand-over, which asks it several times:
  bool failed = false;    // `kind` and `text` are of the first step that did
  bool given_up = false;  // it is silent, and asked nothing behind that
};

// A transfer of a colocated pair, step by step (awex_memory.cpp).
struct HandOver {
  std::string group;
  std::vector<std::string> workers;
  HandOverStep step = HandOverStep::release_optimizer;
  // Why there is no transfer any more, so that the steps that are left only bring memory back: in short, or as the
  // error that ends the update.
  std::string failure;
  std::optional<Error> error;
  bool is_undone() const { return error || !failure.empty(); }
};

struct PhaseTime {
  UpdateState state;
  Instant began;
  Milliseconds took{0};
};

struct Update {
  UpdateId id;
  std::uint64_t number = 0;  // order of arrival
  UpdateKind kind = UpdateKind::update;
  bool takes_over = false;  // leave: brings back what the pair's former owner held paused
  std::string pair;
  VersionRef version;
  std::int64_t attempt = 0;
  std::string key;
  std::string path;         // handed directory, or ""
  std::string start_model;  // PREPARING, before the pair's first commit: what the seal compares with; "" = nothing
  bool rollback = false;    // to a version that was committed before: nothing is saved or sealed
  Policy policy;
  UpdateState state = UpdateState::queued;
  Instant requested_at;
  std::optional<Instant> ended_at;
  std::vector<PhaseTime> phases;

  // PREPARING
  std::string save_path;        // the pair's when the directory was made; the pair may be gone when it is discarded
  std::vector<Rank> ranks;      // of the save, or of the collective
  bool transfer = false;        // by the pair's group, not by files: nothing is saved or sealed
  std::uint64_t group_ask = 0;  // the group that is being built for it
  std::optional<HandOver> hand_over;  // under way
  bool save_done = false;
  bool survey_done = false;
  bool directory_made = false;
  std::optional<SealedVersion> sealed;
  std::optional<Error> save_error;

  // PAUSING and later
  std::map<std::string, Target> targets;  // by URL
  bool members_fixed = false;
  int batch = 0;  // the batch that loads now
  int batches = 1;
  bool quorum_reached = false;
  int waiting = 0;  // targets with a call under way: while there are any, no phase that waits for all is over
  // What the last look at all targets left to count down (load_decision.cpp).
  struct Countdown {
    int unjudged = 0;       // of the batch
    int unloaded = 0;       // targets that aren't being verified yet
    int until_quorum = -1;  // verdicts that still decide something; -1: none
  } countdown;

  // Waits for workers that another pair's update holds; nothing was done to its own yet.
  bool waits_for_locks = false;
  std::set<std::string> wanted_locks;

  std::optional<Error> error;
  std::optional<bool> committed = false;  // none = undecided
  std::map<TimerId, std::string> timers;  // purpose by id
};

// A rank whose /save hasn't ended still owns its engine, whatever became of the attempt or the pair.
struct TrainerBusy {
  UpdateId update;
  std::string save_path;
  CallId call = 0;
  Instant since;
  std::string directory;
};

// A sealed version on storage.
struct StoredVersion {
  VersionRef version;
  bool committed = true;   // false: its update was undone
  bool handed = false;     // its directory is another's: never deleted, only forgotten
  bool withdrawn = false;  // committed, and the pair was rolled back from it since
  std::uint64_t bytes = 0;
};

// A directory whose removal is on record, and not known to be done: whoever starts next asks for it again.
struct DoomedDirectory {
  std::string directory;
  std::string save_path;  // the pair's when it was recorded
  UpdateId update;        // "": an operator asked
};

// Trainers and workers that can transfer weights together. It is never on record: a process that starts has none, and
// the next update builds one.
struct TransferGroup {
  std::string name;                   // on the wire; never used twice
  std::vector<std::string> trainers;  // in the order of ranks
  std::vector<std::string> workers;
  std::map<std::string, std::string> incarnations;  // by worker; "" = not read yet
  std::map<std::string, RefusedWorker> refused;     // workers of the pair without which it was built
};

// A group of a process before this one: nothing says that its trainers have left it.
struct LeftGroup {
  std::string pair;
  std::vector<std::string> trainers;
  bool colocate = false;
};

// Where ranks of a group meet. The first worker listens there for as long as it lives: it has no way to leave a group.
struct MeetingPlace {
  std::string pair;
  std::string worker;
  std::string address;
  int port = 0;
};

// A group that is being built, and for whom.
struct GroupAsk {
  TransferGroup group;
  AwexSpec awex;
  MeetingPlace place;
  UpdateId update;                     // or:
  std::optional<ConnectPair> connect;  // takes effect when the group stands
};

struct Pair {
  PairSpec spec;
  std::int64_t lineage = 0;
  std::int64_t attempts = 0;
  std::optional<VersionRef> committed;
  std::optional<VersionRef> last_good;
  std::optional<VersionRef>
      previous_good;                   // the last good before that: taken again if the last one's bytes turn out bad
  std::optional<VersionRef> highest;   // the highest number committed in the newest lineage that has committed any: a
                                       // rollback lowers `committed`, and numbers are still used once
  std::deque<StoredVersion> stored;    // what is known on storage, in the order in which it was sealed
  std::deque<DoomedDirectory> doomed;  // in the order of their records, bounded
  bool storage_waits = false;          // of this process: what the one before owed the storage waits for the first look
  std::string rollback_reason = "the pair has no committed version yet";  // why last_good is none
  std::uint64_t bytes_last = 0;
  UpdateId active;
  std::deque<UpdateId> queue;
  std::deque<UpdateId> history;                         // ended ones, newest last, bounded
  std::map<std::string, UpdateId> keys;                 // idempotency
  std::map<std::string, std::set<std::string>> deaths;  // "lineage/version" -> worker/incarnation that died on it
  std::map<std::string, std::set<std::string>>
      spoiled;  // "lineage/version" -> workers that its failed attempt left not ready
  std::map<std::string, WorkerAdapters> adapters;  // LoRA, by worker
  std::deque<AdapterVersion> window;               // LoRA: the last committed versions, newest last, bounded
  std::optional<ConnectPair> reconnect;            // waits for the running update
  std::optional<TransferGroup> group;              // none = the next update builds one
  Ownership ownership;
  std::deque<ChangeWorker> changes;  // likewise, in order
  std::set<std::string> leaving;     // workers that the first of them removes, while they are healed
  std::set<UpdateId> joins;          // running ones, of one worker each
  std::deque<UpdateId> joins_ended;  // newest last, bounded
  bool distrusted = false;           // the committed version's files turned out bad
  bool trainer_pauses = false;  // of this process: the last update found all workers paused, and that was made sure of
  Instant used_at;              // the last update or connect
  std::optional<Instant> requested_at;  // the last update
  Milliseconds longest_gap{0};          // between two updates
  std::vector<ReplyToken> removing;     // waits likewise; non-empty: the pair is being removed
};

struct State {
  std::string boot;   // drawn at start
  std::string owner;  // drawn once per state directory; "" = no epochs are kept
  std::map<std::string, Worker> workers;
  std::map<std::string, Pair> pairs;
  std::map<UpdateId, Update> updates;
  std::map<CallId, std::pair<UpdateId, std::string>>
      calls;  // running worker calls -> update ("" = none any more), worker
  std::map<CallId, AdapterCall> adapter_calls;
  std::map<TimerId, std::pair<std::string, std::string>> retire_timers;  // pair, worker
  std::map<CallId, std::pair<std::string, std::string>> saves;           // running saves -> pair, trainer
  std::map<std::string, TrainerBusy> busy;                               // trainers whose /save hasn't ended, by URL
  std::map<std::uint64_t, GroupAsk> group_asks;
  std::map<std::string, LeftGroup> left_groups;                  // by name
  std::deque<MeetingPlace> meetings;                             // newest last, bounded
  std::map<CallId, std::pair<UpdateId, std::string>> transfers;  // running trainers' parts -> update, trainer
  std::map<TimerId, UpdateId> timers;
  std::map<TimerId, std::string> watch_timers;  // worker
  std::map<TimerId, std::string> epoch_timers;  // pair
  std::deque<UpdateId> orphans;                 // ended updates of removed pairs, bounded
  // How often workers are looked at between updates; the edge may choose other times when it starts.
  Milliseconds watch_period = limits::kWatchPeriod;
  Milliseconds idle_watch_period = limits::kIdleWatchPeriod;
  Milliseconds watch_read_timeout = limits::kWatchReadTimeout;
  std::uint64_t next_id = 1;
  std::uint64_t next_update = 1;
  bool stopping = false;
  bool stopped = false;
};

// The pair is not in use any more (Policy::pair_lease): its workers are watched and not brought back.
bool is_dormant(const Pair& pair, Instant now);

}  // namespace weighlock::protocol
