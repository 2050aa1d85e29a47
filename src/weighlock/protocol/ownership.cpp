// Looks, claims, and what waits for them. long because each decides about the others.
#include "weighlock/protocol/ownership.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

using List = std::vector<HeldWorker>;

constexpr int kRefusalsMax = 5;  // in a row: a storage that goes on refusing keeps no worker out of service

Pair* find_pair(Context& context, const std::string& name) {
  const auto it = context.state().pairs.find(name);
  return it == context.state().pairs.end() ? nullptr : &it->second;
}

bool keeps_epochs(Context& context) {
  return !context.state().owner.empty();
}

bool is_fresh(Context& context, const Ownership& own) {
  return own.known_at && context.now() - *own.known_at <= limits::kEpochStale;
}

void cancel_timer(Context& context, Ownership& own) {
  if (!own.timer) return;
  context.emit(CancelTimer{*own.timer});
  context.state().epoch_timers.erase(*own.timer);
  own.timer.reset();
}

void set_timer(Context& context, const std::string& pair, Ownership& own, Milliseconds after) {
  cancel_timer(context, own);
  const TimerId id = context.state().next_id++;
  own.timer = id;
  own.due = context.now() + after;
  context.state().epoch_timers[id] = pair;
  context.emit(StartTimer{id, after});
}

void look(Context& context, const std::string& name, Pair& pair) {
  Ownership& own = pair.ownership;
  if (own.look) return;
  own.look = context.state().next_id++;
  own.look_began = context.now();
  own.in_grace = false;
  set_timer(context, name, own, limits::kEpochLookTimeout - limits::kEpochLookBusy);
  context.emit(LookEpoch{*own.look, name, pair.spec.save_path});
}

void ask_claim(Context& context, const std::string& name, Pair& pair, List list) {
  Ownership& own = pair.ownership;
  own.claim = context.state().next_id++;
  own.asked_at = context.now();
  own.writing = std::move(list);
  context.emit(ClaimEpoch{*own.claim, name, pair.spec.save_path, context.state().owner, own.epoch, own.writing});
}

Update* active_of(Context& context, const Pair& pair) {
  return pair.active.empty() ? nullptr : context.find_update(pair.active);
}

// Writes who is paused now or about to be, if the file says otherwise; after the running claim if there is one.
void write_list(Context& context, const std::string& name, Pair& pair) {
  Ownership& own = pair.ownership;
  if (own.claim) {
    own.again = true;
    return;
  }
  const Update* update = active_of(context, pair);
  const bool pauses_next = update && update->kind == UpdateKind::update &&
                           (update->state == UpdateState::preparing || update->state == UpdateState::pausing);
  List list = held_workers(context, name, pauses_next ? update : nullptr);
  if (own.epoch > 0 && own.written != list) ask_claim(context, name, pair, std::move(list));
}

// In phases in which engines are held paused a look is due more often: what follows from an answer must not wait.
void look_later(Context& context, const std::string& name, Pair& pair) {
  if (pair.ownership.epoch == 0 && !pair.ownership.connects) return cancel_timer(context, pair.ownership);
  const Update* update = active_of(context, pair);
  const bool busy = update && update->state >= UpdateState::pausing;
  set_timer(context, name, pair.ownership, busy ? limits::kEpochLookBusy : limits::kEpochLookPeriod);
}

// Calls again who was told to wait.
void go_on(Context& context, Update& update) {
  context.cancel_timer(update, "epoch");
  if (is_lora(context, update)) {
    if (update.state == UpdateState::preparing) begin_adapter_loading(context, update);
    return;
  }
  if (update.state != UpdateState::pausing || update.members_fixed) return;
  const auto& workers = context.state().workers;
  const bool doubted = std::any_of(workers.begin(), workers.end(),
                                   [&](const auto& e) { return e.second.pair == update.pair && e.second.taken_over; });
  if (doubted) return begin_survey(context, update);  // they were read before a barrier was due
  const bool surveyed = std::all_of(update.targets.begin(), update.targets.end(),
                                    [](const auto& e) { return e.second.step == Step::surveyed; });
  if (update.waiting == 0 && surveyed) pausing_survey_done(context, update);
}

// Nothing was done to an engine.
void abort_waiting(Context& context, Update& update, const Error& why) {
  context.cancel_timer(update, "epoch");
  end_before_pause(
      context, update, UpdateState::aborted,
      wrap(fmt::format("pair '{}': v{}: who is about to be paused can't be written down for a gateway that "
                       "takes over",
                       update.pair, update.version.version),
           why));
}

