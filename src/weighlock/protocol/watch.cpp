// Between updates each worker is looked at, and what the look shows is drawn (protocol.md sections 2, 7 and 8).
//
// One that serves: label and pause state each ten seconds, its start time less often. A new process is JOINING, a label
// of somebody else makes it FOREIGN, a pause of somebody else is told and left alone; that one, and one that owes a
// flush of its cache (mode keep) and is asked for it with each look, is looked at each second for the first ten. One
// that may not serve: each second. Engines know no fence, so a trainer may continue behind our back what is
// quarantined: it is paused again, and it is told once. Where it may be brought back, a join begins (join.cpp).
//
// A look that finds nothing new makes no record. One that serves and is silent for `kSilentLooks` looks in a row is
// fenced until it answers. Workers that only LoRA pairs use are looked at for their start time alone: a new process
// gets its adapters back (lora_join.cpp), a silent one is told to the fence hook and keeps its state.
//
// One call per worker, as everywhere: an update that begins takes the worker over (`yield_watch`). Earlier calls that
// may still run are asked after by a barrier, where there is one; until they have ended nothing that changes is sent.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

constexpr const char* kPausedWhileDraining =
    "drained by its operator, and a pause of this gateway holds what it still had to do; release or remove it";

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

std::uint64_t mixed(std::uint64_t salt, const std::string& worker) {
  constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15ULL;
  return ((std::hash<std::string>{}(worker) ^ salt) * kMix) >> 32;
}

bool serves(const Worker& worker) {
  return worker.state == WorkerState::ready || worker.state == WorkerState::draining;
}

// Whether its cache is still to be flushed, and may be: while the pair is in use (of one without a lease it is part of
// its updates), and of one that runs. In a group that is being brought up an engine answers nobody.
bool is_flush_due(Context& context, const Worker& worker) {
  if (!worker.owes_flush || worker.state != WorkerState::ready || worker.pair.empty()) return false;
  if (mutant(Mutant::owed_flush_forgotten)) return false;
  if (worker.paused_by_us || worker.paused_by_other || !worker.earlier.empty() || !has_its_memory(worker)) return false;
  const Pair& pair = context.state().pairs.at(worker.pair);
  const bool is_left_alone = pair.spec.policy.pair_lease > Milliseconds(0) && is_dormant(pair, context.now());
  return !is_left_alone && !is_brought_up(context.state(), worker.url);
}

// ... and is asked for with a look each second: not while an update prepares, whose own flush comes.
bool flushes_soon(Context& context, const Worker& worker) {
  if (!is_flush_due(context, worker) || worker.owes_flush->tries >= limits::kOwedFlushTriesSoon) return false;
  const Update* active = context.find_update(context.state().pairs.at(worker.pair).active);
  return worker.watch.failures == 0 && (!active || active->state >= UpdateState::resuming);
}

// Somebody else's pause is counted, so its end is to be known soon: most end with what they were for.
bool may_be_continued_soon(Context& context, const Worker& worker) {
  constexpr int kLooksSoon = 10;  // each second; after them it is left to the idle looks
  const bool holds = worker.paused_by_other && serves(worker) && worker.watch.holds < kLooksSoon;
  return holds && worker.watch.failures == 0 && !worker.pair.empty() &&
         context.state().pairs.at(worker.pair).spec.policy.pause != PauseOwner::caller;
}

// How long until the worker is looked at again.
Milliseconds period_of(Context& context, const Worker& worker) {
  constexpr int kDoublingsMax = 10;
  const State& state = context.state();
  const Milliseconds grown = state.watch_period * (1 << std::min(worker.watch.failures, kDoublingsMax));
  const bool waits = worker.state == WorkerState::joining && !is_dormant(state.pairs.at(worker.pair), context.now());
  if (waits || worker.state == WorkerState::quarantined) return std::min<Milliseconds>(grown, limits::kWatchBackOffMax);
  const bool soon = flushes_soon(context, worker) || may_be_continued_soon(context, worker);
  if (soon) return std::min(state.watch_period, state.idle_watch_period);
  // One that doesn't answer may be on its way back, or up.
  return worker.watch.failures > 0 || !was_read(worker) ? std::min(grown, state.idle_watch_period)
                                                        : state.idle_watch_period;
}

