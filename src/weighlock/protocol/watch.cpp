// Between updates: a worker that may not serve stays paused (protocol.md sections 2, 7 and 8).
//
// Engines know no fence, so a trainer may continue behind our back what is quarantined. Each quarantined worker is read
// each second; one that runs is paused again, and it is told once. The look changes nothing else: what heals an idle
// worker begins where `on_look` finds it quiet.
//
// One call per worker, as everywhere: an update that begins takes the worker over (`yield_watch`). Earlier calls that
// may still run are asked after by a barrier, where there is one; until they have ended nothing that changes is sent.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

void cancel_timer(Context& context, Worker& worker) {
  if (!worker.watch.timer) return;
  context.emit(CancelTimer{*worker.watch.timer});
  context.state().watch_timers.erase(*worker.watch.timer);
  worker.watch.timer.reset();
}

void set_timer(Context& context, Worker& worker, Milliseconds after) {
  cancel_timer(context, worker);
  const TimerId id = context.state().next_id++;
  worker.watch.timer = id;
  context.state().watch_timers[id] = worker.url;
  context.emit(StartTimer{id, after});
}

// Spread by the worker's name and the moment: the machine draws no dice.
void look_later(Context& context, Worker& worker) {
  constexpr int kDoublingsMax = 10;
  const Milliseconds grown = limits::kWatchPeriod * (1 << std::min(worker.watch.failures, kDoublingsMax));
  const Milliseconds period = std::min(grown, limits::kWatchBackOffMax);
  constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15ULL;
  const std::uint64_t mixed = (std::hash<std::string>{}(worker.url) ^ context.state().next_id) * kMix;
  const auto spread = static_cast<std::int64_t>((mixed >> 32) % (2 * limits::kWatchJitterPermille + 1));
  set_timer(context, worker, period * (1000 - limits::kWatchJitterPermille + spread) / 1000);
}

bool is_watched(Context& context, const Worker& worker) {
  return worker.state == WorkerState::quarantined && context.state().pairs.contains(worker.pair) &&
         !context.state().stopping;
}

bool is_in_update(Context& context, const Worker& worker) {
  if (worker.in_flight || !worker.locked_by.empty()) return true;
  const Update* active = context.find_update(context.state().pairs.at(worker.pair).active);
  return active && active->targets.contains(worker.url);
}

void look(Context& context, Worker& worker) {
  context.call_between_updates(worker, next_reading(context, worker));
  set_timer(context, worker, limits::kWatchReadTimeout);
}

// A record, an event and a line of the log: at the first time, then once a while with how often it was seen.
void tell_that_it_runs(Context& context, Worker& worker, std::string message) {
  Watch& watch = worker.watch;
  ++watch.continues;
  if (watch.told_at && context.now() - *watch.told_at < limits::kWatchTellAgain) return;
  if (watch.continues > 1) message += fmt::format(" (seen {} times since this was last said)", watch.continues);
  watch.told_at = context.now();
  watch.continues = 0;
  context.record(RecordKind::worker_state, worker.pair, "", worker.url,
                 {{"state", std::string(kContinuedByOther)}, {"message", std::move(message)}});
}

// Not ready, and not ours to stop: we never paused it, and what it holds is whole. Either it is the committed version,
// and it was only out of reach; or it is what the process started with, and it waits to be brought in. Whoever
// generates with that one may have nothing else to generate with.
bool may_run(const Pair& pair, const Worker& worker, const StateReading& reading) {
  if (worker.paused_by_us) return false;
  const CauseCode why = worker.cause ? worker.cause->code : CauseCode::load_unknown;
  const bool joined = why == CauseCode::restarted;
  const bool out_of_reach = why == CauseCode::unreachable || why == CauseCode::credentials;
  // Without a pause no label says that a load has begun.
  if (!joined && (!out_of_reach || pair.spec.policy.pause == PauseOwner::never)) return false;
  if (!worker.version) return worker.labels.empty() && reading.label == worker.start_label;
  const std::string& label = worker.version->lineage == 0 ? worker.start_label : worker.version->label;
  const bool settled = worker.labels.empty() || (worker.labels.size() == 1 && worker.labels.front() == label);
  return pair.committed && worker.version->same_version(*pair.committed) && settled && reading.label == label;
}

void hold(Context& context, Worker& worker, const StateReading& reading) {
  const Pair& pair = context.state().pairs.at(worker.pair);
  if (pair.spec.policy.pause == PauseOwner::caller || may_run(pair, worker, reading))
    return look_later(context, worker);
  if (mutant(Mutant::watch_is_blind)) return look_later(context, worker);
  const std::string what =
      worker.paused_by_us ? "it was continued although it may not serve" : "it may not serve, and runs";
  if (!worker.earlier.empty()) {
    tell_that_it_runs(context, worker, what + "; an earlier call may still run, so it can't be paused");
    return look_later(context, worker);
  }
  tell_that_it_runs(context, worker, what + "; paused again");
  Operation operation;
  operation.kind = OperationKind::pause;
  operation.pause_mode = PauseMode::abort;
  context.call_between_updates(worker, std::move(operation));
  set_timer(context, worker, pair.spec.policy.deadlines.pause);
}

void on_look(Context& context, Worker& worker, const EarlierCall& call, const Outcome& outcome) {
  if (!outcome.ok()) {
    ++worker.watch.failures;
    return look_later(context, worker);
  }
  worker.watch.failures = 0;
  if (call.kind == OperationKind::identify || !outcome.reading) return look_later(context, worker);
  if (call.kind == OperationKind::barrier) worker.earlier.clear();
  if (observe(context, worker, *outcome.reading)) return;
  if (worker.earlier.empty() && !label_is_ours(worker, outcome.reading->label)) {
    return context.set_worker(
        worker, WorkerState::foreign,
        context.cause(CauseCode::foreign,
                      fmt::format("its label became '{}', which this gateway did not write", outcome.reading->label)));
  }
  if (outcome.reading->paused) return look_later(context, worker);
  hold(context, worker, *outcome.reading);
}

}  // namespace

void begin_watch(Context& context, Worker& worker) {
  worker.watch.failures = 0;
  worker.watch.continues = 0;
  worker.watch.told_at.reset();
  if (!worker.watch.call) look_later(context, worker);
}

void on_watch_timer(Context& context, TimerId timer, const std::string& url) {
  const auto found = context.state().workers.find(url);
  if (found == context.state().workers.end() || found->second.watch.timer != timer) return;  // it left the registry
  Worker& worker = found->second;
  worker.watch.timer.reset();
  if (worker.watch.call) {  // no answer in time
    context.give_up_watch(worker);
    ++worker.watch.failures;
  } else if (is_watched(context, worker) && !is_in_update(context, worker)) {
    return look(context, worker);
  }
  if (is_watched(context, worker)) look_later(context, worker);
}

void on_watch_call(Context& context, Worker& worker, const EarlierCall& call, const Outcome& outcome) {
  worker.watch.call.reset();
  cancel_timer(context, worker);
  if (!is_watched(context, worker)) return;
  if (call.kind != OperationKind::pause) return on_look(context, worker, call, outcome);
  worker.watch.failures = outcome.ok() ? 0 : worker.watch.failures + 1;
  look_later(context, worker);
}

void yield_watch(Context& context, Worker& worker) {
  if (!worker.watch.call) return;
  context.give_up_watch(worker);
  cancel_timer(context, worker);
  if (worker.state == WorkerState::quarantined) look_later(context, worker);
}

}  // namespace weighlock::protocol
