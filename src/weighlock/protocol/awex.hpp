// Internal to protocol/: pairs whose weights go from rank to rank in a collective of all trainers and workers.
//
// They are the same machine. What differs: instead of a save there is a *group*, built while the workers still serve
// (at connect, and by an update that finds none, or another set of workers); and the loads of all workers are one
// collective. It has no verdict for one member, so every target is TORN from its beginning until all have answered
// well. docs/adr/0005-awex-transaction.md says why.
//
// A group is named anew each time. A process that starts has none; trainers that were in one of the process before are
// told to leave it when they are to join another, or when their pair goes. A trainer is in one group at a time, so a
// group ends when its trainers join that of another pair.
#pragma once

#include "weighlock/protocol/context.hpp"

namespace weighlock::protocol {

// awex_group.cpp
// Whether an update of the pair is by its group; one that goes back, or to a directory that was handed over, isn't.
bool is_by_transfer(const Pair& pair, const Update& update);
// Why nothing can be healed with after the commit of an update whose files were not seen.
std::string why_no_last_good(const Update& update);
std::optional<Error> refuse_awex(Context& context, const PairSpec& spec);
bool is_connecting(Context& context, const std::string& pair);
// The pair is what the event says when its group stands; until then nothing changes.
void begin_group_connect(Context& context, const ConnectPair& event);
// Nobody waits for the pair's connect any more: its group goes when it stands.
void abandon_connect(Context& context, const std::string& pair);
void on_group_built(Context& context, const GroupBuilt& event);
void prepare_transfer(Context& context, Update& update);
void transfer_survey_done(Context& context, Update& update);
// The worker was read for the first time: so the process in its pair's group is known, too.
void note_read_member(Context& context, const Worker& worker);
// A group that is being built has it: its event loop may answer nothing else until that has ended.
bool is_brought_up(const State& state, const std::string& worker);
// Another process answers for the worker than the one that may be in its pair's group.
void note_replaced_member(Context& context, const Worker& worker, const std::string& before);
// The gateway stops: whoever waits for a group is told so.
void refuse_connects(Context& context, const Error& error);
// At PAUSING: a worker that came since, or whose process did, has no place in the group.
void leave_out_of_group(Context& context, Update& update, Target& target);
// Whether each of the group's workers is a target that takes part.
bool group_is_whole(Context& context, const Update& update);

// awex_drop.cpp
// Trainers leave it, its metadata goes; the next update builds another. Nothing without one. Trainers of which another
// gateway may have made a group since aren't told: they would leave that one.
void drop_group(Context& context, const std::string& pair, std::string_view why);

// awex_meeting.cpp
// At the first worker, or the client's address for it, and at the client's port or the next one at which no other
// worker listens.
MeetingPlace meeting_place(const State& state, const std::string& pair, const AwexSpec& awex,
                           const std::string& first_worker);
// Remembered for as long as workers may listen there: on record with each group.
void note_meeting(State& state, MeetingPlace place);

// awex_transfer.cpp
bool is_transferring(const Update& update);
// The target is ready; the collective begins when the last one is.
void assemble(Context& context, Update& update, Target& target);
// The target's label was refused, so there is no collective; the update goes back when no other label is under way.
void label_refused(Context& context, Update& update, const Target& target);
void on_transferred(Context& context, Update& update, Target& target, const Outcome& outcome);
// False if the event is of a save.
bool on_trainer_transferred(Context& context, const SaveEnded& event);
// After a first failure the others' words are waited for only a moment.
void begin_transfer_grace(Context& context, Update& update);
// From here on nobody is known to hold anything, until all have answered well.
void note_begun(Context& context, Update& update);
void on_transfer_grace_timer(Context& context, Update& update);
// Ends the update's way forward, naming each member that failed or is silent.
void fail_transfer(Context& context, Update& update, std::string_view what);
// The update goes back: after the collective has begun its group is dead.
void transfer_undone(Context& context, Update& update);

// awex_memory.cpp
// A colocated pair: its engines' memory is in other hands from before an update is asked for until that update gives it
// back, so between updates nothing is loaded into them, and no token is asked of them.
bool shares_devices(const Pair& pair);
// Whether it may be asked for a token to see whether it is paused.
bool may_be_probed(Context& context, const Worker& worker);
// Why nothing can be loaded from a directory.
std::optional<Error> refuse_directory(const Pair& pair, std::string_view what);
// Its update is about to pause the group's workers: from here on they have no memory, also over a death.
void note_released(Context& context, const Update& update);
// Its update ends without having asked anyone for memory: whoever might serve is held without it. The words for the
// client, or "".
std::string hold_without_memory(Context& context, const Update& update);
// Instead of the collective alone, the steps around it, too. With an error: without the collective, and the update goes
// back by it.
void begin_hand_over(Context& context, Update& update, const Error* error);
// In the running step. `conclude_step` is due after each end.
void note_member_failed(Context& context, Update& update);
void conclude_step(Context& context, Update& update);
void give_up_silent_members(Context& context, Update& update);
// True while memory is in other hands: the update goes back when it isn't any more, by `error` or as a transfer that
// failed; at once without the members that are silent in the present step, or after a moment if there is an `error`.
// With an `error` also before the first step.
bool hands_memory_back(Context& context, Update& update, std::string_view failure, const Error* error);
// The update goes back, and its worker came out of the collective when the other steps were over: what is owed to it is
// known, and is sent. False if nothing can be.
bool resume_cache(Context& context, Update& update, Target& target);
void on_cache_resumed(Context& context, Update& update, Target& target, const Outcome& outcome);
// Nothing of a transfer that was cut off is owed to it. Who hasn't is neither healed nor READY.
bool has_its_memory(const Worker& worker);
// It hasn't, and the update's own steps give it back.
bool may_be_resumed(const Pair& pair, const Update& update, const Worker& worker);
// Tells what is missing, and what helps.
Cause with_missing_memory(const Worker& worker, Cause cause);

// load.cpp
// All members answered well: each target is labelled, flushed and verified by itself.
void transfer_succeeded(Context& context, Update& update);
// Label and flush, recorded with the collective's own intent: all three lie in a pause, and one group holds them.
void intend_after_load(Context& context, Update& update, Target& target);

}  // namespace weighlock::protocol
