// Internal to protocol/: the parts of the machine and how they call each other. One file per phase, in the order of an
// update:
//
//   admission.cpp  pairs, requests, queue, cancel, shutdown
//   rollback.cpp   what an update to a version that was committed before goes to, and what its commit changes
//   membership.cpp who comes to a pair, and who leaves it
//   prepare.cpp    PREPARING: save, seal
//   survey.cpp     reading the workers; what a reading means for the registry
//   policy_fit.cpp what a policy asks that a dialect can't give (policy_fit.hpp)
//   pause.cpp      PAUSING: targets, members, pauses
//   operations.cpp what is asked of a worker on the way
//   batches.cpp    who loads first
//   load*.cpp      LOADING, VERIFYING: one pipeline per worker, and the decision (loading.hpp)
//   commit.cpp     COMMITTING, RESUMING
//   restore.cpp    RESTORING
//   heal.cpp       bringing one worker to a version: catch-up and restoring share it
//   resume.cpp     letting one worker serve again, or fencing it
//   finish.cpp     terminal states
//   awex_*.cpp     by a collective instead of files: the group, and the transfer (awex.hpp)
//   recover.cpp    what a gateway that died left undone
//   settle.cpp     directories that go, and what a process that died owed the storage
//   retention.cpp  which committed versions are deleted, and when
//   operate.cpp    one worker added, removed, drained, quarantined or released
//   ownership*.cpp other gateways that take the pair (ownership.hpp)
//   watch.cpp      between updates: each worker is looked at; one that may not serve stays paused
//   join.cpp       between updates: a worker is brought to the committed version
//
// lora.hpp lists the files of LoRA pairs, and the locks that all pairs share.
//
// A function called `on_...` takes an event; any function may end the update, so nobody touches an update after calling
// one that may, except through `Context::find_update`.
#pragma once

#include "weighlock/protocol/context.hpp"
#include "weighlock/protocol/retained.hpp"