// What the highest file says of us.
void judge(Context& context, const std::string& name, Pair& pair, const Epoch& highest) {
  Ownership& own = pair.ownership;
  const bool ours = highest.owner == context.state().owner;
  if (own.epoch == 0) {
    if (highest.number == 0) {
      own.free_at = own.look_began;
      own.connects = false;
      return;
    }
    // A connect asks: another's is taken over, and our own of a process that died before it could record it is found.
    if ((own.connects || ours) && !own.claim) ask_claim(context, name, pair, held_workers(context, name, nullptr));
    return;
  }
  const bool torn = highest.number == own.epoch && highest.owner.empty();
  if (!ours && !torn && highest.number >= own.epoch && !mutant(Mutant::epoch_ignored))
    return supersede(context, name, highest);
  own.known_at = own.look_began;
  if (ours && highest.number == own.epoch) return;
  if (ours && highest.number > own.epoch) own.epoch = highest.number;
  // Our file vanished, or is no file of ours any more: it is written again.
  own.written.reset();
  if (!own.claim) ask_claim(context, name, pair, held_workers(context, name, active_of(context, pair)));
}

// Whose event this is, if a call to an engine may follow from it.
std::string pair_touched_by(const State& state, const EventBody& body) {
  const auto of_update = [&](const UpdateId& id) {
    const auto it = state.updates.find(id);
    // A transfer pauses upon what was read while it was prepared.
    const bool acts = it != state.updates.end() && (it->second.state >= UpdateState::pausing || it->second.transfer);
    return acts ? it->second.pair : std::string();
  };
  const auto of_worker = [&](const std::string& url) {
    const auto it = state.workers.find(url);
    return it == state.workers.end() ? std::string() : it->second.pair;
  };
  if (const auto* ended = std::get_if<CallEnded>(&body)) {
    if (const auto it = state.adapter_calls.find(ended->call); it != state.adapter_calls.end()) return it->second.pair;
    const auto it = state.calls.find(ended->call);
    if (it == state.calls.end()) return "";
    return it->second.first.empty() ? of_worker(it->second.second) : of_update(it->second.first);
  }
  if (const auto* ended = std::get_if<SaveEnded>(&body)) {
    const auto it = state.transfers.find(ended->call);
    return it == state.transfers.end() ? std::string() : of_update(it->second.first);
  }
  if (const auto* fired = std::get_if<TimerFired>(&body)) {
    if (const auto it = state.timers.find(fired->timer); it != state.timers.end()) return of_update(it->second);
    if (const auto it = state.watch_timers.find(fired->timer); it != state.watch_timers.end())
      return of_worker(it->second);
    const auto it = state.retire_timers.find(fired->timer);
    return it == state.retire_timers.end() ? std::string() : it->second.first;
  }
  if (const auto* done = std::get_if<CommitDurable>(&body)) return of_update(done->update);
  if (const auto* done = std::get_if<DigestDone>(&body)) return of_update(done->update);
  if (const auto* cancel = std::get_if<CancelUpdate>(&body)) return of_update(cancel->update);
  if (const auto* connect = std::get_if<ConnectPair>(&body)) return connect->spec.name;
  if (const auto* remove = std::get_if<RemovePair>(&body)) return remove->pair;
  if (const auto* change = std::get_if<ChangeWorker>(&body)) return change->pair;
  return "";
}

// Whoever waited for the look goes on, in the order of arrival.
void end_look(Context& context, const std::string& name) {
  Pair* pair = find_pair(context, name);
  if (!pair) return;
  Ownership& own = pair->ownership;
  own.looked_again = false;
  const std::deque<EventBody> parked = std::exchange(own.parked, {});
  own.acts = true;
  const bool list_stands = std::exchange(own.go_on_waits, false) && std::exchange(own.update_waits, false);
  if (std::exchange(own.recover_waits, false)) recover_pair(context, name);
  if (Update* update = active_of(context, *pair); update && own.stop_waits) stop_update(context, *update);
  if (Update* update = active_of(context, *pair); update && list_stands) go_on(context, *update);
  for (const EventBody& body : parked) dispatch(context, body);
  Pair* left = find_pair(context, name);
  if (left && std::exchange(left->ownership.stop_waits, false)) stop_if_idle(context);
  if (left && left->ownership.bring_back) pair_is_idle(context, name);
  adapters_go_on(context, name);
  left = find_pair(context, name);
  if (left) left->ownership.acts = false;
}

}  // namespace

