#include "weighlock/protocol/context.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/check.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {

bool can_barrier_all(const DialectTraits& traits, const Worker& worker) {
  return std::all_of(worker.earlier.begin(), worker.earlier.end(), [&](const EarlierCall& e) {
    if (e.unpaused && e.kind == OperationKind::load && traits.load_barrier_needs_pause) return false;
    return traits.has_barrier(e.kind, e.pause_mode);
  });
}

std::string version_key(const VersionRef& version) {
  return fmt::format("{}/{}", version.lineage, version.version);
}

bool trusts_answers(const Update& update) {
  return update.policy.evidence == Evidence::acknowledged;
}

bool may_read_briefly(const Update& update, const Target& target, const Worker& worker) {
  if (!trusts_answers(update) || target.read_whole || worker.labels.empty()) return false;
  if (!update.transfer || update.state >= UpdateState::loading) return true;
  // A group is of processes, not of URLs. A label that only we write tells them apart, once the process that has it was
  // read behind the load.
  return !worker.load_since_read && worker.labels.size() == 1 && worker.labels.front() != worker.start_label;
}

bool may_be_another(const Context& context, const Target& target) {
  constexpr Milliseconds kStartsAnew{1000};  // an engine that ends and serves again within it isn't known
  return context.now() - target.called_at > kStartsAnew;
}

Pair& Context::pair_of(const Update& update) {
  const auto it = state_.pairs.find(update.pair);
  WEIGHLOCK_CHECK(it != state_.pairs.end(), "an update outlives its pair");
  return it->second;
}

Worker& Context::worker_of(const Target& target) {
  const auto it = state_.workers.find(target.worker);
  WEIGHLOCK_CHECK(it != state_.workers.end(), "a target outlives its worker");
  return it->second;
}

const DialectTraits& Context::traits_of(const Worker& worker) const {
  WEIGHLOCK_CHECK(worker.dialect.has_value(), "the dialect is asked for before it was found");
  return dialects_.of(*worker.dialect);
}

Update* Context::find_update(const UpdateId& id) {
  const auto it = state_.updates.find(id);
  return it == state_.updates.end() ? nullptr : &it->second;
}

void Context::record(RecordKind kind, const std::string& pair, const UpdateId& update, const std::string& worker,
                     json::object body) {
  emit(Append{Record{kind, pair, update, worker, std::move(body)}});
}

void Context::record(RecordKind kind, const Update& update, const std::string& worker, json::object body) {
  record(kind, update.pair, update.id, worker, std::move(body));
}

void Context::start_timer(Update& update, std::string purpose, Milliseconds after) {
  cancel_timer(update, purpose);
  const TimerId id = state_.next_id++;
  update.timers[id] = std::move(purpose);
  state_.timers[id] = update.id;
  emit(StartTimer{id, after});
}

void Context::cancel_timer(Update& update, std::string_view purpose) {
  for (auto it = update.timers.begin(); it != update.timers.end();) {
    if (it->second == purpose) {
      emit(CancelTimer{it->first});
      state_.timers.erase(it->first);
      it = update.timers.erase(it);
    } else {
      ++it;
    }
  }
}

void Context::cancel_all_timers(Update& update) {
  for (const auto& [id, purpose] : update.timers) {
    emit(CancelTimer{id});
    state_.timers.erase(id);
  }
  update.timers.clear();
}

void Context::record_intent(const std::string& pair, const Update* update, const std::string& worker,
                            const Operation& operation, bool unpaused, std::optional<CallId> call) {
  json::object body{{"operation", std::string(name(operation.kind))}};
  if (call) body["call"] = *call;
  if (update) body["attempt"] = update->attempt;
  if (!operation.label.empty()) body["label"] = operation.label;
  if (!operation.directory.empty()) body["directory"] = operation.directory;
  if (operation.pause_mode != PauseMode::abort) body["mode"] = std::string(name(operation.pause_mode));
  if (!operation.memory.empty()) body["memory"] = operation.memory;
  if (unpaused) body["unpaused"] = true;
  record(RecordKind::intent, pair, update ? update->id : UpdateId(), worker, std::move(body));
}

void Context::intend(const Update& update, Target& target, const Operation& operation) {
  const bool unpaused = !target.paused && !target.was_paused;
  record_intent(update.pair, &update, target.worker, operation, unpaused, std::nullopt);
  target.intended.push_back(operation.kind);
}

void Context::call(Update& update, Target& target, Step step, Operation operation) {
  WEIGHLOCK_CHECK(!target.call, "a target waits for one call");
  yield_watch(*this, worker_of(target));
  target.step = step;
  target.called_at = now_;
  ++update.waiting;
  const bool unpaused = !target.paused && !target.was_paused;
  const auto intended = std::find(target.intended.begin(), target.intended.end(), operation.kind);
  const bool intent_durable = intended != target.intended.end();
  if (intent_durable) {
    target.intended.erase(intended);
  } else if (changes_something(operation.kind)) {
    target.intended.clear();  // to whoever reads the journal, a new intent ends what was planned before it
  }
  // What is healed may end torn under the label that the list says it is whole under.
  const bool is_told = operation.kind == OperationKind::pause || step == Step::heal_loading;
  target.call = send(worker_of(target), &update, unpaused, std::move(operation), intent_durable);
  if (is_told) list_pause(*this, update.pair);
}

