#include "weighlock/protocol/machine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/check.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

// A (state, event) pair that can't happen: it ends the simulator, and is a loud record in the gateway, which goes on;
// the phase's deadline ends what waits.
void unlisted(Context& context, const Update& update, const Target& target) {
#ifdef WEIGHLOCK_STRICT_MACHINE
  WEIGHLOCK_CHECK(false, "an answer for a target that waits for none");
#endif
  context.record(RecordKind::worker_state, update, target.worker,
                 {{"state", "internal_error"}, {"message", "an answer for a target that waits for none"}});
}

void route(Context& context, Update& update, Target& target, OperationKind kind, const Outcome& outcome) {
  switch (target.step) {
    case Step::surveying:
      survey_step(context, update, target, kind, outcome);
      return;
    case Step::pausing:
      on_pausing_call(context, update, target, outcome);
      return;
    case Step::labelling:
    case Step::loading:
    case Step::asking:
    case Step::labelling_version:
    case Step::flushing:
    case Step::verifying:
    case Step::repausing:
      on_loading_call(context, update, target, kind, outcome);
      return;
    case Step::cache_resuming:
      on_cache_resumed(context, update, target, outcome);
      return;
    case Step::heal_reading:
    case Step::heal_pausing:
    case Step::heal_labelling:
    case Step::heal_loading:
    case Step::heal_emptying:
    case Step::heal_reloading:
    case Step::heal_labelling_version:
    case Step::heal_flushing:
    case Step::heal_verifying:
      on_heal_call(context, update, target, kind, outcome);
      return;
    case Step::barrier:
    case Step::former_label:
    case Step::resuming:
    case Step::checking:
    case Step::flushing_after:
    case Step::probing:
    case Step::fencing:
      on_resume_call(context, update, target, kind, outcome);
      return;
    case Step::adapter_unloading:
    case Step::adapter_loading:
    case Step::adapter_listing:
    case Step::adapter_undoing:  // answered in lora.cpp
    case Step::surveyed:
    case Step::assembling:
    case Step::answered:
    case Step::paused:
    case Step::judged:
    case Step::resume_waiting:
    case Step::done:
      unlisted(context, update, target);
      return;
  }
}

void record_outcome(Context& context, const UpdateId& update, const Worker& worker, const EarlierCall& call,
                    const Outcome& outcome) {
  json::object body{
      {"operation", std::string(name(call.kind))}, {"call", call.call}, {"result", std::string(name(outcome.kind))}};
  if (!outcome.text.empty()) body["text"] = outcome.text;
  if (call.kind == OperationKind::barrier && outcome.reading) body["read"] = true;
  if (call.pays_flush) body["owed"] = true;
  if (outcome.needs_restart) body["needs_restart"] = true;
  context.record(RecordKind::outcome, worker.pair, update, worker.url, std::move(body));
}

void on_late_answer(Context& context, Worker& worker, CallId call, const Outcome& outcome) {
  const auto it =
      std::find_if(worker.earlier.begin(), worker.earlier.end(), [&](const EarlierCall& e) { return e.call == call; });
  if (it == worker.earlier.end()) return;
  record_outcome(context, "", worker, *it, outcome);
  note_late(worker, call, outcome.kind);
  collect_unleased(context, worker.pair);
}

void on_call_ended(Context& context, const CallEnded& event) {
  if (on_adapter_call_ended(context, event)) return;
  State& state = context.state();
  const auto it = state.calls.find(event.call);
  if (it == state.calls.end()) return;  // cancelled while its answer was on the way
  const auto [update_id, url] = it->second;
  state.calls.erase(it);
  const auto worker_it = state.workers.find(url);
  if (worker_it == state.workers.end()) return;  // the worker left the registry
  Worker& worker = worker_it->second;
  if (!worker.in_flight || worker.in_flight->call != event.call) {
    on_late_answer(context, worker, event.call, event.outcome);
    return;
  }
  const EarlierCall call = *worker.in_flight;
  if (event.outcome.dialect) note_dialect(context, worker, *event.outcome.dialect);
  note_reading(worker, call.kind, event.outcome);
  const bool writes_label =
      call.kind == OperationKind::set_label || (call.kind == OperationKind::load && call.carries_label &&
                                                worker.dialect && context.traits_of(worker).load_sets_label);
  note_ended(worker, call, event.outcome, writes_label);
  const bool watched = worker.watch.call == event.call;  // its reads fail each second while an engine is away
  const bool told =
      leaves_doubt(call) || (event.outcome.ok() && (call.kind == OperationKind::barrier || call.pays_flush));
  if (told || (!event.outcome.ok() && !watched)) record_outcome(context, update_id, worker, call, event.outcome);
  if (watched) return on_watch_call(context, worker, call, event.outcome);
  Update* update = context.find_update(update_id);
  if (!update) return;
  const auto target = update->targets.find(url);
  if (target == update->targets.end() || target->second.call != event.call) return;
  target->second.call.reset();
  --update->waiting;
  route(context, *update, target->second, call.kind, event.outcome);
}