void epoch_at_connect(Context& context, const std::string& name, const std::string& save_path_before) {
  if (!keeps_epochs(context)) return;
  Pair& pair = context.state().pairs.at(name);
  Ownership& own = pair.ownership;
  if (is_superseded(pair) || save_path_before != pair.spec.save_path) {
    cancel_timer(context, own);
    own = Ownership();
    for (auto& [url, worker] : context.state().workers) {  // nobody has looked at them since they were another's
      if (worker.pair == name) begin_watch(context, worker);
    }
  }
  own.connects = own.epoch == 0;
  look(context, name, pair);
}

void epoch_at_update(Context& context, Update& update) {
  if (!keeps_epochs(context)) return;
  Pair& pair = context.pair_of(update);
  if (pair.ownership.epoch > 0 || pair.ownership.claim) return;
  pair.ownership.none_because.clear();  // it may have become visible
  ask_claim(context, update.pair, pair, held_workers(context, update.pair, nullptr));
}

void epoch_at_phase(Context& context, const Update& update) {
  const auto it = context.state().pairs.find(update.pair);
  if (!keeps_epochs(context) || it == context.state().pairs.end()) return;
  if (it->second.ownership.epoch == 0 || is_superseded(it->second)) return;
  look(context, update.pair, it->second);
  // What its workers' labels tell of them is another thing from here on.
  const bool comes_back = update.state >= UpdateState::resuming && update.kind == UpdateKind::update;
  if (comes_back && !is_lora(context, update)) write_list(context, update.pair, it->second);
}

void list_pause(Context& context, const std::string& name) {
  Pair* pair = find_pair(context, name);
  if (pair && keeps_epochs(context) && !is_superseded(*pair)) write_list(context, name, *pair);
}

bool stop_waits_for_look(Context& context, const std::string& name) {
  Pair& pair = context.state().pairs.at(name);
  Ownership& own = pair.ownership;
  if (!keeps_epochs(context) || own.epoch == 0 || is_superseded(pair)) return false;
  if (own.recover_waits) return true;  // what the process before left is undone anyway, behind the look
  if (is_fresh(context, own) && own.parked.empty()) return false;
  look(context, name, pair);
  own.stop_waits = true;
  return true;
}

void list_before_pause(Context& context, const Update& update) {
  if (!keeps_epochs(context) || is_lora(context, update)) return;
  write_list(context, update.pair, context.pair_of(update));
}

bool is_being_claimed(Context& context, const Pair& pair) {
  const Ownership& own = pair.ownership;
  return keeps_epochs(context) && own.none_because.empty() && own.epoch == 0 && (own.connects || own.claim);
}

bool waits_for_epoch(Context& context, Update& update) {
  if (!keeps_epochs(context)) return false;
  Pair& pair = context.pair_of(update);
  Ownership& own = pair.ownership;
  List list = held_workers(context, update.pair, &update);
  if (own.epoch == 0 && !own.claim && !own.none_because.empty()) return false;  // blind: said in every status
  if (own.epoch > 0 && !own.claim && own.written && covers(*own.written, list)) {
    write_list(context, update.pair, pair);  // somebody else paused one of them: not waited for
    if (!is_lora(context, update) || may_act(context, update.pair)) return false;
    own.update_waits = own.go_on_waits = true;  // its loads follow at once, and no answer is looked at before
    return true;
  }
  if (!own.claim) ask_claim(context, update.pair, pair, std::move(list));
  if (!own.update_waits) context.start_timer(update, "epoch", limits::kEpochWriteTimeout);
  own.update_waits = true;
  return true;
}

bool is_listed(Context& context, const Worker& worker) {
  Pair* pair = find_pair(context, worker.pair);
  if (!keeps_epochs(context) || !pair) return true;
  Ownership& own = pair->ownership;
  if (own.epoch == 0) {  // whose it is comes before whom it holds
    if (!own.none_because.empty()) return true;
    if (!own.claim) ask_claim(context, worker.pair, *pair, held_workers(context, worker.pair, nullptr));
    return own.refusals >= kRefusalsMax;
  }
  // Whom nobody here is to pause is listed for its label alone.
  const bool pauses = !worker.paused_by_other && pair->spec.policy.pause != PauseOwner::caller;
  const auto lists = [&](const List& list) {
    return std::any_of(list.begin(), list.end(), [&](const HeldWorker& one) {
      return one.url == worker.url && one.incarnation == worker.incarnation && (one.held || !pauses);
    });
  };
  // While a list is on its way either of the two may stand there.
  const bool listed = own.written && lists(*own.written) && (!own.claim || lists(own.writing));
  if (listed) return true;
  write_list(context, worker.pair, *pair);
  return own.refusals >= kRefusalsMax;
}

