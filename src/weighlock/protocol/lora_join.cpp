// Between updates: a worker that restarted gets its adapters back, after its own model (protocol.md section 10).
//
// A join of a LoRA pair is an Update of kind `join` in LOADING: lora_load.cpp lists, and loads what is lacking, the
// committed version last. Nobody waits for it; what it could not load the pair's next update tries again. One that its
// gateway did not live to end is forgotten: the names stay uncertain, and the next look lists them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

// It does not serve what is committed, and nothing says that it can't.
bool lacks_adapters(const Pair& pair, const WorkerAdapters& known, const Worker& worker) {
  const bool is_new =
      !known.incarnation.empty() && !worker.incarnation.empty() && known.incarnation != worker.incarnation;
  if (is_new) return true;
  if (known.version && known.version->same_version(*pair.committed)) return false;
  if (!known.cause) return true;
  const CauseCode why = known.cause->code;
  return why == CauseCode::restarted || why == CauseCode::unreachable || why == CauseCode::outstanding;
}

bool may_join_now(Context& context, const Pair& pair, const Worker& worker) {
  if (!pair.spec.lora || !pair.committed || pair.window.empty() || is_dormant(pair, context.now())) return false;
  if (context.state().stopping || !pair.removing.empty() || pair.reconnect || !pair.changes.empty()) return false;
  if (!pair.active.empty() || !pair.queue.empty() || !pair.joins.empty()) return false;
  return worker.state == WorkerState::ready && worker.dialect && worker.locked_by.empty() && worker.earlier.empty();
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

void begin_adapter_join(Context& context, Worker& worker) {
  for (auto& [name, pair] : context.state().pairs) {
    const auto known = pair.adapters.find(worker.url);
    if (known == pair.adapters.end() || !may_join_now(context, pair, worker)) continue;
    if (lacks_adapters(pair, known->second, worker)) return begin(context, pair, worker);  // another one: the next look
  }
}

void adapter_join_judged(Context& context, Update& join) {
  bool served = true;
  for (auto& [url, target] : join.targets) {
    if (target.step != Step::judged) return;
    WorkerAdapters& known = adapters_of(context, join, target);
    known.missing = target.adapter->missing;
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
