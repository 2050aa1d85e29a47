// Internal to protocol/: one step's view of the state, and the few ways in which it makes effects.
//
// Every effect of the machine is made here, so the rules that hold for all of them stand here too: a call that changes
// something has an intent record before it; one call at a time per worker; a call that was given up is remembered.
#pragma once

#include <string>
#include <string_view>

#include "weighlock/protocol/machine.hpp"
#include "weighlock/protocol/worker_calls.hpp"

namespace weighlock::protocol {

// Whether a barrier can tell that each of the worker's earlier calls has ended.
bool can_barrier_all(const DialectTraits& traits, const Worker& worker);
std::string version_key(const VersionRef& version);  // "lineage/version"
// Evidence `acknowledged`: what an engine answers is all that is asked of it. No label before the load, no verify, and
// brief readings. Its label is still read before the pause and after the resume.
bool trusts_answers(const Update& update);
// Whether the target's state may be read without the incarnation: a label that we wrote says as much of the process.
bool may_read_briefly(const Update& update, const Target& target, const Worker& worker);
class Context;
// Whether what was asked last took so long to be answered that the process may be another one by now. A load isn't sent
// then without a reading: by the label that announces it a later reading tells whether a new process got it, too.
bool may_be_another(const Context& context, const Target& target);

class Context {
 public:
  Context(State& state, const Dialects& dialects, Instant now) : state_(state), dialects_(dialects), now_(now) {}

  State& state() { return state_; }
  Instant now() const { return now_; }
  Effects take_effects() { return std::move(effects_); }

  Pair& pair_of(const Update& update);
  Worker& worker_of(const Target& target);
  const DialectTraits& traits_of(const Worker& worker) const;
  const DialectTraits& traits_of(DialectKind kind) const { return dialects_.of(kind); }
  Update* find_update(const UpdateId& id);

  void emit(Effect effect) { effects_.push_back(std::move(effect)); }
  void record(RecordKind kind, const std::string& pair, const UpdateId& update, const std::string& worker,
              json::object body);
  void record(RecordKind kind, const Update& update, const std::string& worker, json::object body);

  void start_timer(Update& update, std::string purpose, Milliseconds after);
  void cancel_timer(Update& update, std::string_view purpose);
  void cancel_all_timers(Update& update);

  // Records the intent of an operation that will follow a call made in this step. The group is durable before that
  // call is sent, so the operation needs no group, and no fsync, of its own.
  void intend(const Update& update, Target& target, const Operation& operation);
  // Sends the operation and puts the target into `step`, which waits for its answer.
  void call(Update& update, Target& target, Step step, Operation operation);
  // The same outside of any update, for the watch: the answer comes to on_watch_call. A flush is one that is owed, of
  // which only the success makes a record: that it is owed stands there since its load.
  void call_between_updates(Worker& worker, Operation operation);
  // Stops waiting for the target's running call. A read is cancelled; what may still change something becomes an
  // earlier call.
  void give_up(Target& target);
  void give_up_watch(Worker& worker);
  // Closes the connections of earlier calls by reset, so that a barrier may go out (protocol.md section 5).
  void reset_earlier(Worker& worker);

  void set_state(Update& update, UpdateState state);
  void set_worker(Worker& worker, WorkerState state, std::optional<Cause> cause = std::nullopt);
  Cause cause(CauseCode code, std::string message) const { return Cause{code, std::move(message), now_}; }

 private:
  CallId send(Worker& worker, const Update* update, bool unpaused, Operation operation, bool intent_durable);
  void set_aside(Worker& worker);
  void record_intent(const std::string& pair, const Update* update, const std::string& worker,
                     const Operation& operation, bool unpaused, std::optional<CallId> call);

  State& state_;
  const Dialects& dialects_;
  Instant now_;
  Effects effects_;
};

}  // namespace weighlock::protocol