namespace {

// Of a pair without an epoch: takes one, if the pair is nobody's. True: none can be had.
bool has_none(Context& context, const std::string& name, Pair& pair) {
  Ownership& own = pair.ownership;
  if (own.claim) return false;
  // Whoever has it keeps it: nobody asked this gateway for the pair.
  if (!own.free_at || context.now() - *own.free_at > limits::kEpochStale) {
    look(context, name, pair);
    return false;
  }
  if (own.refusals >= kRefusalsMax) return true;
  ask_claim(context, name, pair, held_workers(context, name, nullptr));
  return false;
}

}  // namespace

bool may_be_held(Context& context, const Worker& worker) {
  Pair* pair = find_pair(context, worker.pair);
  if (!keeps_epochs(context) || !pair) return true;
  const Ownership& own = pair->ownership;
  if (own.epoch > 0 || !own.none_because.empty()) return is_listed(context, worker);
  return has_none(context, worker.pair, *pair);
}

bool may_act(Context& context, const std::string& name) {
  Pair* pair = find_pair(context, name);
  if (!keeps_epochs(context) || !pair) return true;
  Ownership& own = pair->ownership;
  if (is_superseded(*pair)) return false;
  if (own.epoch == 0) return !own.none_because.empty() || has_none(context, name, *pair);
  if (own.acts || (is_fresh(context, own) && own.parked.empty() && !own.recover_waits)) return true;
  look(context, name, *pair);
  return false;
}

void on_epoch_wait_timer(Context& context, Update& update) {
  Pair& pair = context.pair_of(update);
  pair.ownership.go_on_waits = false;
  if (!std::exchange(pair.ownership.update_waits, false)) return;
  abort_waiting(context, update,
                Error{ErrorCode::timed_out, fmt::format("'{}': the storage did not answer within {} ms",
                                                        pair.spec.save_path, limits::kEpochWriteTimeout.count())});
}

void list_after_update(Context& context, const std::string& name) {
  Pair* pair = find_pair(context, name);
  if (!pair || !keeps_epochs(context) || is_superseded(*pair)) return;
  pair->ownership.update_waits = pair->ownership.go_on_waits = false;
  write_list(context, name, *pair);
}

namespace {

void on_refused(Context& context, Pair& pair, const Error& error, bool waits) {
  Ownership& own = pair.ownership;
  own.write_trouble = error;
  ++own.refusals;
  own.written.reset();
  own.again = false;
  const bool blind = own.epoch == 0 && error.code == ErrorCode::storage_not_visible;
  if (blind) own.none_because = error.text();
  Update* update = active_of(context, pair);
  if (!update || !waits) return;
  if (blind) return go_on(context, *update);
  abort_waiting(context, *update, error);
}

void note_claimed(Context& context, const std::string& name, Pair& pair, const ClaimedEpoch& claimed) {
  Ownership& own = pair.ownership;
  own.write_trouble.reset();
  own.refusals = 0;
  own.none_because.clear();
  own.known_at = own.asked_at;
  own.written = own.writing;
  if (own.epoch > 0) return;
  own.epoch = claimed.epoch;
  own.connects = false;
  json::object body{{"epoch", claimed.epoch}};
  if (claimed.predecessor) body["predecessor"] = epoch_body(*claimed.predecessor);
  context.record(RecordKind::epoch, name, "", "", std::move(body));
  if (claimed.predecessor) {
    own.written.reset();  // what our predecessor held stands there too
    stop_retirements(context, pair);
    take_over_workers(context.state(), name, *claimed.predecessor, context.now());
  }
  if (!own.look) look_later(context, name, pair);
}

}  // namespace

void on_epoch_claimed(Context& context, const EpochClaimed& event) {
  Pair* pair = find_pair(context, event.pair);
  if (!pair || pair->ownership.claim != event.ask) return;  // it was connected elsewhere since
  Ownership& own = pair->ownership;
  own.claim.reset();
  const bool waits = std::exchange(own.update_waits, false);
  if (!event.claimed) return on_refused(context, *pair, event.claimed.error(), waits);
  if (event.claimed->superseded_by && !mutant(Mutant::epoch_ignored))
    return supersede(context, event.pair, *event.claimed->superseded_by);
  note_claimed(context, event.pair, *pair, *event.claimed);
  if (std::exchange(own.again, false)) write_list(context, event.pair, *pair);
  adapters_go_on(context, event.pair);
  if (Update* update = active_of(context, *pair); update && waits) {
    if (is_fresh(context, own)) return go_on(context, *update);
    own.update_waits = own.go_on_waits = true;  // the process stood still behind it
    return look(context, event.pair, *pair);
  }
  if (own.bring_back) pair_is_idle(context, event.pair);
}

