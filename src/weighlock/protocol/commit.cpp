// COMMITTING, the decision point, and RESUMING, which it implies (protocol.md section 1).
#include <fmt/format.h>

#include <utility>

#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

// UNTOUCHED at a version that the policy still lets it serve.
bool may_lag(const Pair& pair, const Update& update, const Target& target) {
  if (target.verdict != Verdict::untouched || target.load_sent || update.policy.max_lag <= 0) return false;
  if (update.rollback) return false;  // what is gone back from isn't behind
  if (target.former_state != WorkerState::ready || !target.former_version || !pair.committed) return false;
  return within_lag(*pair.committed, *target.former_version, update.policy.max_lag);
}

}  // namespace

void catch_up(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  const Cause cause = target.cause.value_or(context.cause(CauseCode::load_failed, "not loaded"));
  if (!worker.earlier.empty()) return quarantine(context, update, target, cause);
  if (target.needs_restart)
    return quarantine(context, update, target, context.cause(CauseCode::needs_restart, cause.message));
  if (cause.code == CauseCode::credentials) return quarantine(context, update, target, cause);
  if (const Pair& pair = context.pair_of(update); is_suspect(pair, update.version))
    return quarantine(context, update, target,
                      context.cause(CauseCode::suspect, why_suspect(pair, update.version) + "; " + cause.message));
  if (may_lag(context.pair_of(update), update, target)) return start_former_label(context, update, target);
  if (update.transfer) return quarantine(context, update, target, cause);  // it is on no storage
  target.caught_up = true;
  start_heal(context, update, target, update.version);
}

namespace {

void begin_resuming(Context& context, Update& update) {
  context.set_state(update, UpdateState::resuming);
  context.start_timer(update, "resume", update.policy.deadlines.resume);
  context.start_timer(update, "restore", update.policy.deadlines.restore_or_default());
  for (auto& [url, target] : update.targets) {
    if (target.step != Step::judged || target.verdict != Verdict::verified) continue;
    start_resume(context, update, target);  // first: these were waiting for the decision only
  }
  for (auto& [url, target] : update.targets) {
    if (target.step == Step::judged) catch_up(context, update, target);
  }
  finish_if_done(context, update);
}

}  // namespace

void begin_commit(Context& context, Update& update) {
  context.cancel_timer(update, "load");
  context.cancel_timer(update, "verify");
  context.cancel_timer(update, "straggler");
  context.set_state(update, UpdateState::committing);
  update.committed.reset();  // undecided until the group is on disk
  json::array verdicts;
  for (const auto& [url, target] : update.targets) {
    json::object verdict{{"worker", url},
                         {"verdict", std::string(name(target.verdict))},
                         {"evidence", std::string(name(target.evidence))}};
    if (target.vacuous) verdict["vacuous"] = true;
    if (target.counted_lost) verdict["lost"] = true;
    verdicts.push_back(std::move(verdict));
  }
  context.record(RecordKind::verdict, update, "", {{"verdicts", std::move(verdicts)}});
  json::object body{{"lineage", update.version.lineage},
                    {"version", update.version.version},
                    {"directory", update.version.directory},
                    {"label", update.version.label},
                    {"digest", update.version.digest}};
  if (is_lora(context, update)) body["adapter"] = new_name(context, update);
  if (update.rollback) {
    body["rollback"] = true;
    if (const auto& from = context.pair_of(update).committed) body["from"] = from->version;
  }
  context.record(RecordKind::commit, update, "", std::move(body));
  if (mutant(Mutant::resume_before_commit)) return on_commit_durable(context, CommitDurable{update.id});
  context.emit(AwaitDurable{update.id});
}

void on_commit_durable(Context& context, const CommitDurable& event) {
  Update* update = context.find_update(event.update);
  if (!update || update->state != UpdateState::committing) return;
  Pair& pair = context.pair_of(*update);
  update->committed = true;
  note_committed(pair, *update);
  if (update->sealed) pair.bytes_last = update->sealed->bytes;
  note_stored(pair, *update, true);
  if (is_superseded(pair)) {  // decided, and another's since: it sees to the workers
    if (is_lora(context, *update)) add_to_window(pair, *update);
    return end_update(context, *update, UpdateState::failed,
                      superseded_error(update->pair, *pair.ownership.superseded_by));
  }
  if (update->sealed && update->sealed->blind) {
    // What was not seen can't be relied on to heal another worker with (storage.md, "Blind").
    pair.last_good.reset();
    pair.rollback_reason = why_no_last_good(*update);
  } else {
    context.emit(MarkLatest{pair.spec.save_path, update->version.directory});
  }
  if (is_lora(context, *update)) return adapters_committed(context, *update);
  begin_resuming(context, *update);
}

void on_resume_timer(Context& context, Update& update) {
  if (update.state != UpdateState::resuming) return;
  for (auto& [url, target] : update.targets) {
    const bool waits = target.step >= Step::resuming && target.step <= Step::probing;
    const bool barriered = target.step == Step::barrier || target.step == Step::former_label;
    if (target.caught_up || (!waits && !barriered)) continue;
    context.give_up(target);
    const std::string before = target.cause ? target.cause->message + "; " : "";
    quarantine(context, update, target,
               context.cause(CauseCode::resume_failed, fmt::format("{}resume: not done within {} ms", before,
                                                                   update.policy.deadlines.resume.count())));
  }
  finish_if_done(context, update);
}

}  // namespace weighlock::protocol
