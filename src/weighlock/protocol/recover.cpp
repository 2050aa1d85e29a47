// What a gateway that died left undone (protocol.md section 12). Its updates go on in the states that there are:
//
//   up to PREPARING   ABORTED, the attempt discarded: no engine was touched
//   PAUSING to VERIFYING, RESTORING   RESTORING: every target is barriered and read first
//   the commit record is there   RESUMING, likewise
//
// Each step of it makes the records that it would make at any time, so a gateway that dies here is taken over the same
// way.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

Error died_in(const Update& update, std::string_view what) {
  return Error{ErrorCode::shutting_down,
               fmt::format("pair '{}': v{}: the gateway ended in phase {}; {}", update.pair, update.version.version,
                           name(update.state), what),
               nullptr};
}

// Whoever isn't at its end may be in any state, and serves no requests until it was read.
void doubt(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) {
    Worker& worker = context.worker_of(target);
    worker.locked_by = update.id;
    update.wanted_locks.insert(url);
    if (target.step != Step::done) context.set_worker(worker, WorkerState::unknown, worker.cause);
  }
}

// A former owner's, and nobody here has asked yet which engine it is.
bool was_never_asked(Context& context, const Update& update, const Target& target) {
  return update.takes_over && !context.worker_of(target).dialect;
}

// It is barriered and read before anything is decided.
void take_over(Context& context, Update& update) {
  doubt(context, update);
  for (auto& [url, target] : update.targets) {
    if (target.step == Step::done) continue;
    target.recovered = !was_never_asked(context, update, target);
    if (!target.recovered) continue;
    target.caught_up = update.state == UpdateState::resuming && target.verdict != Verdict::verified;
  }
  for (auto& [url, target] : update.targets) {
    if (target.step != Step::done && !target.recovered) read_worker(context, update, target);
    if (!target.recovered) continue;
    if (context.worker_of(target).dialect) {
      start_barrier(context, update, target);
    } else {
      quarantine(context, update, target,
                 context.cause(CauseCode::outstanding, "the journal doesn't tell which engine it is"));
    }
  }
}

void go_forward(Context& context, Update& update) {
  context.set_state(update, UpdateState::resuming);
  const bool readable = update.path.empty() && update.sealed && !update.sealed->blind;
  if (readable && update.policy.digest == DigestPolicy::overlap && update.version.digest.empty())
    context.emit(ComputeDigest{update.id, update.version.directory});  // what the process before did not end
  context.start_timer(update, "resume", update.policy.deadlines.resume);
  context.start_timer(update, "restore", update.policy.deadlines.restore_or_default());
  take_over(context, update);
}

void go_back(Context& context, Update& update) {
  if (update.state != UpdateState::restoring) update.error = died_in(update, "its next start undid the update");
  if (!update.members_fixed) {  // only read so far
    update.targets.clear();
    const std::string held = hold_without_memory(context, update);
    if (update.error) update.error->message += held;
  }
  context.set_state(update, UpdateState::restoring);
  context.start_timer(update, "restore", update.policy.deadlines.restore_or_default());
  take_over(context, update);
}

// A LoRA update pauses nobody: the new name goes again from where a load of it was sent, or its commit is done.
void recover_adapters(Context& context, Update& update) {
  for (auto& [url, target] : update.targets) target.adapter.emplace();
  if (update.committed.value_or(false)) return adapters_committed(context, update);
  update.targets.clear();
  const Pair& pair = context.pair_of(update);
  const std::string adapter = new_name(context, update);
  for (const auto& [url, known] : pair.adapters) {
    const auto it = known.names.find(adapter);
    const auto worker = context.state().workers.find(url);
    if (it == known.names.end() || it->second.attempt != update.attempt || worker == context.state().workers.end())
      continue;
    if (!worker->second.dialect || !worker->second.locked_by.empty()) continue;  // a later update unloads it
    worker->second.locked_by = update.id;
    update.wanted_locks.insert(url);
    Target& target = update.targets[url];
    target.worker = url;
    target.step = Step::judged;
    target.load_sent = true;
    target.verdict = Verdict::unknown;
    target.adapter.emplace();
  }
  update.members_fixed = true;
  if (update.state != UpdateState::restoring) update.error = died_in(update, "its next start undid the update");
  context.set_state(update, UpdateState::restoring);
  begin_adapter_restoring(context, update);
}

void recover_update(Context& context, const UpdateId& id) {
  Update* update = context.find_update(id);
  if (!update) return;
  if (update->kind == UpdateKind::join && is_lora(context, *update))
    return drop_join(context, *update, "the gateway ended");
  if (update->state <= UpdateState::preparing)
    return end_before_pause(context, *update, UpdateState::aborted, died_in(*update, "no engine was touched"));
  if (is_lora(context, *update)) return recover_adapters(context, *update);
  if (update->committed.value_or(false)) {
    go_forward(context, *update);
  } else {
    go_back(context, *update);
  }
  if (Update* left = context.find_update(id)) finish_if_done(context, *left);
}

