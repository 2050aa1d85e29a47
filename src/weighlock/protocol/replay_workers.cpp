// The part of the replay that is about trainers and workers: their calls, and what became of them.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/replay.hpp"
#include "weighlock/protocol/spec_record.hpp"
#include "weighlock/protocol/worker_calls.hpp"

namespace weighlock::protocol {
namespace {

OperationKind operation_of(JsonMembers body) {
  return enum_from(text_of(body, "operation"), OperationKind::barrier, OperationKind::read_state);
}

// What a worker's own call did to the target that it was sent for.
void note_intent(Target& target, OperationKind kind) {
  switch (kind) {
    case OperationKind::pause:
      target.pause_sent = true;
      target.was_paused = false;  // whoever had paused it had continued it: this one is ours to undo
      break;
    case OperationKind::set_label:
      if (target.step == Step::done) target.step = Step::judged;  // quarantined as it was found, and then healed
      target.label_changed = true;
      break;
    case OperationKind::load:
    case OperationKind::load_empty:
      if (target.step == Step::done) target.step = Step::judged;
      target.may_have_loaded = target.load_sent && (target.may_have_loaded || target.verdict != Verdict::untouched);
      target.load_sent = true;
      target.verdict = Verdict::unknown;
      break;
    case OperationKind::resume:
      target.resume_sent = true;
      break;
    default:
      break;
  }
}

void note_outcome(Target& target, OperationKind kind, OutcomeKind result, const std::string& label, Instant at) {
  const bool without_effect = result == OutcomeKind::untouched || result == OutcomeKind::not_sent;
  switch (kind) {
    case OperationKind::pause:
      if (result == OutcomeKind::ok) target.paused_at = at;
      break;
    case OperationKind::resume:
      if (result == OutcomeKind::ok) target.resumed_at = at;
      break;
    case OperationKind::set_label:
      // Not written before any load, or the former label is back.
      if ((without_effect && !target.load_sent) || (result == OutcomeKind::ok && label == target.former_label))
        target.label_changed = false;
      break;
    case OperationKind::load:
    case OperationKind::load_empty:
      // One without effect says nothing of the load before it.
      target.verdict = result == OutcomeKind::ok        ? Verdict::loaded
                       : result == OutcomeKind::touched ? Verdict::torn
                       : without_effect                 ? (target.may_have_loaded ? Verdict::torn : Verdict::untouched)
                                                        : Verdict::unknown;
      break;
    default:
      break;
  }
}

}  // namespace

// --- trainers

void Replay::save_intent(const Record& record, Instant at) {
  const json::object& body = record.body;
  Update* update = update_of(record);
  if (!update) return;
  update->version.directory = text_of(body, "directory");
  update->save_path = text_of(body, "save_path");
  update->directory_made = true;
  for (const json::value& rank : list_of(body, "ranks")) {
    if (!rank.is_string()) continue;
    const std::string url(rank.get_string());
    update->ranks.push_back(Rank{url, 0, false, SaveOutcomeKind::unknown, ""});
    state_.busy[url] = TrainerBusy{update->id, update->save_path, 0, at, update->version.directory};
  }
}

void Replay::save_ended(const Record& record) {
  const json::object& body = record.body;
  const std::string trainer(text_of(body, "trainer"));
  const auto busy = state_.busy.find(trainer);
  if (busy != state_.busy.end() && busy->second.update == record.update && !flag_of(body, "may_run"))
    state_.busy.erase(busy);
  Update* update = update_of(record);
  if (!update) return;
  for (Rank& rank : update->ranks) {
    if (rank.trainer != trainer) continue;
    rank.ended = true;
    rank.kind = flag_of(body, "ok") ? SaveOutcomeKind::ok : SaveOutcomeKind::failed;
    rank.text = text_of(body, "text");
  }
}

// --- workers

bool Replay::writes_label(const Worker& worker, const EarlierCall& call) const {
  if (call.kind == OperationKind::set_label) return true;
  return call.kind == OperationKind::load && call.carries_label && worker.dialect &&
         dialects_.of(*worker.dialect).load_sets_label;
}

void Replay::begin_call(const Record& intent, CallId call) {
  const json::object& body = intent.body;
  Worker& worker = worker_of(intent);
  // One at a time: whatever ran before was given up.
  if (worker.in_flight) worker.earlier.push_back(*worker.in_flight);
  EarlierCall sent;
  sent.call = call;
  sent.kind = operation_of(body);
  sent.pause_mode = pause_mode_from(text_of(body, "mode")).value_or(PauseMode::abort);
  sent.may_answer = true;
  sent.held_before = worker.paused_by_us;
  sent.unpaused = flag_of(body, "unpaused");
  in_flight_of_[intent.worker] = intent.update;
  sent.carries_label = !text_of(body, "label").empty();
  sent.resumes_memory = !text_of(body, "memory").empty();
  note_cache_effect(sent, !text_of(body, "directory").empty(), update_of(intent),
                    worker.dialect ? &dialects_.of(*worker.dialect) : nullptr);
  note_sent(worker, sent, std::string(text_of(body, "label")), writes_label(worker, sent));
  if (const Update* update = update_of(intent); update && update->transfer && sent.kind == OperationKind::load) {
    worker.version.reset();  // from the collective's beginning on nothing shows what it holds
    worker.evidence = Evidence::none;
  }
  if (Target* target = target_of(intent)) note_intent(*target, sent.kind);
}

// Of a colocated pair's update, whose worker's memory is in other hands: what it holds is as little known as in the
// midst of a transfer.
void Replay::memory_released(const Record& record, const std::string& url) {
  const auto worker = state_.workers.find(url);
  Update* update = update_of(record);
  if (worker == state_.workers.end() || !update) return;
  worker->second.memory = EngineMemory::released;
  worker->second.version.reset();
  worker->second.evidence = Evidence::none;
  const auto target = update->targets.find(url);
  if (target == update->targets.end()) return;
  target->second.load_sent = true;
  target->second.verdict = Verdict::torn;
}

// The worker's next record isn't an answer to a planned step: the first one was sent and given up, if the step before
// it was answered; the others never came to it.
void Replay::settle_planned(const std::string& url) {
  const auto plans = planned_.find(url);
  if (plans == planned_.end()) return;
  const auto worker = state_.workers.find(url);
  if (worker != state_.workers.end() && !worker->second.in_flight) begin_call(plans->second.front(), 0);
  planned_.erase(plans);
}

void Replay::intent(const Record& record) {
  const json::object& body = record.body;
  if (!find(body, "call")) {
    planned_[record.worker].push_back(record);
    return;
  }
  settle_planned(record.worker);
  const auto call = static_cast<CallId>(number_of(body, "call"));
  state_.next_id = std::max(state_.next_id, call + 1);
  begin_call(record, call);
}

void Replay::outcome(const Record& record, Instant at) {
  const json::object& body = record.body;
  Worker& worker = worker_of(record);
  Outcome outcome;
  outcome.kind = enum_from(text_of(body, "result"), OutcomeKind::not_sent, OutcomeKind::unknown);
  if (flag_of(body, "read")) outcome.reading.emplace();
  const auto call = static_cast<CallId>(number_of(body, "call"));
  const OperationKind kind = operation_of(body);
  if (flag_of(body, "owed")) return worker.owes_flush.reset();  // the watch's flush, and it succeeded
  if (const auto plans = planned_.find(record.worker); plans != planned_.end() && changes_something(kind)) {
    const bool is_first = operation_of(plans->second.front().body) == kind;
    if (is_first && !(worker.in_flight && worker.in_flight->call == call)) {
      begin_call(plans->second.front(), call);
      plans->second.pop_front();
    }
    if (plans->second.empty() || outcome.kind != OutcomeKind::ok) planned_.erase(plans);  // nothing follows a failure
  }
  // Without an update it is late, unless the watch had sent it, between updates.
  const bool is_late = record.update.empty() && kind != OperationKind::barrier && !in_flight_of_[record.worker].empty();
  if (is_late && worker.in_flight && worker.in_flight->call == call)
    worker.earlier.push_back(*std::exchange(worker.in_flight, std::nullopt));
  if (is_late) {
    note_late(worker, call, outcome.kind);
    return;
  }
  const std::string label = worker.labels.empty() ? std::string() : worker.labels.back();  // what a label step wrote
  if (worker.in_flight && worker.in_flight->call == call) {
    note_ended(worker, EarlierCall(*worker.in_flight), outcome, writes_label(worker, *worker.in_flight));
  } else if (kind == OperationKind::barrier) {
    EarlierCall barrier;
    barrier.kind = kind;
    // What was given up before it went out has ended with the rest.
    if (worker.in_flight) worker.earlier.push_back(*std::exchange(worker.in_flight, std::nullopt));
    note_ended(worker, barrier, outcome, false);
  }
  Target* target = target_of(record);
  if (!target) return;
  note_outcome(*target, kind, outcome.kind, label, at);
  // Whoever was not reached by a collective is no better known than its other members.
  const Update* update = update_of(record);
  const bool of_collective = update && update->transfer && kind == OperationKind::load;
  if (of_collective && target->verdict == Verdict::untouched) target->verdict = Verdict::torn;
  if (kind != OperationKind::load && kind != OperationKind::load_empty) return;
  target->needs_restart = flag_of(body, "needs_restart");
  if (target->needs_restart)
    target->cause =
        Cause{CauseCode::needs_restart, fmt::format("{}: {}", name(kind), std::string(text_of(body, "text"))), at};
}

// The version that a record names by its numbers.
VersionRef Replay::version_of(const Worker& worker, std::int64_t lineage, std::int64_t version) {
  VersionRef out{lineage, version, "", "", ""};
  const auto pair = state_.pairs.find(worker.pair);
  if (lineage == 0) {
    out.directory = worker.start_path;
    out.label = pair == state_.pairs.end() ? worker.start_label
                                           : start_model_label(pair->second.spec.policy.label_format, worker);
    return out;
  }
  if (pair == state_.pairs.end()) return out;
  for (const auto* known : {&pair->second.committed, &pair->second.last_good, &pair->second.previous_good}) {
    if (*known && (*known)->same_version(out)) return **known;
  }
  for (const StoredVersion& stored : pair->second.stored) {
    if (stored.committed && stored.version.same_version(out)) return stored.version;
  }
  return out;
}

void Replay::verdicts(const Record& record, Instant at) {
  const json::object& body = record.body;
  Update* update = update_of(record);
  if (!update) return;
  for (const json::value& one : list_of(body, "verdicts")) {
    const std::string url(text_of(one, "worker"));
    Target& target = update->targets[url];
    target.worker = url;
    target.verdict = enum_from(text_of(one, "verdict"), Verdict::unknown, Verdict::unknown);
    target.evidence = evidence_from(text_of(one, "evidence")).value_or(Evidence::none);
    target.vacuous = flag_of(one, "vacuous");
    if (flag_of(one, "lost")) {
      target.counted_lost = true;
      target.included = false;
    }
    const auto pair = state_.pairs.find(update->pair);
    if (target.verdict != Verdict::verified) continue;
    target.switched_at = at;
    if (pair != state_.pairs.end() && pair->second.spec.lora) continue;
    Worker& worker = state_.workers[url];
    worker.version = update->version;
    worker.evidence = target.evidence;
  }
}

void Replay::worker_state(const Record& record, Instant at) {
  const json::object& body = record.body;
  const std::string_view word = text_of(body, "state");
  const WorkerState state = enum_from(word, WorkerState::abandoned, WorkerState::ready);
  if (name(state) != word) return;  // a remark ("continued_by_other"), not a state
  Worker& worker = worker_of(record);
  worker.state = state;
  worker.cause = cause_from(find(body, "cause"), at);
  const std::optional<VersionRef> before = std::exchange(worker.version, std::nullopt);
  if (const auto version = find_int(body, "version")) {
    worker.version = version_of(worker, number_of(body, "lineage"), *version);
    // Superseded meanwhile, and nothing lists it (of a blind storage no version is kept): then it is what it was.
    const bool is_listed = !worker.version->directory.empty() || !worker.version->label.empty();
    if (!is_listed && before && before->same_version(*worker.version)) worker.version = before;
  }
  worker.evidence = evidence_from(text_of(body, "evidence")).value_or(Evidence::none);
  if (state == WorkerState::ready) {
    worker.touched = false;
    worker.joins = JoinHistory{};
    worker.paused_by_us = worker.pause_since_read = false;  // it was read, and ran
    if (worker.owes_flush && !worker.owes_flush->since) worker.owes_flush->since = at;
    if (Pair* pair = pair_of(record)) {
      for (auto& [version, workers] : pair->spoiled) workers.erase(worker.url);
    }
  }
  Target* target = target_of(record);
  const bool resolved =
      state == WorkerState::ready || state == WorkerState::quarantined || state == WorkerState::foreign;
  if (!target || !resolved) return;
  target->step = Step::done;
  target->cause = state == WorkerState::ready ? std::nullopt : worker.cause;
  if (state != WorkerState::ready || !worker.version || !target->load_sent) return;
  target->verdict = Verdict::verified;
  const Update* update = update_of(record);
  if (worker.owes_flush && update && update->committed.value_or(false))
    target->cause = Cause{CauseCode::flush_failed, owed_flush_text(""), at};
}

void Replay::worker_seen(const Record& record) {
  const json::object& body = record.body;
  Worker& worker = worker_of(record);
  const bool is_same = worker.incarnation == text_of(body, "incarnation");
  const bool is_first = worker.incarnation.empty() && worker.start_path.empty() && worker.start_label.empty();
  const EngineMemory memory = worker.memory;
  const std::optional<OwedFlush> owed = worker.owes_flush;
  worker.incarnation = text_of(body, "incarnation");
  worker.start_label = text_of(body, "start_label");
  worker.start_path = text_of(body, "start_path");
  worker.dialect = dialect_from(text_of(body, "dialect"));
  const auto before = std::exchange(worker.seen_as, worker.dialect);
  const bool is_other_engine = before && worker.dialect && *before != *worker.dialect;
  worker.labels.clear();
  for (const json::value& label : list_of(body, "labels")) {
    if (label.is_string()) worker.labels.emplace_back(label.get_string());
  }
  worker.paused_by_us = flag_of(body, "paused_by_us");
  worker.pause_since_read = false;
  worker.version.reset();
  worker.evidence = Evidence::none;
  if (worker.in_flight) worker.earlier.push_back(*std::exchange(worker.in_flight, std::nullopt));
  if (is_other_engine) note_other_dialect(worker);
  note_new_process(worker);
  if (is_same) worker.memory = memory;
  if (is_first || (is_same && !is_other_engine)) worker.owes_flush = owed;
  if (!flag_of(body, "outstanding")) {
    worker.earlier.clear();
    worker.touched = flag_of(body, "touched");
    worker.taken_over.reset();
  }
  for (EarlierCall& earlier : worker.earlier) earlier.since_read = false;
  if (Target* target = target_of(record); target && std::exchange(target->needs_restart, false)) target->cause.reset();
  worker.joins.doubtful_load.clear();
}

// What the change did to the pair's list and to the worker's state has records of its own.
void Replay::worker_changed(const Record& record) {
  if (text_of(record.body, "change") != "release") return;
  const auto it = state_.workers.find(record.worker);
  if (it == state_.workers.end()) return;
  if (it->second.state == WorkerState::abandoned) return forget_worker(record.worker);
  it->second.joins = JoinHistory{};
  it->second.memory = EngineMemory::whole;
  Pair* pair = pair_of(record);
  if (pair && pair->committed) pair->deaths.erase(version_key(*pair->committed));
}

}  // namespace weighlock::protocol