void Context::call_between_updates(Worker& worker, Operation operation) {
  const bool is_owed = operation.kind == OperationKind::flush;
  worker.watch.call = send(worker, nullptr, false, std::move(operation), is_owed);
}

CallId Context::send(Worker& worker, const Update* update, bool unpaused, Operation operation, bool intent_durable) {
  WEIGHLOCK_CHECK(!worker.in_flight, "one operation at a time per worker");
  const CallId id = state_.next_id++;
  const UpdateId update_id = update ? update->id : UpdateId();
  EarlierCall sent{.call = id,
                   .kind = operation.kind,
                   .pause_mode = operation.pause_mode,
                   .may_answer = true,
                   .held_before = worker.paused_by_us,
                   .unpaused = unpaused,
                   .carries_label = !operation.label.empty(),
                   .resumes_memory = !operation.memory.empty()};
  note_cache_effect(sent, !operation.directory.empty(), update, worker.dialect ? &traits_of(worker) : nullptr);
  state_.calls[id] = {update_id, worker.url};
  if (changes_something(operation.kind) && !intent_durable)
    record_intent(update ? update->pair : worker.pair, update, worker.url, operation, unpaused, id);
  const bool writes_label =
      operation.kind == OperationKind::set_label ||
      (operation.kind == OperationKind::load && sent.carries_label && traits_of(worker).load_sets_label);
  note_sent(worker, sent, operation.label, writes_label);
  const auto dialect = operation.kind == OperationKind::identify ? std::nullopt : worker.dialect;
  emit(Call{id, worker.url, dialect, std::move(operation), update_id, intent_durable});
  return id;
}

void Context::give_up(Target& target) {
  target.intended.clear();  // what was planned behind the call isn't any more
  if (!target.call) return;
  if (state_.adapter_calls.contains(*target.call)) return give_up_adapter_call(*this, target);
  Worker& worker = worker_of(target);
  WEIGHLOCK_CHECK(worker.in_flight && worker.in_flight->call == *target.call, "the target's call is the worker's call");
  if (Update* update = find_update(state_.calls[*target.call].first)) --update->waiting;
  target.call.reset();
  set_aside(worker);
}

void Context::give_up_watch(Worker& worker) {
  if (!worker.watch.call) return;
  WEIGHLOCK_CHECK(worker.in_flight && worker.in_flight->call == *worker.watch.call, "the watch's call is the worker's");
  worker.watch.call.reset();
  set_aside(worker);
}

void Context::set_aside(Worker& worker) {
  const EarlierCall running = *worker.in_flight;
  worker.in_flight.reset();
  if (leaves_doubt(running)) {
    worker.earlier.push_back(running);
    state_.calls[running.call].first.clear();
  } else {
    state_.calls.erase(running.call);
    emit(Cancel{running.call});
  }
}

void Context::reset_earlier(Worker& worker) {
  for (EarlierCall& earlier : worker.earlier) {
    if (!earlier.may_answer) continue;
    earlier.may_answer = false;
    state_.calls.erase(earlier.call);
    emit(Cancel{earlier.call});
  }
}

void Context::set_state(Update& update, UpdateState state) {
  if (update.state == state) return;
  if (!update.phases.empty()) update.phases.back().took = now_ - update.phases.back().began;
  update.state = state;
  if (is_terminal(state)) return;
  update.phases.push_back(PhaseTime{state, now_, Milliseconds{0}});
  json::object body{{"state", std::string(name(state))}};
  if (update.kind == UpdateKind::join) body["kind"] = std::string(name(update.kind));
  if (update.error)
    body["error"] = {{"code", std::string(info(update.error->code).type)}, {"message", update.error->text()}};
  record(RecordKind::update_phase, update, "", std::move(body));
  epoch_at_phase(*this, update);
}

void Context::set_worker(Worker& worker, WorkerState state, std::optional<Cause> why) {
  const bool lasting =
      state == WorkerState::ready || state >= WorkerState::quarantined || state == WorkerState::joining;
  const bool new_reason =
      why && (why->code == CauseCode::operator_hold || (worker.cause && worker.cause->code != why->code));
  const bool changed = worker.state != state || worker.cause.has_value() != why.has_value() || new_reason;
  worker.state = state;
  worker.cause = std::move(why);
  if (state == WorkerState::ready && worker.owes_flush && !worker.owes_flush->since) worker.owes_flush->since = now_;
  if (state == WorkerState::ready) worker.touched = false;
  if (state == WorkerState::ready) worker.joins = JoinHistory{};
  if (lasting) begin_watch(*this, worker);
  if (!lasting || !changed) return;
  json::object body{{"state", std::string(name(state))}};
  if (worker.version) {
    body["lineage"] = worker.version->lineage;
    body["version"] = worker.version->version;
    body["evidence"] = std::string(name(worker.evidence));
  }
  if (worker.cause)
    body["cause"] = {{"code", std::string(name(worker.cause->code))}, {"message", worker.cause->message}};
  record(RecordKind::worker_state, worker.pair, worker.locked_by, worker.url, std::move(body));
}

}  // namespace weighlock::protocol
