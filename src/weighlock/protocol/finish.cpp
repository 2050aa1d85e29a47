// Terminal states: what the update ends as, and what waits for its end.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

// What the update took from the worker, as history shows it.
void add_times(const Update& update, const Target& target, json::object& entry) {
  if (target.load_took) entry["load_ms"] = target.load_took->count();
  if (target.switched_at) entry["switched_ms"] = (*target.switched_at - update.requested_at).count();
  if (target.paused_at && target.resumed_at) entry["paused_ms"] = (*target.resumed_at - *target.paused_at).count();
}

json::object outcome_body(Context& context, const Update& update) {
  json::array workers;
  const Pair& pair = context.pair_of(update);
  const auto spoiled = pair.spoiled.find(version_key(update.version));
  for (const auto& [url, target] : update.targets) {
    json::object entry{{"worker", url},
                       {"verdict", std::string(name(target.verdict))},
                       {"evidence", std::string(name(target.evidence))}};
    const auto worker = context.state().workers.find(url);
    if (worker != context.state().workers.end()) entry["state"] = std::string(name(worker->second.state));
    if (target.cause)
      entry["cause"] = {{"code", std::string(name(target.cause->code))}, {"message", target.cause->message}};
    if (spoiled != pair.spoiled.end() && spoiled->second.contains(url)) entry["spoiled"] = true;
    add_times(update, target, entry);
    workers.push_back(std::move(entry));
  }
  json::object body{
      {"state", std::string(name(update.state))}, {"version", update.version.version}, {"workers", std::move(workers)}};
  if (update.committed)
    body["committed"] = *update.committed;
  else
    body["committed"] = "undecided";
  if (update.error)
    body["error"] = {{"code", std::string(info(update.error->code).type)}, {"message", update.error->text()}};
  return body;
}

void finish_resuming(Context& context, Update& update) {
  const bool all_asked = update.policy.on_failure == OnFailure::rollback_all;
  int members = 0;
  int ready = 0;
  bool everyone = true;
  for (const auto& [url, target] : update.targets) {
    const Worker& worker = context.worker_of(target);
    const bool serves =
        worker.state == WorkerState::ready && worker.version && worker.version->same_version(update.version);
    everyone = everyone && serves;
    if (target.role != Role::member || (target.counted_lost && !all_asked)) continue;
    ++members;
    ready += serves ? 1 : 0;
  }
  if (everyone) return end_update(context, update, UpdateState::succeeded, std::nullopt);
  const int needed = all_asked ? std::max(1, members) : update.policy.quorum.needed(members);
  if (ready >= needed) return end_update(context, update, UpdateState::degraded, std::nullopt);
  end_update(context, update, UpdateState::failed,
             Error{ErrorCode::quorum_lost,
                   fmt::format("pair '{}': v{}: committed, but only {} of {} workers came back, {} needed", update.pair,
                               update.version.version, ready, members, needed),
                   nullptr});
}

void finish_restoring(Context& context, Update& update) {
  if (update.kind == UpdateKind::join) return join_done(context, update);
  bool all_back = true;
  for (const auto& [url, target] : update.targets) {
    const bool left_out = !target.pause_sent && !target.load_sent && !target.label_changed;
    if (target.role != Role::member || left_out) continue;
    all_back = all_back && context.worker_of(target).state == WorkerState::ready;
  }
  end_update(context, update, all_back ? UpdateState::rolled_back : UpdateState::failed, update.error);
}

}  // namespace

void forget_oldest(State& state, std::deque<UpdateId>& ended) {
  constexpr std::size_t kAlwaysKept = 2;  // of however large a fleet
  std::size_t workers = 0;
  for (const UpdateId& id : ended) {
    const auto it = state.updates.find(id);
    if (it != state.updates.end()) workers += it->second.targets.size();
  }
  while (ended.size() > limits::kUpdatesRememberedMax ||
         (workers > limits::kTargetsRememberedMax && ended.size() > kAlwaysKept)) {
    const auto it = state.updates.find(ended.front());
    if (it != state.updates.end()) {
      workers -= it->second.targets.size();
      const auto pair = state.pairs.find(it->second.pair);
      if (pair != state.pairs.end())
        std::erase_if(pair->second.keys, [&](const auto& e) { return e.second == ended.front(); });
      state.updates.erase(it);
    }
    ended.pop_front();
  }
}