namespace weighlock::protocol {

// machine.cpp
void dispatch(Context& context, const EventBody& body);

// admission.cpp
void on_connect(Context& context, const ConnectPair& event);
void on_remove(Context& context, const RemovePair& event);
void on_request(Context& context, const RequestUpdate& event);
void on_cancel(Context& context, const CancelUpdate& event);
void on_shutdown(Context& context);
// The gateway stops: what the update did is undone, unless it is being undone or committed already.
void stop_update(Context& context, Update& update);
void abort_queue(Context& context, Pair& pair, const Error& error);
// The pair is what the event says from now on, and the client is told.
void apply_spec(Context& context, const ConnectPair& event);
std::optional<Error> refuse_spec(Context& context, const PairSpec& spec);
// The worker can't do what the pair asks for, as far as its dialect is known: the client's word, or what was found.
std::optional<Error> refuse_unfit(Context& context, const PairSpec& spec, const WorkerSpec& worker);
json::object connected_body(const PairSpec& spec, std::int64_t lineage);  // of a pair_connected record
// Whatever waits for the pair to be idle: a re-connect, a removal, the next update of the queue.
void pair_is_idle(Context& context, const std::string& pair);

// membership.cpp
// The worker is listed from now on. With a committed version it may not serve before it holds it.
void enter_pair(Context& context, Pair& pair, const WorkerSpec& spec);
// Leaving workers that hold what may not serve get one heal before they are let go. False: there are none.
bool start_leave_job(Context& context, const std::string& name, Pair& pair);
// Forgets the pair's leaving workers. Returns those that could not be brought back: they stay, as ABANDONED, until
// their URL is added again or an operator releases them.
std::vector<std::string> release_leaving(Context& context, const std::string& name, const Pair& pair);
void forget_worker(Context& context, const std::string& url);

// operate.cpp
void on_change_worker(Context& context, const ChangeWorker& event);
// What waited for the pair to be idle, in order. False: the first of them goes on when its worker is healed.
bool apply_changes(Context& context, const std::string& pair);
void refuse_changes(Context& context, Pair& pair, const Error& error);

// rollback.cpp
// Whether a request under the update's key asks for the same; and what it asks for, in words.
bool is_repetition(const Update& update, const RequestUpdate& event);
std::string wanted_by(const RequestUpdate& event);
// The rollback that runs or waits already: a second request without a target is a repetition of it.
std::optional<UpdateId> running_rollback(Context& context, const Pair& pair);
// What the request goes to, or why it can't be.
Result<StoredVersion> rollback_target(const Pair& pair, const RequestUpdate& event);
// Asked again when its turn has come.
std::optional<Error> refuse_rollback_now(const Pair& pair, const Update& update);
// Nothing is written: what was sealed is looked at.
void describe_stored(const Pair& pair, const Update& update, Seal& seal);
// The commit moves the pair's pointers. For the machine and for the replay alike.
void note_committed(Pair& pair, const Update& update);

// prepare.cpp
void begin_update(Context& context, Update& update);
void on_prepared(Context& context, const Prepared& event);
void on_save_ended(Context& context, const SaveEnded& event);
// Asks for the seal when the save and the survey are done.
void seal_when_ready(Context& context, Update& update);
void on_sealed(Context& context, const Sealed& event);
void on_digest_done(Context& context, const DigestDone& event);
void on_save_timer(Context& context, Update& update);
void on_save_grace_timer(Context& context, Update& update);
void first_survey_done(Context& context, Update& update);
// Ends an update whose engines were not touched: ABORTED or REJECTED; the attempt's directory is discarded.
void end_before_pause(Context& context, Update& update, UpdateState state, Error error);

// survey.cpp
void begin_survey(Context& context, Update& update);
// Whether the update does something to the worker, or is about to with what it read of it.
bool is_in_hand(const Update& update, const std::string& worker);
void read_worker(Context& context, Update& update, Target& target);
// What to ask a worker to learn its state: a barrier, where earlier calls may still run and one exists.
Operation next_reading(Context& context, Worker& worker);
void on_survey_timer(Context& context, Update& update);
// Who is known to be silent is left out; others may still answer.
void on_silent_survey_timer(Context& context, Update& update);
// What an answer of the engine says of the worker; true if it is another incarnation than the one known.
bool observe(Context& context, Worker& worker, const StateReading& reading);
// Another process answers for the target: what was read of the one before is void, whose pause it was above all.
void take_new_process(Target& target, const Worker& worker, const StateReading& reading);
bool label_is_ours(const Worker& worker, const std::string& label);
// Whether the pair's updates are for this worker.
bool is_updated(const Update& update, const Worker& worker);
// An operator's word keeps it where it is.
bool is_held(const Worker& worker);
// A label of a load that has not ended; no engine starts with one.
bool says_loading(const std::string& label);
void survey_step(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome);

// pause.cpp
// Whether an update may load the worker: it was reached, and nothing keeps it where it is.
bool may_take_part(const Pair& pair, const Update& update, const Target& target, const Worker& worker);
// What can't be met with the members that are there is refused before anyone is touched.
std::optional<Error> refuse_quorum(const Update& update, const std::string& reasons);
void begin_pausing(Context& context, Update& update);
json::object describe_targets(const Update& update);  // the body of a `targets` record
void pausing_survey_done(Context& context, Update& update);
void on_pausing_call(Context& context, Update& update, Target& target, const Outcome& outcome);
void on_pause_timer(Context& context, Update& update);

// operations.cpp
Operation label_operation(std::string label);
Operation load_operation(const Update& update);
Operation flush_operation(const Update& update);

// batches.cpp
void assign_batches(Context& context, Update& update);

// load.cpp, load_decision.cpp
void begin_loading(Context& context, Update& update);
void on_loading_call(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome);
// What follows from the verdicts that there are now (protocol.md section 3).
void decide_loading(Context& context, Update& update);
void on_load_retry(Context& context, Update& update, Target& target);
void on_load_timer(Context& context, Update& update);
void on_verify_timer(Context& context, Update& update);
void on_straggler_timer(Context& context, Update& update);

// commit.cpp
void begin_commit(Context& context, Update& update);
// A target that isn't verified gets one catch-up, without holding the others; what can't have one is quarantined.
void catch_up(Context& context, Update& update, Target& target);
void on_commit_durable(Context& context, const CommitDurable& event);
void on_resume_timer(Context& context, Update& update);

// restore.cpp
void begin_restoring(Context& context, Update& update, Error error);
// An update of kind `leave` for these workers of the pair, which is idle.
void start_leave(Context& context, const std::string& pair, const std::vector<std::string>& workers, bool takes_over);
void begin_leave(Context& context, Update& update);
void on_leave_surveyed(Context& context, Update& update, Target& target);
void on_restore_timer(Context& context, Update& update);

// heal.cpp
// Whether a worker at `version` may serve while `committed` is the committed one (invariant 2).
bool within_lag(const VersionRef& committed, const VersionRef& version, int max_lag);
// What the worker may be healed with: the pair's last good. Before the first commit that is the model that it started
// with itself; another engine's start model is not for it.
std::optional<VersionRef> heal_goal(Context& context, const Update& update, const Target& target);
void heal_or_quarantine(Context& context, Update& update, Target& target);
void start_heal(Context& context, Update& update, Target& target, VersionRef goal);
void on_heal_call(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome);
void on_heal_retry(Context& context, Update& update, Target& target);
// Notes that a version was the last thing sent to an incarnation that died.
void note_death(Context& context, Update& update, const Target& target, const VersionRef& version);
inline constexpr std::size_t kDeathsMax = 2;  // one engine may die of anything
bool is_suspect(const Pair& pair, const VersionRef& version);
std::string why_suspect(const Pair& pair, const VersionRef& version);  // names who died

// resume.cpp
void start_barrier(Context& context, Update& update, Target& target);
void start_former_label(Context& context, Update& update, Target& target);
void start_resume(Context& context, Update& update, Target& target);
void on_resume_call(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome);
void on_resume_retry(Context& context, Update& update, Target& target);
void quarantine(Context& context, Update& update, Target& target, Cause cause);
void start_retry(Context& context, Update& update, Target& target, Milliseconds after);

// watch.cpp
// The worker is in another lasting state: it is looked at from now on, as often as that state needs it.
void begin_watch(Context& context, Worker& worker);
// It leaves the registry.
void end_watch(Context& context, Worker& worker);
// Nothing that was known of it is believed before it was read, soon.
void look_soon(Context& context, Worker& worker, Milliseconds within);
// What it is, as an answer told. It is watched from then on, whatever becomes of the update that asked.
void note_dialect(Context& context, Worker& worker, DialectKind dialect);
// A time that is spread by the worker's name and `salt`: the machine draws no dice.
Milliseconds jittered(std::uint64_t salt, const std::string& worker, Milliseconds period);
void on_watch_timer(Context& context, TimerId timer, const std::string& url);
// The answer to a call of the watch; `call` is what was in flight.
void on_watch_call(Context& context, Worker& worker, const EarlierCall& call, const Outcome& outcome);
// An update is about to call the worker: it goes first.
void yield_watch(Context& context, Worker& worker);

// join.cpp
void note_use(Pair& pair, Instant now, bool is_update);
// What workers are brought to between updates; none while there is nothing that can be trusted.
std::optional<VersionRef> join_goal(const Pair& pair, const Worker& worker);
bool is_joining_now(const State& state, const Worker& worker);
// An update of the pair touches engines, or is about to: what they shall hold afterwards is not decided.
bool is_taken(Context& context, const Pair& pair);
// Whether the worker may be brought back now; it was read a moment ago, and nothing runs in it.
bool may_join(Context& context, const Worker& worker);
void begin_join(Context& context, Worker& worker, const StateReading& reading);
// Its worker is READY, or quarantined again.
void join_done(Context& context, Update& join);
void note_join_ended(Worker& worker, const Update& join, const Target& target, Instant now);
// The process whose load had no known end is gone.
void note_doubtful_death(Context& context, Worker& worker, const std::string& incarnation, std::string version);
// A worker isn't brought to a version that killed two: that is its cause from now on. False: nothing changed.
bool hold_if_suspect(Context& context, Worker& worker);
// READY is by at least the evidence that the pair asks for: who can't give that isn't brought back, and is told why.
bool hold_if_unprovable(Context& context, Worker& worker);
// Ends a join where it is; its worker is what it was, or of unknown content. Whoever waits for the lock is to be taken
// up again by the caller (`resume_waiting`).
void drop_join(Context& context, Update& join, std::string_view why);
void drop_joins(Context& context, const Pair& pair, std::string_view why);
void drop_join_of(Context& context, const Worker& worker, std::string_view why);
// An update is about to pause the pair's workers: joins are dropped, but for those whose load is on its way. True if
// these may be left out, since others serve.
bool make_room(Context& context, const Pair& pair);
// An answer came for a join while an update runs, or after one committed another version: it ends here. False if it
// may go on.
bool make_way_for_update(Context& context, Update& join);

// retention.cpp
// The update's version is sealed on storage: deleted some day if it is ours, forgotten if its directory was handed
// over.
void note_stored(Pair& pair, const Update& update, bool committed);
// The version's digest became known.
void note_digest(Pair& pair, const VersionRef& version);
// Deletes what is superseded and leased by nobody (storage.md, "Leases and retention"). The update has ended.
void release_versions(Context& context, const Update& update);
// Between updates something ended that may have been the last lease of a superseded version.
void collect_unleased(Context& context, const std::string& pair);
void on_collect(Context& context, const CollectVersions& event);

// settle.cpp
// The removal of a directory is on record, or known to be done. For the machine and for the replay alike.
void note_doomed(Pair& pair, DoomedDirectory doomed);
void note_discarded(Pair& pair, const std::string& directory);
// Records that the directory goes, and asks for it; `about` is what else its record says.
void discard_directory(Context& context, const std::string& pair, DoomedDirectory doomed, json::object about = {});
void on_discarded(Context& context, const Discarded& event);
// What the process before owed the pair's storage is done, if that waits; the pair is ours.
void settle_storage(Context& context, const std::string& pair);

// finish.cpp
// Ends RESUMING or RESTORING when every target is done.
void finish_if_done(Context& context, Update& update);
void end_update(Context& context, Update& update, UpdateState state, std::optional<Error> error);
// The same without what waited for it.
void close_update(Context& context, Update& update, UpdateState state, std::optional<Error> error);
// The last event of a gateway that stops: nothing is left to do.
void stop_if_idle(Context& context);
// Keeps the newest of a list of ended updates; what goes takes its idempotency keys along.
void forget_oldest(State& state, std::deque<UpdateId>& ended);

// recover.cpp
void on_recover(Context& context);
// The update that the process before had in hand goes on.
void recover_pair(Context& context, const std::string& pair);
// The first reading of a worker that an update of the gateway before had in hand; its earlier calls have ended.
void on_recovered_reading(Context& context, Update& update, Target& target, const StateReading& reading);

}  // namespace weighlock::protocol
