// Between updates: a worker that restarted gets its adapters back, after its own model (protocol.md section 10).
//
// A join of a LoRA pair is an Update of kind `join` in LOADING: lora_load.cpp lists, and loads what is lacking, the
// committed version last. Nobody waits for it; what it could not load the pair's next update tries again. One that its
// gateway did not live to end is forgotten: the names stay uncertain, and the next look lists them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

bool is_of_another(const WorkerAdapters& known, const std::string& incarnation) {
  return !known.incarnation.empty() && !incarnation.empty() && known.incarnation != incarnation;
}

bool serves_committed(const Pair& pair, const WorkerAdapters& known) {
  return known.version && known.version->same_version(*pair.committed);
}

// It does not serve what is committed, or all of the window, and nothing says that it can't.
bool lacks_adapters(const Pair& pair, const WorkerAdapters& known, const std::string& incarnation) {
  if (is_of_another(known, incarnation)) return true;
  const std::string& newest = pair.window.back().name;
  if (!serves_committed(pair, known) && !known.lacking.contains(newest)) return true;
  const std::vector<AdapterVersion> older = older_of_window(pair, newest);
  return std::any_of(older.begin(), older.end(), [&](const AdapterVersion& version) {
    return !holds(known, version) && !known.lacking.contains(version.name);
  });
}

bool may_join_now(Context& context, const Pair& pair, const Worker& worker) {
  if (!pair.spec.lora || !pair.committed || pair.window.empty() || is_dormant(pair, context.now())) return false;
  if (is_superseded(pair) || context.state().stopping || !pair.removing.empty() || pair.reconnect ||
      !pair.changes.empty())
    return false;
  if (!pair.active.empty() || !pair.queue.empty() || !pair.joins.empty()) return false;
  return can_serve_adapters(context.state(), worker) && worker.dialect && worker.locked_by.empty() &&
         worker.earlier.empty();
}

void begin(Context& context, Pair& pair, Worker& worker) {
  State& state = context.state();
  Update made;
  made.number = state.next_update++;
  made.id = fmt::format("{}-{}", state.boot, made.number);
  made.kind = UpdateKind::join;
  made.pair = pair.spec.name;
  made.policy = pair.spec.policy;
  made.version = *pair.committed;
  made.attempt = pair.window.back().attempt;
  made.requested_at = context.now();
  made.members_fixed = true;
  made.wanted_locks = {worker.url};
  Target& target = made.targets[worker.url];
  target.worker = worker.url;
  target.step = Step::paused;
  target.adapter.emplace();
  worker.locked_by = made.id;
  preempt_retirement(context, worker.url);
  const UpdateId id = made.id;
  pair.joins.insert(id);
  Update& join = state.updates.emplace(id, std::move(made)).first->second;
  context.set_state(join, UpdateState::loading);
  context.start_timer(join, "restore", join.policy.deadlines.load);
  launch_adapter(context, join, join.targets.at(worker.url));
}

}  // namespace

void begin_adapter_join(Context& context, Worker& worker, const std::string& incarnation) {
  for (auto& [name, pair] : context.state().pairs) {
    const auto known = pair.adapters.find(worker.url);
    if (known == pair.adapters.end()) continue;
    const bool was_silent = known->second.cause && known->second.cause->code == CauseCode::unreachable;
    if (was_silent && pair.committed && serves_committed(pair, known->second) &&
        !is_of_another(known->second, incarnation))
      known->second.cause.reset();
    if (!may_join_now(context, pair, worker) || !lacks_adapters(pair, known->second, incarnation)) continue;
    if (may_act(context, name)) return begin(context, pair, worker);  // another one: the next look
    pair.ownership.joins_wait[worker.url] = incarnation;
  }
}

void note_lacking(const Pair& pair, WorkerAdapters& known, const Target& target, const std::string& wanted) {
  known.missing = target.adapter->missing;
  known.lacking = target.adapter->given_up;
  const CauseCode why = target.cause ? target.cause->code : CauseCode::restarted;
  const bool refused = why == CauseCode::adapter_failed || why == CauseCode::credentials;
  if (target.verdict == Verdict::verified || !refused) return;
  known.lacking.insert(wanted);
  for (const AdapterVersion& version : older_of_window(pair, wanted)) {
    if (!holds(known, version)) known.lacking.insert(version.name);
  }
}

void fence_silent(Context& context, const Worker& worker, const Cause& cause) {
  bool told = false;
  for (auto& [name, pair] : context.state().pairs) {
    const auto known = pair.adapters.find(worker.url);
    if (known == pair.adapters.end() || is_superseded(pair)) continue;
    known->second.cause = cause;
    if (!std::exchange(told, true)) context.emit(Fence{worker.url, name, cause});
  }
}

void adapter_join_judged(Context& context, Update& join) {
  bool served = true;
  for (auto& [url, target] : join.targets) {
    if (target.step != Step::judged) return;
    WorkerAdapters& known = adapters_of(context, join, target);
    note_lacking(context.pair_of(join), known, target, new_name(context, join));
    served = target.verdict == Verdict::verified;
    if (served) {
      known.version = join.version;
      known.cause.reset();
      known.names[new_name(context, join)].committed = true;
    } else {
      known.cause = target.cause;
    }
  }
  end_update(context, join, served ? UpdateState::succeeded : UpdateState::failed, std::nullopt);
}

}  // namespace weighlock::protocol
