// Internal to protocol/: LoRA pairs, a profile of the same machine (protocol.md section 10).
//
//   lora.cpp         names in engines, and calls about them
//   lora_pair.cpp    connecting and removing a LoRA pair
//   lora_survey.cpp  PREPARING: what each worker serves, members, what the seal must know
//   lora_load.cpp    LOADING: one pipeline per worker; batches and the decision are load.cpp's
//   lora_end.cpp     after the commit; RESTORING
//   lora_join.cpp    between updates: a worker that restarted gets its adapters back
//   lora_owner.cpp   what changes when the pair, or the model's, is another gateway's
//   lora_window.cpp  the window: what it holds, unloading what has left it
//   locks.cpp        one update at a time on a worker, whichever pairs share it
//
// A LoRA update never pauses a worker and never changes its registry entry.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "weighlock/protocol/context.hpp"

namespace weighlock::protocol {

// lora.cpp
bool is_lora(Context& context, const Update& update);
WorkerAdapters& adapters_of(Context& context, const Update& update, const Target& target);
// The name that the update loads.
std::string new_name(Context& context, const Update& update);
void call_adapter(Context& context, Update& update, Target& target, Step step, Operation operation);
void give_up_adapter_call(Context& context, Target& target);
// True if the call was about adapters.
bool on_adapter_call_ended(Context& context, const CallEnded& event);
bool is_of_new_process(const WorkerAdapters& known, const StateReading& reading);
// A list of the engine's adapters: what it says of what was known. True: another incarnation than the one known.
bool observe_adapters(Context& context, WorkerAdapters& known, const StateReading& reading);
// Whether an engine may read this directory again: a name from it is loaded there, or may be.
bool may_read(const Pair& pair, const std::string& directory);
// What the engine lists: a name that it had and dropped by itself isn't served there any more.
void note_listed(Context& context, const Pair& pair, WorkerAdapters& known,
                 const std::map<std::string, std::string>& listed);
// The name isn't served there any more, or may go at any time. If it was the committed version's, the worker lacks
// that.
void note_unserved(WorkerAdapters& known, const LoraSpec& lora, const std::string& name, Cause why);
void note_unloading(Context& context, const Pair& pair, WorkerAdapters& known, const std::string& name);
std::string unloaded_text(const std::string& name);
// Whether the worker has this version of the window, by what it answered.
bool holds(const WorkerAdapters& known, const AdapterVersion& version);
// The answer of an unload: the name is not there any more.
bool says_gone(const Outcome& outcome);

// lora_pair.cpp
std::optional<Error> refuse_lora(Context& context, const PairSpec& spec);
// The pair's own entries follow the spec's list; workers that nobody uses any more leave the registry.
void apply_lora_spec(Context& context, Pair& pair, const PairSpec& before);
// What a worker that leaves may still read can't be watched any more, so its directories stay.
void leave_directories(Pair& pair, const WorkerAdapters& known);
void remove_lora(Context& context, Pair& pair);
// It is looked at from when one of its LoRA pairs has something to serve there, if it wasn't before.
void watch_for_adapters(Context& context, Worker& worker);
// Whether a LoRA pair uses this worker.
bool is_shared(const State& state, const std::string& worker);

// lora_survey.cpp
std::optional<Error> refuse_adapter_policy(const Update& update);
void begin_adapter_survey(Context& context, Update& update);
void on_adapter_survey_call(Context& context, Update& update, Target& target, OperationKind kind,
                            const Outcome& outcome);
void adapter_survey_done(Context& context, Update& update);
void describe_adapter(Context& context, const Update& update, Seal& seal);
void adapter_sealed(Context& context, Update& update);
// Why this worker can't take the sealed adapter, "" if it can: both ranks are named.
std::string rank_refusal(const Update& update, const WorkerAdapters& known);
// How many of the pair's workers serve the committed version.
int serving_adapters(const Pair& pair);

// lora_load.cpp
void begin_adapter_loading(Context& context, Update& update);
void launch_adapter(Context& context, Update& update, Target& target);
void on_adapter_loading_call(Context& context, Update& update, Target& target, const Outcome& outcome);
void on_adapter_timer(Context& context, Update& update, Target& target);
void judge_adapter(Context& context, Target& target, Verdict verdict, CauseCode code, std::string text);

// lora_end.cpp
void adapters_committed(Context& context, Update& update);
void begin_adapter_restoring(Context& context, Update& update);
void on_adapter_undone(Context& context, Update& update, Target& target, const Outcome& outcome);
void on_adapter_restore_timer(Context& context, Update& update);

// lora_owner.cpp
// The pair is another gateway's, or was until now: nothing is known any more of what its workers serve of it.
void doubt_adapters(Pair& pair, const Cause& why);
// A worker that comes to the pair.
WorkerAdapters new_to_pair(const Pair& pair);
// No model is in it, or another gateway's: its adapters are all that it is looked at for.
bool is_for_adapters_only(const State& state, const Worker& worker);
bool can_serve_adapters(const State& state, const Worker& worker);
// A look at the pair's epoch has ended: what waited for it.
void adapters_go_on(Context& context, const std::string& pair);

// lora_join.cpp
// The worker serves and was read a moment ago, as this process: what it lacks of its LoRA pairs' adapters is loaded,
// one pair at a time.
void begin_adapter_join(Context& context, Worker& worker, const std::string& incarnation);
// At the end of an update or a join: what the worker could not get is told, and left to the pair's next update.
void note_lacking(const Pair& pair, WorkerAdapters& known, const Target& target, const std::string& wanted);
// One that only LoRA pairs use doesn't answer: it is told to the fence hook once, and serves no adapter until it
// answers.
void fence_silent(Context& context, const Worker& worker, const Cause& cause);
// Its one target may have a verdict: then it ends.
void adapter_join_judged(Context& context, Update& join);

// lora_window.cpp
// The committed versions that an engine should serve beside the one that is loaded now, oldest first.
std::vector<AdapterVersion> older_of_window(const Pair& pair, const std::string& new_name);
// Of a version that is loaded into engines that lack it.
bool is_in_window(const Pair& pair, const std::string& directory);
// Whether the update's directory may have held other bytes: its name then proves nothing.
bool may_be_reused(const Update& update);
void add_to_window(Pair& pair, const Update& update);
// It was deleted: should the pair keep more versions than before, this one can't be loaded again.
void forget_in_window(Pair& pair, const std::string& directory);
void plan_retirement(Pair& pair, std::int64_t version);
void start_retirements(Context& context);
// Ends an unload that runs on this worker: an update comes first.
void preempt_retirement(Context& context, const std::string& worker);
// Of this pair, everywhere: it is another gateway's.
void stop_retirements(Context& context, Pair& pair);
void on_retired(Context& context, Pair& pair, const AdapterCall& call, const Outcome& outcome);
// True if the timer was an unload's.
bool on_retire_timer(Context& context, TimerId timer);

// locks.cpp
// All or none, now; if none, the update is taken up again when a lock is released (in the order of arrival).
bool take_locks(Context& context, Update& update, std::set<std::string> workers);
void release_locks(Context& context, Update& update);
void resume_waiting(Context& context);

}  // namespace weighlock::protocol