// Looks at workers that serve are made together, once a second: a loop that wakes for each of a thousand costs more
// than what it then does.
void look_later(Context& context, Worker& worker) {
  constexpr std::int64_t kTickMs = 1000;
  Milliseconds after = jittered(context.state().next_id, worker.url, period_of(context, worker));
  const bool is_seldom = after > Milliseconds(limits::kIdleWatchPeriod) / 2;
  if (is_seldom) after += Milliseconds(kTickMs - 1 - (context.now() + after).ms % kTickMs);
  set_timer(context, worker, after);
}

bool is_watched(Context& context, const Worker& worker) {
  if (is_for_adapters_only(context.state(), worker))
    return !context.state().stopping && worker.dialect.has_value() && is_shared(context.state(), worker.url);
  const auto pair = context.state().pairs.find(worker.pair);
  if (context.state().stopping || pair == context.state().pairs.end() || is_superseded(pair->second)) return false;
  return worker.state != WorkerState::abandoned && worker.state != WorkerState::gone;
}

bool is_in_update(Context& context, const Worker& worker) {
  if (worker.in_flight || !worker.locked_by.empty()) return true;
  if (worker.pair.empty()) return false;
  const Update* active = context.find_update(context.state().pairs.at(worker.pair).active);
  return active && is_in_hand(*active, worker.url);
}

// Light for one that serves: its label and whether it is paused. The label of most new processes is another one.
void look(Context& context, Worker& worker) {
  const bool others =
      !worker.pair.empty() && is_for_adapters_only(context.state(), worker) && !must_be_identified(worker);
  Operation reading = others ? Operation{} : next_reading(context, worker);
  Watch& watch = worker.watch;
  watch.whole = watch.whole || !serves(worker) || worker.load_since_read || reading.kind != OperationKind::read_state ||
                ++watch.brief_looks >= limits::kIdleLooksPerWhole;
  reading.brief = !watch.whole;
  reading.doubt_pause = watch.whole && may_be_probed(context, worker) && serves(worker) && !worker.paused_by_us &&
                        !worker.paused_by_other;
  context.call_between_updates(worker, std::move(reading));
  set_timer(context, worker, context.state().watch_read_timeout);
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
  if (worker.paused_by_us || worker.touched) return false;
  const CauseCode why = worker.cause ? worker.cause->code : CauseCode::load_unknown;
  const bool joined = why == CauseCode::restarted;
  const bool out_of_reach = why == CauseCode::unreachable || why == CauseCode::credentials;
  // Without a pause no label says that a load has begun.
  if (!joined && (!out_of_reach || pair.spec.policy.pause == PauseOwner::never)) return false;
  if (!worker.version) return worker.labels.empty() && reading.label == worker.start_label;
  const std::string& label = worker.version->label;
  const bool settled = worker.labels.empty() || (worker.labels.size() == 1 && worker.labels.front() == label);
  return pair.committed && worker.version->same_version(*pair.committed) && settled && reading.label == label;
}

