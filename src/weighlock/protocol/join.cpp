// Between updates: bringing one worker to the committed version (protocol.md section 8).
//
// A join is an Update of kind `join` in RESTORING whose one target is the worker: heal.cpp loads and verifies,
// resume.cpp lets it serve, and its intents, deadline, replay and recovery are those of any other. It runs beside the
// pair's active update as long as that one touches no engine. At PAUSING a join is dropped and its worker becomes an
// extra; one whose load is on its way ends first if nobody else serves, and is left out otherwise: its worker stays
// paused, and is brought to what is committed then.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/policy_fit.hpp"

namespace weighlock::protocol {
namespace {

bool is_loading(const Target& target) {
  const bool loads =
      target.step == Step::heal_loading || target.step == Step::heal_emptying || target.step == Step::heal_reloading;
  return loads && target.call.has_value();
}

bool is_curable(const Pair& pair, const Worker& worker) {
  if (worker.state == WorkerState::joining) return true;
  if (worker.state != WorkerState::quarantined || !has_its_memory(worker)) return false;
  if (!worker.cause) return true;
  switch (worker.cause->code) {
    case CauseCode::operator_hold:
    case CauseCode::needs_restart:
      return false;
    case CauseCode::suspect:
      return pair.committed && !is_suspect(pair, *pair.committed);
    case CauseCode::probe_failed:
      return !(worker.version && pair.committed && worker.version->same_version(*pair.committed));
    default:
      return true;
  }
}

bool somebody_waits_for(Context& context, const std::string& url) {
  const auto& pairs = context.state().pairs;
  return std::any_of(pairs.begin(), pairs.end(), [&](const auto& entry) {
    const Update* update = context.find_update(entry.second.active);
    return update && update->waits_for_locks && update->wanted_locks.contains(url);
  });
}

bool is_surveyed(Context& context, const Pair& pair, const std::string& url) {
  const Update* active = context.find_update(pair.active);
  return active && is_in_hand(*active, url);
}

Milliseconds back_off(int failures) {
  constexpr int kDoublingsMax = 10;
  const int doublings = std::clamp(failures - 1, 0, kDoublingsMax);
  return std::min(Milliseconds(limits::kJoinBackOffMin * (1 << doublings)), limits::kJoinBackOffMax);
}

}  // namespace

bool is_taken(Context& context, const Pair& pair) {
  const Update* active = context.find_update(pair.active);
  if (!active) return false;
  return active->kind != UpdateKind::update || active->state >= UpdateState::pausing || active->waits_for_locks;
}

bool is_dormant(const Pair& pair, Instant now) {
  const Milliseconds given = pair.spec.policy.pair_lease;
  if (given == Milliseconds(0)) return true;
  if (!pair.active.empty() || !pair.queue.empty()) return false;
  constexpr int kGaps = 4;
  return now - pair.used_at >= std::max(given, kGaps * pair.longest_gap);
}

void note_use(Pair& pair, Instant now, bool is_update) {
  pair.used_at = std::max(pair.used_at, now);
  if (!is_update) return;
  if (pair.requested_at) pair.longest_gap = std::max(pair.longest_gap, now - *pair.requested_at);
  pair.requested_at = now;
}

std::optional<VersionRef> join_goal(const Pair& pair, const Worker& worker) {
  if (shares_devices(pair)) return std::nullopt;  // its memory may be in other hands: only updates load it
  // What was transferred is on no storage: such a worker is brought back by the next update.
  const bool readable = pair.committed && !pair.distrusted && !pair.committed->directory.empty();
  if (pair.committed) return readable ? pair.committed : std::nullopt;
  if (pair.last_good && pair.last_good->directory == worker.start_path) return pair.last_good;
  return std::nullopt;
}

bool is_joining_now(const State& state, const Worker& worker) {
  const auto update = state.updates.find(worker.locked_by);
  return update != state.updates.end() && update->second.kind == UpdateKind::join && update->second.pair == worker.pair;
}

bool may_join(Context& context, const Worker& worker) {
  const Pair& pair = context.state().pairs.at(worker.pair);
  if (context.state().stopping || !pair.removing.empty() || pair.reconnect || !pair.changes.empty()) return false;
  if (!worker.dialect || worker.in_flight || !worker.locked_by.empty() || !worker.earlier.empty()) return false;
  if (!is_curable(pair, worker) || context.now() < worker.joins.not_before) return false;
  const std::optional<VersionRef> goal = join_goal(pair, worker);
  if (!goal || is_suspect(pair, *goal) || is_dormant(pair, context.now())) return false;
  const auto window = static_cast<std::size_t>(pair.spec.policy.load_window);
  if (window > 0 && pair.joins.size() >= window) return false;
  return !is_taken(context, pair) && !is_surveyed(context, pair, worker.url) &&
         !somebody_waits_for(context, worker.url);
}

void begin_join(Context& context, Worker& worker, const StateReading& reading) {
  State& state = context.state();
  Pair& pair = state.pairs.at(worker.pair);
  Update made;
  made.number = state.next_update++;
  made.id = fmt::format("{}-{}", state.boot, made.number);
  made.kind = UpdateKind::join;
  made.pair = worker.pair;
  made.policy = pair.spec.policy;
  made.version = join_goal(pair, worker).value_or(VersionRef{});
  made.requested_at = context.now();
  made.members_fixed = true;
  made.wanted_locks = {worker.url};
  Target& target = made.targets[worker.url];
  target.worker = worker.url;
  target.role = Role::extra;
  target.reached = true;
  target.paused = reading.paused;
  target.was_paused = reading.paused && !worker.paused_by_us;
  target.pause_sent = worker.paused_by_us;
  target.incarnation = worker.incarnation;
  target.former_label = reading.label;
  target.former_state = worker.state;
  target.former_cause = worker.cause;
  target.former_version = worker.version;
  worker.locked_by = made.id;
  preempt_retirement(context, worker.url);
  const UpdateId id = made.id;
  pair.joins.insert(id);
  Update& join = state.updates.emplace(id, std::move(made)).first->second;
  context.set_state(join, UpdateState::restoring);
  json::object body = describe_targets(join);
  body["kind"] = std::string(name(join.kind));
  context.record(RecordKind::targets, join, "", std::move(body));
  context.start_timer(join, "restore", join.policy.deadlines.restore_or_default());
  start_heal(context, join, join.targets.at(worker.url), VersionRef(join.version));
}

void join_done(Context& context, Update& join) {
  std::optional<Error> error;
  bool ready = true;
  for (const auto& [url, target] : join.targets) {
    const Worker& worker = context.worker_of(target);
    if (worker.state == WorkerState::ready) continue;
    ready = false;
    error = Error{ErrorCode::worker_failed,
                  fmt::format("pair '{}': worker {}: {}", join.pair, url,
                              worker.cause ? worker.cause->message : std::string(name(worker.state))),
                  nullptr};
  }
  end_update(context, join, ready ? UpdateState::succeeded : UpdateState::failed, std::move(error));
}

void note_join_ended(Worker& worker, const Update& join, const Target& target, Instant now) {
  if (join.state == UpdateState::succeeded) worker.joins = JoinHistory{};
  if (join.state != UpdateState::failed) return;
  ++worker.joins.failures;
  worker.joins.not_before = now + jittered(join.number, worker.url, back_off(worker.joins.failures));
  const bool may_run = std::any_of(worker.earlier.begin(), worker.earlier.end(),
                                   [](const EarlierCall& call) { return call.kind == OperationKind::load; });
  worker.joins.doubtful_load =
      target.verdict == Verdict::unknown && may_run ? version_key(join.version) : std::string();
}

void note_doubtful_death(Context& context, Worker& worker, const std::string& incarnation, std::string version) {
  const auto pair = context.state().pairs.find(worker.pair);
  if (version.empty() || pair == context.state().pairs.end()) return;
  const std::string who = worker.url + " " + incarnation;
  if (!pair->second.deaths[version].insert(who).second) return;
  context.record(RecordKind::death, worker.pair, "", worker.url, {{"version", version}, {"incarnation", who}});
}

bool hold_if_suspect(Context& context, Worker& worker) {
  const Pair& pair = context.state().pairs.at(worker.pair);
  if (!pair.committed || !is_suspect(pair, *pair.committed) || !is_curable(pair, worker)) return false;
  const bool was_out = worker.state == WorkerState::quarantined;
  if (was_out && !worker.earlier.empty()) return false;  // that keeps it out, too, and only that can end by itself
  const Cause cause = context.cause(CauseCode::suspect,
                                    why_suspect(pair, *pair.committed) + "; release it, or publish a higher version");
  context.set_worker(worker, WorkerState::quarantined, cause);
  if (!was_out) context.emit(Fence{worker.url, worker.pair, cause});
  return true;
}

bool hold_if_unprovable(Context& context, Worker& worker) {
  const Pair& pair = context.state().pairs.at(worker.pair);
  if (!pair.committed || !worker.dialect || !worker.earlier.empty() || !is_curable(pair, worker)) return false;
  const auto why = why_unprovable(pair.spec.policy, context.traits_of(worker), worker.url, Files::seen);
  if (!why) return false;
  const Cause cause = context.cause(CauseCode::verify_failed, *why);
  const bool was_out = worker.state == WorkerState::quarantined;
  if (was_out && worker.cause && worker.cause->message == cause.message) return true;
  context.set_worker(worker, WorkerState::quarantined, cause);
  if (!was_out) context.emit(Fence{worker.url, worker.pair, cause});
  return true;
}

void drop_join(Context& context, Update& join, std::string_view why) {
  for (auto& [url, target] : join.targets) {
    Worker& worker = context.worker_of(target);
    context.give_up(target);
    if (target.adapter) continue;  // the worker itself is as before
    const bool touched = target.pause_sent || target.label_changed || target.load_sent;
    if (!touched || worker.state == WorkerState::foreign) {
      context.set_worker(worker, target.former_state, target.former_cause);
    } else {  // not as it was found any more: it may not serve
      context.set_worker(worker, WorkerState::quarantined,
                         context.cause(CauseCode::load_unknown,
                                       fmt::format("it was being brought to v{} when {}", join.version.version, why)));
    }
  }
  close_update(context, join, UpdateState::aborted,
               Error{ErrorCode::superseded, fmt::format("pair '{}': {}", join.pair, why), nullptr});
}

void drop_joins(Context& context, const Pair& pair, std::string_view why) {
  const std::set<UpdateId> joins = pair.joins;
  for (const UpdateId& id : joins) {
    if (Update* join = context.find_update(id)) drop_join(context, *join, why);
  }
}

void drop_join_of(Context& context, const Worker& worker, std::string_view why) {
  if (is_joining_now(context.state(), worker)) drop_join(context, *context.find_update(worker.locked_by), why);
}

bool make_room(Context& context, const Pair& pair) {
  const std::set<UpdateId> joins = pair.joins;
  for (const UpdateId& id : joins) {
    Update* join = context.find_update(id);
    const bool loads = join && std::any_of(join->targets.begin(), join->targets.end(),
                                           [](const auto& entry) { return is_loading(entry.second); });
    if (join && !loads) drop_join(context, *join, "an update began");
  }
  const auto& workers = context.state().workers;
  return std::any_of(workers.begin(), workers.end(), [&](const auto& entry) {
    return entry.second.pair == pair.spec.name && entry.second.state == WorkerState::ready;
  });
}

bool make_way_for_update(Context& context, Update& join) {
  if (join.kind != UpdateKind::join) return false;
  const Pair& pair = context.pair_of(join);
  const bool superseded = std::any_of(join.targets.begin(), join.targets.end(), [&](const auto& entry) {
    const auto goal = join_goal(pair, context.worker_of(entry.second));
    return entry.second.goal && !(goal && goal->same_version(*entry.second.goal));
  });
  if (!superseded && !is_taken(context, pair)) return false;
  drop_join(context, join, superseded ? "another version was committed" : "an update began");
  resume_waiting(context);
  return true;
}

}  // namespace weighlock::protocol