void on_epoch_seen(Context& context, const EpochSeen& event) {
  Pair* pair = find_pair(context, event.pair);
  if (!pair || pair->ownership.look != event.ask) return;
  Ownership& own = pair->ownership;
  own.look.reset();
  own.overdue = false;
  const bool waited_for = !own.parked.empty() || own.recover_waits || own.go_on_waits || own.stop_waits ||
                          own.unloads_wait || !own.joins_wait.empty();
  if (!event.highest) {
    own.look_trouble = event.highest.error();
    if (own.epoch == 0 && event.highest.error().code == ErrorCode::storage_not_visible)
      own.none_because = event.highest.error().text();
    if (own.epoch == 0 && !own.none_because.empty()) settle_storage(context, event.pair);  // nobody tells whose it is
  } else {
    own.look_trouble.reset();
    judge(context, event.pair, *pair, *event.highest);
    pair = find_pair(context, event.pair);
    if (!pair || is_superseded(*pair)) return;
    if (own.epoch > 0 || event.highest->number == 0) settle_storage(context, event.pair);
  }
  const Milliseconds age = context.now() - own.look_began;
  // Older than a look's limit: this process stood still. A storage that is slow is asked once more, and no more.
  const bool stood_still = age > limits::kEpochLookTimeout + limits::kEpochLookBusy;
  const bool is_first = age > limits::kEpochStale && waited_for && !std::exchange(own.looked_again, true);
  if (is_first || (stood_still && waited_for)) return look(context, event.pair, *pair);
  look_later(context, event.pair, *pair);
  end_look(context, event.pair);
}

void on_epoch_timer(Context& context, const std::string& name) {
  Pair* pair = find_pair(context, name);
  if (!pair || is_superseded(*pair)) return;
  Ownership& own = pair->ownership;
  own.timer.reset();
  if (!own.look) return look(context, name, *pair);
  // Silence counts only while this process was there to be told: who comes late stood still, and waits once more.
  if (context.now() - own.due > limits::kEpochLookBusy) own.overdue = own.in_grace = false;
  if (!own.overdue && !std::exchange(own.in_grace, true)) return set_timer(context, name, own, limits::kEpochLookBusy);
  own.overdue = true;
  own.known_at = context.now();
  set_timer(context, name, own, limits::kEpochLookBusy);
  own.look_trouble =
      Error{ErrorCode::timed_out, fmt::format("'{}': the storage did not tell who owns the pair within {} ms",
                                              pair->spec.save_path, limits::kEpochLookTimeout.count())};
  end_look(context, name);
}

bool park(Context& context, const EventBody& body) {
  if (!keeps_epochs(context) || context.state().stopped) return false;
  const std::string name = pair_touched_by(context.state(), body);
  Pair* pair = name.empty() ? nullptr : find_pair(context, name);
  if (!pair) return false;
  Ownership& own = pair->ownership;
  if (own.epoch == 0 || is_superseded(*pair)) return false;
  if (!own.recover_waits && own.parked.empty()) {
    const bool client = !std::holds_alternative<CallEnded>(body) && !std::holds_alternative<TimerFired>(body) &&
                        !std::holds_alternative<CommitDurable>(body) && !std::holds_alternative<SaveEnded>(body);
    if (is_fresh(context, own) || (client && pair->active.empty())) return false;
    look(context, name, *pair);
  }
  own.parked.push_back(body);
  return true;
}

bool recover_waits_for_look(Context& context, const std::string& name) {
  Pair& pair = context.state().pairs.at(name);
  if (!keeps_epochs(context) || is_superseded(pair)) return false;
  pair.ownership.connects = pair.ownership.epoch == 0;
  look(context, name, pair);
  if (pair.ownership.epoch == 0) return false;  // it never paused anyone; but another may have left someone paused
  pair.ownership.recover_waits = !pair.active.empty() || !pair.joins.empty();
  return pair.ownership.recover_waits;
}

}  // namespace weighlock::protocol