void hold(Context& context, Worker& worker, const StateReading& reading) {
  const Pair& pair = context.state().pairs.at(worker.pair);
  if (pair.spec.policy.pause == PauseOwner::caller || may_run(pair, worker, reading))
    return look_later(context, worker);
  if (mutant(Mutant::watch_is_blind) || !may_be_held(context, worker)) return look_later(context, worker);
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

// It may serve as it is: nothing was done to it since it was known to hold what it should. It was only out of reach, or
// drained; or its pair has no version yet, and it is a process that holds its start model.
bool is_whole(const Pair& pair, const Worker& worker, const StateReading& reading) {
  if (worker.paused_by_us || worker.touched || !worker.earlier.empty() || is_held(worker)) return false;
  if (!has_its_memory(worker)) return false;
  const CauseCode why = worker.cause ? worker.cause->code : CauseCode::restarted;
  const bool kept_out = why == CauseCode::unreachable || why == CauseCode::credentials || why == CauseCode::restarted ||
                        why == CauseCode::operator_hold;
  if (!kept_out) return false;
  if (!pair.committed) return !worker.version && worker.labels.empty() && reading.label == worker.start_label;
  const bool holds_it = worker.version && worker.version->same_version(*pair.committed);
  const bool settled = worker.labels.size() == 1 && worker.labels.front() == reading.label;
  // Without a pause no label says that a load has begun.
  return holds_it && settled && reading.label == worker.version->label && pair.spec.policy.pause != PauseOwner::never;
}

// Paused by us, and nothing can bring it back for now: it is out of service with its cause, not merely on its way.
bool hold_if_hopeless(Context& context, Worker& worker) {
  const Pair& pair = context.state().pairs.at(worker.pair);
  const bool has_goal = join_goal(pair, worker).has_value();
  if (!worker.earlier.empty()) {
    context.set_worker(worker, WorkerState::quarantined,
                       context.cause(CauseCode::outstanding,
                                     "an earlier call may still run in it, and only a restart ends the doubt"));
    return true;
  }
  if (has_goal && !is_dormant(pair, context.now())) return false;
  const std::string before = worker.cause ? worker.cause->message + "; " : "";
  context.set_worker(
      worker, WorkerState::quarantined,
      has_goal ? context.cause(CauseCode::lagging, before + "its pair is not in use (pair_lease)")
               : context.cause(
                     CauseCode::no_last_good,
                     before + (shares_devices(pair) ? "it shares its device with a trainer, so only an update loads it"
                                                    : "nothing to bring it to: " + pair.rollback_reason)));
  return true;
}

// It may not serve as it is known, and it was read: it is brought back if it can be, and held otherwise.
void cure(Context& context, Worker& worker, const StateReading& reading) {
  const Pair& pair = context.state().pairs.at(worker.pair);
  if (is_whole(pair, worker, reading)) {
    // It may lag behind what comes of an update, or be another gateway's.
    if (is_taken(context, pair) || is_being_claimed(context, pair)) return look_later(context, worker);
    return context.set_worker(worker, WorkerState::ready);
  }
  if (hold_if_suspect(context, worker)) return;
  if (hold_if_unprovable(context, worker))
    return reading.paused ? look_later(context, worker) : hold(context, worker, reading);
  if (may_join(context, worker)) {
    if (!is_listed(context, worker)) return look_later(context, worker);
    if (!reading.paused && worker.paused_by_us)
      tell_that_it_runs(context, worker, "it was continued although it may not serve; it is brought back");
    return begin_join(context, worker, reading);
  }
  // What a former owner's list says that it holds is ours to hold until it could be read.
  const bool ours = worker.paused_by_us || (worker.taken_over && worker.taken_over->held);
  if (worker.state == WorkerState::joining && ours && hold_if_hopeless(context, worker)) return;
  if (reading.paused || worker.state == WorkerState::joining) return look_later(context, worker);
  hold(context, worker, reading);
}

void become_foreign(Context& context, Worker& worker, const std::string& label) {
  context.set_worker(
      worker, WorkerState::foreign,
      context.cause(CauseCode::foreign, fmt::format("its label became '{}', which this gateway did not write", label)));
}

// Somebody else paused a worker that serves. That is theirs; it is told once.
void tell_foreign_pause(Context& context, Worker& worker) {
  const Pair& pair = context.state().pairs.at(worker.pair);
  if (!worker.paused_by_other) return worker.watch.told_at.reset();
  if (worker.watch.told_at || !pair.active.empty() || pair.spec.policy.pause == PauseOwner::caller) return;
  worker.watch.told_at = context.now();
  context.record(
      RecordKind::worker_state, worker.pair, "", worker.url,
      {{"state", std::string(kPausedByOther)}, {"message", "it is paused, and not by this gateway; left alone"}});
}

// An update that begins meanwhile forgets the call: it holds nothing up, and nothing that follows depends on whether it
// ran. So its intent needs no record either; that it is owed is one.
void ask_for_flush(Context& context, Worker& worker) {
  if (is_taken(context, context.state().pairs.at(worker.pair)) || !may_act(context, worker.pair)) return;
  ++worker.owes_flush->tries;
  Operation operation;
  operation.kind = OperationKind::flush;
  operation.pause_mode = PauseMode::keep;
  context.call_between_updates(worker, std::move(operation));
  set_timer(context, worker, context.state().watch_read_timeout);
}

// The look at one that serves. What is strange in a brief reading is read whole before anything follows from it.
void on_serving_look(Context& context, Worker& worker, const StateReading& reading) {
  const bool ours = label_is_ours(worker, reading.label);
  const bool was_whole = std::exchange(worker.watch.whole, false);
  if (!was_whole && (!ours || (reading.paused && !worker.paused_by_other))) {
    worker.watch.whole = true;
    return look(context, worker);
  }
  if (was_whole) worker.watch.brief_looks = 0;
  worker.paused_by_other = reading.paused && !worker.paused_by_us;
  worker.watch.holds = worker.paused_by_other ? worker.watch.holds + 1 : 0;
  if (worker.state == WorkerState::ready && worker.earlier.empty() && !ours)
    return become_foreign(context, worker, reading.label);
  if (reading.paused && worker.paused_by_us) {                  // a pause that came late
    const bool drains = worker.state == WorkerState::draining;  // and gets nothing new, so its operator has the word
    const Cause cause = drains ? context.cause(CauseCode::operator_hold, kPausedWhileDraining)
                               : context.cause(CauseCode::resume_failed, "a pause of this gateway holds it");
    context.set_worker(worker, WorkerState::quarantined, cause);
    context.emit(Fence{worker.url, worker.pair, cause});
    return cure(context, worker, reading);
  }
  tell_foreign_pause(context, worker);
  look_later(context, worker);
  if (worker.state == WorkerState::ready && !reading.paused) begin_adapter_join(context, worker, worker.incarnation);
  if (is_flush_due(context, worker) && !is_in_update(context, worker)) ask_for_flush(context, worker);
}

// People see why in the worker's status. One that came to the pair and isn't there is told once, too: its URL may be
// wrong.
void note_trouble(Context& context, Worker& worker, CauseCode code, std::string_view why) {
  constexpr int kTellAt = 2;  // one look may be missed
  Watch& watch = worker.watch;
  const Instant since = watch.trouble ? watch.trouble->since : context.now();
  watch.trouble = Cause{code, std::string(why), since};
  const bool is_awaited = worker.state == WorkerState::ready || worker.state == WorkerState::joining;
  if (was_read(worker) || !is_awaited || watch.failures != kTellAt) return;
  context.record(RecordKind::worker_state, worker.pair, "", worker.url,
                 {{"state", std::string(kNotReached)}, {"message", fmt::format("not reached yet: {}", why)}});
}

// A busy engine misses a look or two; one that is silent for longer gets no more requests until it answers. One that
// was never read got none yet: it may be on its way up, and nothing is taken from it.
void on_failed_look(Context& context, Worker& worker, CauseCode code, std::string_view why) {
  if (is_brought_up(context.state(), worker.url)) return look_later(context, worker);
  ++worker.watch.failures;
  const bool silent = worker.watch.failures >= limits::kSilentLooks;
  const bool answers_strangely = worker.dialect && must_be_identified(worker);
  if (answers_strangely && worker.watch.failures < limits::kSilentLooks) return look(context, worker);
  // By another dialect's routes an engine can be silent, too (SGLang's for the start time takes vLLM ten seconds).
  if (worker.watch.failures % limits::kSilentLooks == 0) worker.strange_readings = limits::kStrangeReadings;
  const bool adapters_only = is_for_adapters_only(context.state(), worker);
  if (!adapters_only) note_trouble(context, worker, code, why);
  const bool may_be_fenced = adapters_only || (worker.state == WorkerState::ready && was_read(worker));
  if (!silent || !may_be_fenced) return look_later(context, worker);
  const Cause cause = context.cause(
      CauseCode::unreachable, fmt::format("{} looks in a row had no answer; the last: {}", worker.watch.failures, why));
  if (adapters_only) {
    if (worker.watch.failures == limits::kSilentLooks) fence_silent(context, worker, cause);
    return look_later(context, worker);
  }
  context.set_worker(worker, WorkerState::quarantined, cause);
  context.emit(Fence{worker.url, worker.pair, cause});
}

void on_base_look(Context& context, Worker& worker, const StateReading& reading) {
  if (std::exchange(worker.watch.whole, false)) worker.watch.brief_looks = 0;
  // Of a model that is another gateway's the registry stays as it is: whoever takes it back reads the worker whole.
  const bool is_new = !worker.pair.empty() && !reading.incarnation.empty() && reading.incarnation != worker.incarnation;
  if (is_new) {  // nothing that was sent before runs in it
    context.reset_earlier(worker);
    worker.earlier.clear();
  }
  if (worker.pair.empty() && !reading.incarnation.empty()) worker.incarnation = reading.incarnation;
  look_later(context, worker);
  begin_adapter_join(context, worker, reading.incarnation.empty() ? worker.incarnation : reading.incarnation);
}

void on_look(Context& context, Worker& worker, const EarlierCall& call, const Outcome& outcome) {
  const bool refused_key = outcome.code == ErrorCode::permission_denied;
  if (!outcome.ok())
    return on_failed_look(context, worker, refused_key ? CauseCode::credentials : CauseCode::unreachable, outcome.text);
  const bool is_asked_again = call.kind == OperationKind::identify && worker.seen_as;
  if (is_asked_again) return look(context, worker);  // that its readings failed is forgotten when one is answered
  worker.watch.failures = 0;
  if (call.kind == OperationKind::identify && worker.dialect && serves(worker)) return look(context, worker);
  if (call.kind == OperationKind::identify || !outcome.reading) return look_later(context, worker);
  const StateReading& reading = *outcome.reading;
  worker.watch.trouble.reset();
  if (is_for_adapters_only(context.state(), worker)) return on_base_look(context, worker, reading);
  if (call.kind == OperationKind::barrier) worker.earlier.clear();
  const bool is_new = worker.watch.whole && observe(context, worker, reading);
  if (is_new || call.kind == OperationKind::barrier) collect_unleased(context, worker.pair);
  if (serves(worker)) return on_serving_look(context, worker, reading);
  worker.watch.whole = false;
  if (worker.state == WorkerState::foreign) return look_later(context, worker);
  const bool operator_said = worker.cause && worker.cause->code == CauseCode::operator_hold;  // held, or released
  if (!is_new && worker.earlier.empty() && !operator_said && !label_is_ours(worker, reading.label))
    return become_foreign(context, worker, reading.label);
  cure(context, worker, reading);
}

}  // namespace