void finish_if_done(Context& context, Update& update) {
  if (update.state != UpdateState::resuming && update.state != UpdateState::restoring) return;
  if (update.waiting > 0) return;
  const bool done = std::all_of(update.targets.begin(), update.targets.end(),
                                [](const auto& e) { return e.second.step == Step::done; });
  if (!done) return;
  if (update.state == UpdateState::resuming) return finish_resuming(context, update);
  finish_restoring(context, update);
}

void close_update(Context& context, Update& update, UpdateState state, std::optional<Error> error) {
  context.cancel_all_timers(update);
  for (auto& [url, target] : update.targets) context.give_up(target);
  context.set_state(update, state);
  update.error = std::move(error);
  update.ended_at = context.now();
  Pair& pair = context.pair_of(update);
  for (auto& [url, target] : update.targets) {
    Worker& worker = context.worker_of(target);
    const bool by_it = target.pause_sent || target.load_sent || target.label_changed;
    // A version that is gone back to was served before: its number and bytes stay what they are.
    // What a collective left is written under the version's label only when all of it had come.
    const std::vector<std::string>& labels = worker.labels;
    const bool tells_by_label =
        update.transfer && std::find(labels.begin(), labels.end(), update.version.label) == labels.end();
    if (state == UpdateState::failed && update.kind == UpdateKind::update && !update.rollback && by_it &&
        worker.state != WorkerState::ready && !tells_by_label)
      pair.spoiled[version_key(update.version)].insert(url);
    // After a restart nobody waits for it to leave any more: then it stays with its pair.
    const bool leaves =
        update.kind == UpdateKind::leave && (!pair.removing.empty() || pair.reconnect || !pair.leaving.empty());
    if (leaves && worker.state != WorkerState::ready)
      context.set_worker(worker, WorkerState::abandoned, target.cause ? target.cause : worker.cause);
    target.ended_as = worker.state;
    if (update.kind == UpdateKind::join && !pair.spec.lora) note_join_ended(worker, update, target, context.now());
  }
  release_locks(context, update);
  context.record(RecordKind::update_ended, update, "", outcome_body(context, update));
  if (pair.active == update.id) pair.active.clear();
  list_after_update(context, update.pair);
  release_versions(context, update);
  std::erase(pair.queue, update.id);
  pair.joins.erase(update.id);
  if (update.kind == UpdateKind::update) note_use(pair, context.now(), false);
  std::deque<UpdateId>& ended = update.kind == UpdateKind::join ? pair.joins_ended : pair.history;
  ended.push_back(update.id);
  context.emit(UpdateEnded{update.id});
  forget_oldest(context.state(), ended);
}

void end_update(Context& context, Update& update, UpdateState state, std::optional<Error> error) {
  const std::string pair = update.pair;
  close_update(context, update, state, std::move(error));
  resume_waiting(context);
  pair_is_idle(context, pair);
  start_retirements(context);
  stop_if_idle(context);
}

void stop_if_idle(Context& context) {
  State& all = context.state();
  const bool busy = std::any_of(all.pairs.begin(), all.pairs.end(), [](const auto& entry) {
    const Ownership& own = entry.second.ownership;
    const bool looks = own.stop_waits || !own.parked.empty();  // somebody waits to be told
    return !entry.second.active.empty() || !entry.second.joins.empty() || looks;
  });
  if (!all.stopping || all.stopped || busy) return;
  all.stopped = true;
  context.emit(Stopped{});
}

}  // namespace weighlock::protocol
