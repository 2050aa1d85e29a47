// Who owns a pair, among gateways that know nothing of each other but a numbered file (protocol.md section 9,
// docs/ownership.md).
//
// The rules that hold here:
//   * A pair takes its epoch at its first update, or when a connect finds another's.
//   * Before any pause the file lists whom we may hold paused, and before any load whom it may tear, and after it was
//     written nobody was above us.
//   * An event from which a call to an engine may follow is looked at only if a look that began within
//     limits::kEpochStale found nobody above us; else it waits for one (`park`). So a process that was stopped sends
//     nothing to engines that were another's meanwhile, whenever that was. What waits for a look whose answer comes
//     later than that (the process was stopped with the look under way) waits for one more, and not for a third: a
//     storage may be that slow. One that doesn't answer is no owner: after limits::kEpochLookTimeout the events go on,
//     until the process stands still once more.
//     The last kEpochLookBusy of that is a timer of its own: who wakes reads the answers that lie there first.
//   * Without an epoch nobody is paused between updates: it is taken first, if the pair is nobody's.
//   * Who sees a higher epoch is superseded: the update ends, nobody is called any more.
//   * Who takes an epoch doubts every worker of the pair (an earlier call, so a barrier) and takes over the listed
//     pauses. Of a LoRA pair it doubts every name (lora_owner.cpp).
//   * A LoRA pair's workers are other pairs' too, so their events lead to calls of it: those ask `may_act`.
//
// A state without an owner's id keeps no epochs at all.
#pragma once

#include <vector>

#include "weighlock/protocol/context.hpp"

namespace weighlock::protocol {

bool is_superseded(const Pair& pair);
// Whose the pair is, is still to be seen: nobody of it is brought back meanwhile.
bool is_being_claimed(Context& context, const Pair& pair);
// Read-only from here on: the new owner barriers every worker and takes over what we hold paused.
void supersede(Context& context, const std::string& pair, Epoch by);
// The refusal of whatever is asked of a superseded pair.
Error superseded_error(const std::string& pair, const Epoch& by);

// The pair was connected: to another save path perhaps, and if it was superseded, on an operator's wish again.
void epoch_at_connect(Context& context, const std::string& pair, const std::string& save_path_before);
// The update begins: takes an epoch if there is none.
void epoch_at_update(Context& context, Update& update);
// A phase begins: looks.
void epoch_at_phase(Context& context, const Update& update);
// The save is over: the list of workers that PAUSING will pause is written while the checkpoint is inspected.
void list_before_pause(Context& context, const Update& update);
// True: the pauses (LoRA: the loads) must wait; who waits is called again.
bool waits_for_epoch(Context& context, Update& update);
// Between updates: whether the file lists the worker, so that it may be paused and loaded; if not it is written, and by
// the next look at the worker it stands there.
bool is_listed(Context& context, const Worker& worker);
// Likewise, and of a pair without an epoch: false until it has one too, or has seen that none can be kept.
bool may_be_held(Context& context, const Worker& worker);
// Somebody of the pair is paused: one that was found paused, perhaps, which its trainer continued meanwhile and nobody
// listed. Not waited for.
void list_pause(Context& context, const std::string& pair);
// Whom the pair's file shall list, in the order of URLs: lists are compared. `update`: one that is about to pause.
std::vector<HeldWorker> held_workers(Context& context, const std::string& pair, const Update* update);
bool covers(const std::vector<HeldWorker>& written, const std::vector<HeldWorker>& wanted);
// The update has ended: whoever is paused still is listed, and nobody else.
void list_after_update(Context& context, const std::string& pair);
void on_epoch_wait_timer(Context& context, Update& update);

void on_epoch_claimed(Context& context, const EpochClaimed& event);
void on_epoch_seen(Context& context, const EpochSeen& event);
void on_epoch_timer(Context& context, const std::string& pair);
// Whether the pair's workers may be called now, where no event of the pair leads to it (a look at a shared worker, the
// end of another pair's update). False: a look was asked for, or the pair is another's; behind it `adapters_go_on`.
bool may_act(Context& context, const std::string& pair);
// True: the event waits for a look at its pair's epoch, and comes again.
bool park(Context& context, const EventBody& body);
// Shutdown: true if the pair's update, which holds engines, is undone behind a look.
bool stop_waits_for_look(Context& context, const std::string& pair);
// Recover: true if the pair's update waits for a look first.
bool recover_waits_for_look(Context& context, const std::string& pair);

// Nothing is asked of the pair: workers that a predecessor left paused are brought back. True: an update of kind
// `leave` that does it has begun.
bool start_bring_back(Context& context, const std::string& pair);
void on_taken_over_read(Context& context, Update& update, Target& target);
// A worker that was taken over was read, and nothing of its former owner runs in it any more.
void settle_taken_over(Context& context, Worker& worker, const StateReading& reading, bool first);

// For the machine and the replay alike.
void take_over_workers(State& state, const std::string& pair, const Epoch& predecessor, Instant now);
// The worker comes to the pair; our predecessor had held it paused perhaps.
void take_over_stranger(Pair& pair, Worker& worker);
void let_go_of_workers(State& state, const std::string& pair);
json::object epoch_body(const Epoch& epoch);
Epoch epoch_from(JsonMembers body);

}  // namespace weighlock::protocol