Milliseconds jittered(std::uint64_t salt, const std::string& worker, Milliseconds period) {
  const auto spread = static_cast<std::int64_t>(mixed(salt, worker) % (2 * limits::kWatchJitterPermille + 1));
  return period * (1000 - limits::kWatchJitterPermille + spread) / 1000;
}

void end_watch(Context& context, Worker& worker) {
  context.give_up_watch(worker);
  cancel_timer(context, worker);
}

void begin_watch(Context& context, Worker& worker) {
  worker.watch.failures = 0;
  worker.watch.continues = worker.watch.holds = 0;
  worker.watch.told_at.reset();
  if (worker.watch.call || !is_watched(context, worker)) return;
  if (!serves(worker) || !worker.watch.timer || worker.owes_flush || worker.paused_by_other)
    look_later(context, worker);
}

void note_dialect(Context& context, Worker& worker, DialectKind dialect) {
  const bool was_known = worker.dialect.has_value();
  worker.dialect = dialect;
  if (was_known || worker.watch.timer || worker.watch.call) return;
  worker.pair.empty() ? watch_for_adapters(context, worker) : begin_watch(context, worker);
}

void look_soon(Context& context, Worker& worker, Milliseconds within) {
  worker.watch.whole = true;
  if (!was_read(worker) && !worker.watch.trouble)
    worker.watch.trouble = context.cause(CauseCode::unreachable, "no look at it has ended");
  if (worker.watch.call || !is_watched(context, worker)) return;
  const auto spread = static_cast<std::int64_t>(mixed(context.state().next_id, worker.url)) % (within.count() + 1);
  set_timer(context, worker, Milliseconds(spread));
}