// Verified before the commit, and still what was verified: it serves. Anything else gets the catch-up that follows
// every commit.
void forward(Context& context, Update& update, Target& target, const StateReading& reading) {
  const bool labelled = update.policy.pause == PauseOwner::never || reading.label == update.version.label;
  const std::string& now = context.worker_of(target).incarnation;
  const bool restarted = !target.incarnation.empty() && target.incarnation != now;
  if (target.verdict == Verdict::verified && labelled && !restarted) return start_resume(context, update, target);
  if (target.verdict == Verdict::verified) {
    target.verdict = Verdict::torn;
    target.cause = context.cause(CauseCode::load_unknown, restarted ? std::string("a new process answers")
                                                                    : fmt::format("its label is '{}' and not '{}'",
                                                                                  reading.label, update.version.label));
  }
  if (!target.cause)
    target.cause = context.cause(CauseCode::load_unknown, "the gateway ended before it was brought to the version");
  catch_up(context, update, target);
}

void back(Context& context, Update& update, Target& target, const StateReading& reading) {
  Worker& worker = context.worker_of(target);
  // The steps behind a collective are on record with it. Nothing is outstanding any more, so the label tells whether
  // this one came to them; if not, the version may be asked for again (`close_update`).
  if (update.transfer && worker.earlier.empty() && reading.label != update.version.label)
    std::erase(worker.labels, update.version.label);
  // Its process may have become another before the gateway died: what is known of the target is of the former one.
  const bool restarted = !target.incarnation.empty() && target.incarnation != worker.incarnation;
  const bool touched =
      update.kind != UpdateKind::update || restarted || (target.load_sent && target.verdict != Verdict::untouched);
  const bool strange = says_loading(reading.label) || !label_is_ours(worker, reading.label);
  if (mutant(Mutant::label_is_trusted) && !strange) {
    target.verdict = Verdict::untouched;
    return start_former_label(context, update, target);
  }
  if (touched || (strange && heal_goal(context, update, target))) {
    // Who can be healed serves again, and that the gateway ended is the update's error, not the worker's cause.
    const bool may_stay_out = update.transfer || !heal_goal(context, update, target);
    if (!target.cause && may_stay_out)
      target.cause = context.cause(CauseCode::load_unknown, "the gateway ended before its load was judged");
    target.verdict = Verdict::unknown;
    return heal_or_quarantine(context, update, target);
  }
  // No load was ever sent. A label that says so is ours to take back; one that another wrote is seen by the read that
  // follows the resume.
  if (says_loading(reading.label)) target.label_changed = true;
  target.verdict = Verdict::untouched;
  start_former_label(context, update, target);
}

// What `recover_pair` will take over when the look is over.
void doubt_pair(Context& context, const Pair& pair) {
  std::vector<UpdateId> running(pair.joins.begin(), pair.joins.end());
  if (!pair.active.empty()) running.push_back(pair.active);
  for (const UpdateId& id : running) {
    Update* update = context.find_update(id);
    if (!update || update->state <= UpdateState::preparing || is_lora(context, *update)) continue;
    if (update->members_fixed || update->committed.value_or(false)) doubt(context, *update);
  }
}

// Saves whose answers went with the process before. Their ranks are refused another one until they are known to be out.
void ask_trainers(Context& context) {
  State& state = context.state();
  for (auto& [url, busy] : state.busy) {
    if (busy.call != 0) continue;
    const Update* update = context.find_update(busy.update);
    busy.call = state.next_id++;
    state.saves[busy.call] = {update ? update->pair : "", url};
    context.emit(AskTrainer{busy.call, url});
  }
}

}  // namespace

void on_recover(Context& context) {
  State& state = context.state();
  ask_trainers(context);
  std::vector<std::string> names;
  for (const auto& [name, pair] : state.pairs) names.push_back(name);
  for (const std::string& name : names) {
    Pair& pair = state.pairs.at(name);
    abort_queue(context, pair,
                Error{ErrorCode::shutting_down,
                      fmt::format("pair '{}': the gateway ended while the update waited for its turn", name), nullptr});
    pair.storage_waits = true;
    if (state.owner.empty()) settle_storage(context, name);  // nobody tells whose it is
    if (recover_waits_for_look(context, name)) {
      doubt_pair(context, pair);
    } else {
      recover_pair(context, name);
    }
  }
  for (auto& [url, worker] : state.workers) {
    look_soon(context, worker, limits::kFirstLookWithin);
  }
}

void recover_pair(Context& context, const std::string& name) {
  const UpdateId active = context.state().pairs.at(name).active;
  const std::set<UpdateId> joins = context.state().pairs.at(name).joins;
  if (!active.empty()) recover_update(context, active);
  for (const UpdateId& id : joins) recover_update(context, id);
}

void on_recovered_reading(Context& context, Update& update, Target& target, const StateReading& reading) {
  target.recovered = false;
  target.reached = true;
  if (update.takes_over) return on_taken_over_read(context, update, target);
  if (update.state == UpdateState::resuming) return forward(context, update, target, reading);
  back(context, update, target, reading);
}

}  // namespace weighlock::protocol