void on_whole_timer(Context& context, Update& update) {
  Error error{
      ErrorCode::timed_out,
      fmt::format("pair '{}': v{}: not done within its deadline of {} ms (phase {})", update.pair,
                  update.version.version, update.policy.deadlines.whole_or_default().count(), name(update.state))};
  if (update.state < UpdateState::pausing) {
    end_before_pause(context, update, UpdateState::aborted, std::move(error));
  } else if (update.state < UpdateState::committing) {
    begin_restoring(context, update, std::move(error));
  }  // later states have a deadline of their own
}

void on_target_timer(Context& context, Update& update, const std::string& url) {
  const auto it = update.targets.find(url);
  if (it == update.targets.end()) return;
  if (it->second.step == Step::resume_waiting) {
    on_resume_retry(context, update, it->second);
  } else if (it->second.step >= Step::heal_reading && it->second.step <= Step::heal_verifying) {
    on_heal_retry(context, update, it->second);
  } else {
    on_load_retry(context, update, it->second);
  }
}

void on_timer(Context& context, const TimerFired& event) {
  if (const auto watch = context.state().watch_timers.extract(event.timer); !watch.empty())
    return on_watch_timer(context, event.timer, watch.mapped());
  if (const auto epoch = context.state().epoch_timers.extract(event.timer); !epoch.empty())
    return on_epoch_timer(context, epoch.mapped());
  if (on_retire_timer(context, event.timer)) return;
  const auto it = context.state().timers.find(event.timer);
  if (it == context.state().timers.end()) return;  // cancelled while it fired
  Update* update = context.find_update(it->second);
  context.state().timers.erase(it);
  if (!update) return;
  const auto purpose_it = update->timers.find(event.timer);
  if (purpose_it == update->timers.end()) return;
  const std::string purpose = purpose_it->second;
  update->timers.erase(purpose_it);
  if (purpose == "save") return on_save_timer(context, *update);
  if (purpose == "save_grace") return on_save_grace_timer(context, *update);
  if (purpose == "survey") return on_survey_timer(context, *update);
  if (purpose == "silent_survey") return on_silent_survey_timer(context, *update);
  if (purpose == "pause") return on_pause_timer(context, *update);
  if (purpose == "load") return on_load_timer(context, *update);
  if (purpose == "transfer_grace") return on_transfer_grace_timer(context, *update);
  if (purpose == "verify") return on_verify_timer(context, *update);
  if (purpose == "straggler") return on_straggler_timer(context, *update);
  if (purpose == "resume") return on_resume_timer(context, *update);
  if (purpose == "restore") return on_restore_timer(context, *update);
  if (purpose == "epoch") return on_epoch_wait_timer(context, *update);
  if (purpose == "whole") return on_whole_timer(context, *update);
  on_target_timer(context, *update, purpose);  // named after the worker
}

}  // namespace

void dispatch(Context& context, const EventBody& event) {
  std::visit(
      [&](const auto& body) {
        using T = std::decay_t<decltype(body)>;
        if constexpr (std::is_same_v<T, ConnectPair>) on_connect(context, body);
        if constexpr (std::is_same_v<T, RemovePair>) on_remove(context, body);
        if constexpr (std::is_same_v<T, ChangeWorker>) on_change_worker(context, body);
        if constexpr (std::is_same_v<T, RequestUpdate>) on_request(context, body);
        if constexpr (std::is_same_v<T, CollectVersions>) on_collect(context, body);
        if constexpr (std::is_same_v<T, CancelUpdate>) on_cancel(context, body);
        if constexpr (std::is_same_v<T, CallEnded>) on_call_ended(context, body);
        if constexpr (std::is_same_v<T, SaveEnded>) on_save_ended(context, body);
        if constexpr (std::is_same_v<T, Prepared>) on_prepared(context, body);
        if constexpr (std::is_same_v<T, Sealed>) on_sealed(context, body);
        if constexpr (std::is_same_v<T, DigestDone>) on_digest_done(context, body);
        if constexpr (std::is_same_v<T, TimerFired>) on_timer(context, body);
        if constexpr (std::is_same_v<T, CommitDurable>) on_commit_durable(context, body);
        if constexpr (std::is_same_v<T, Recover>) on_recover(context);
        if constexpr (std::is_same_v<T, Shutdown>) on_shutdown(context);
        if constexpr (std::is_same_v<T, EpochClaimed>) on_epoch_claimed(context, body);
        if constexpr (std::is_same_v<T, EpochSeen>) on_epoch_seen(context, body);
        if constexpr (std::is_same_v<T, GroupBuilt>) on_group_built(context, body);
        if constexpr (std::is_same_v<T, Discarded>) on_discarded(context, body);
      },
      event);
}

Effects step(State& state, const Dialects& dialects, const Event& event) {
  Context context(state, dialects, event.now);
  if (!park(context, event.body)) dispatch(context, event.body);
  if (state.stopping) stop_if_idle(context);  // whatever ended the last thing that ran
  return context.take_effects();
}

}  // namespace weighlock::protocol