void on_watch_timer(Context& context, TimerId timer, const std::string& url) {
  const auto found = context.state().workers.find(url);
  if (found == context.state().workers.end() || found->second.watch.timer != timer) return;  // it left the registry
  Worker& worker = found->second;
  worker.watch.timer.reset();
  if (worker.watch.call) {  // no answer in time
    context.give_up_watch(worker);
    if (is_watched(context, worker)) on_failed_look(context, worker, CauseCode::unreachable, "no answer in time");
    return;
  } else if (is_watched(context, worker) && !is_in_update(context, worker)) {
    return look(context, worker);
  }
  if (is_watched(context, worker)) look_later(context, worker);
}

void on_watch_call(Context& context, Worker& worker, const EarlierCall& call, const Outcome& outcome) {
  worker.watch.call.reset();
  cancel_timer(context, worker);
  if (!is_watched(context, worker)) return;
  if (call.kind == OperationKind::flush) {
    const bool is_silent = outcome.kind == OutcomeKind::not_sent || outcome.kind == OutcomeKind::unknown;
    return is_silent ? on_failed_look(context, worker, CauseCode::unreachable, outcome.text)
                     : look_later(context, worker);
  }
  if (call.kind != OperationKind::pause) return on_look(context, worker, call, outcome);
  worker.watch.failures = outcome.ok() ? 0 : worker.watch.failures + 1;
  look_later(context, worker);
}

void yield_watch(Context& context, Worker& worker) {
  if (!worker.watch.call) return;
  context.give_up_watch(worker);
  cancel_timer(context, worker);
  if (is_watched(context, worker)) look_later(context, worker);
}

}  // namespace weighlock::protocol
