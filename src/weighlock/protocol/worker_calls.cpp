#include "weighlock/protocol/worker_calls.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

// What an answer proves of the labels that we may have written.
void settle_labels(Worker& worker, const Outcome& outcome) {
  if (worker.labels.empty()) return;
  if (outcome.ok()) {
    worker.labels.erase(worker.labels.begin(), worker.labels.end() - 1);
  } else if ((outcome.kind == OutcomeKind::untouched || outcome.kind == OutcomeKind::not_sent) &&
             worker.labels.size() > 1) {
    worker.labels.pop_back();
  }
}

bool is_load(OperationKind kind) {
  return kind == OperationKind::load || kind == OperationKind::load_empty;
}

// A tag of its memory was asked for, or came back. Who isn't asked any more keeps what it is.
void note_memory_asked(Worker& worker) {
  if (worker.memory == EngineMemory::released) worker.memory = EngineMemory::weights_asked;
  if (worker.memory == EngineMemory::weights_back) worker.memory = EngineMemory::kv_cache_asked;
}

void note_memory_answered(Worker& worker, OutcomeKind kind) {
  const bool of_weights = worker.memory == EngineMemory::weights_asked;
  if (!of_weights && worker.memory != EngineMemory::kv_cache_asked) return;
  if (kind == OutcomeKind::ok) worker.memory = of_weights ? EngineMemory::weights_back : EngineMemory::whole;
  if (kind == OutcomeKind::not_sent) worker.memory = of_weights ? EngineMemory::released : EngineMemory::weights_back;
}

// Its connection ended in the process that it had reached. That may be one that nobody has read yet, if the one that
// was read had ended before it was sent; a load that was announced tells by its label whom it reached. A drain has no
// barrier, so nothing but a reading ever ends that doubt.
void end_unanswered(const Worker& worker, EarlierCall& call) {
  call.may_answer = false;
  const bool announced = is_load(call.kind) && !worker.load_since_read;
  const bool drains = call.kind == OperationKind::pause && call.pause_mode == PauseMode::wait;
  if (announced || drains) call.since_read = false;
}

void note_cache_ended(Worker& worker, const EarlierCall& call, OutcomeKind kind) {
  const bool without_effect = kind == OutcomeKind::untouched || kind == OutcomeKind::not_sent;
  if (call.keeps_cache && without_effect && !call.owed_before) worker.owes_flush.reset();
  if (call.drops_cache && kind == OutcomeKind::ok) worker.owes_flush.reset();
}

bool is_of_a_version(const std::string& format, std::string_view label) {
  constexpr std::string_view kPlace = "{version}";
  const auto at = format.find(kPlace);
  if (at == std::string::npos) return false;
  const std::string_view before = std::string_view(format).substr(0, at);
  const std::string_view behind = std::string_view(format).substr(at + kPlace.size());
  if (label.size() <= before.size() + behind.size()) return false;
  if (!label.starts_with(before) || !label.ends_with(behind)) return false;
  label = label.substr(before.size(), label.size() - before.size() - behind.size());
  if (label.size() > 1 && label.front() == '-') label.remove_prefix(1);  // versions may be negative
  return std::all_of(label.begin(), label.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string start_model_label(const std::string& format, const Worker& worker) {
  return is_of_a_version(format, worker.start_label) ? "start" : worker.start_label;
}

bool changes_something(OperationKind kind) {
  switch (kind) {
    case OperationKind::identify:
    case OperationKind::read_state:
    case OperationKind::verify:
    case OperationKind::barrier:
    case OperationKind::probe:
    case OperationKind::list_adapters:
      return false;
    default:
      return true;
  }
}

void note_cache_effect(EarlierCall& call, bool by_files, const Update* update, const DialectTraits* traits) {
  const bool loads = call.kind == OperationKind::load && !call.resumes_memory;
  const bool keeps = call.pause_mode == PauseMode::keep;
  const bool is_callers = update && update->policy.pause == PauseOwner::caller;  // who continues it flushes it
  call.keeps_cache = loads && keeps && !is_callers;
  call.drops_cache =
      call.kind == OperationKind::flush || (loads && !keeps && by_files && traits && traits->load_flushes);
  call.pays_flush = call.kind == OperationKind::flush && !update;
}

std::string owed_flush_text(const std::string& words) {
  return "its weights are the new ones, and its cache could not be flushed yet" +
         (words.empty() ? std::string() : " (" + words + ")") +
         ": prefixes of former versions stay in it until it is idle for once; it is asked again until then";
}

bool leaves_doubt(const EarlierCall& call) {
  return changes_something(call.kind) && !call.pays_flush;
}

void note_sent(Worker& worker, const EarlierCall& call, const std::string& label, bool writes_label) {
  worker.in_flight = call;
  if (call.resumes_memory) note_memory_asked(worker);
  if (is_load(call.kind)) worker.in_flight->held_before = std::exchange(worker.touched, true);
  // After a label that says "loading:" on the same connection, a new process shows by its label that it did not get it.
  const bool announced = !worker.labels.empty() && says_loading(worker.labels.back());
  if (is_load(call.kind) && !announced) worker.load_since_read = true;
  if (call.keeps_cache) {
    worker.in_flight->owed_before = worker.owes_flush.has_value();
    if (!worker.owes_flush) worker.owes_flush.emplace();
    worker.owes_flush->tries = 0;
  }
  if (call.kind == OperationKind::pause) worker.paused_by_us = worker.pause_since_read = true;
  if (writes_label && worker.labels.empty()) worker.labels.push_back(worker.start_label);
  if (writes_label) worker.labels.push_back(label);
}

void note_ended(Worker& worker, const EarlierCall& call, const Outcome& outcome, bool writes_label) {
  worker.in_flight.reset();
  if (call.resumes_memory) note_memory_answered(worker, outcome.kind);
  if (writes_label) settle_labels(worker, outcome);
  note_cache_ended(worker, call, outcome.kind);
  const bool without_effect = outcome.kind == OutcomeKind::untouched || outcome.kind == OutcomeKind::not_sent;
  if (call.kind == OperationKind::pause && without_effect) worker.paused_by_us = call.held_before;
  if (is_load(call.kind) && without_effect) worker.touched = call.held_before;
  if (call.kind == OperationKind::resume && outcome.ok()) worker.paused_by_us = worker.pause_since_read = false;
  if (call.kind == OperationKind::barrier && outcome.ok() && outcome.reading) worker.earlier.clear();
  if (outcome.kind == OutcomeKind::unknown && leaves_doubt(call)) {
    worker.earlier.push_back(call);
    end_unanswered(worker, worker.earlier.back());
  }
}

void note_new_process(Worker& worker) {
  worker.memory = EngineMemory::whole;
  worker.owes_flush.reset();
  worker.touched = std::exchange(worker.load_since_read, false) ||
                   std::any_of(worker.earlier.begin(), worker.earlier.end(),
                               [](const EarlierCall& earlier) { return earlier.since_read && is_load(earlier.kind); });
  std::erase_if(worker.earlier, [](const EarlierCall& earlier) { return !earlier.since_read; });
}

void note_other_dialect(Worker& worker) {
  worker.pause_since_read = worker.load_since_read = false;
  std::erase_if(worker.earlier, [](const EarlierCall& earlier) { return earlier.kind != OperationKind::set_label; });
}

bool is_strange(OperationKind kind, const Outcome& outcome) {
  const bool reads =
      kind == OperationKind::read_state || kind == OperationKind::barrier || kind == OperationKind::list_adapters;
  const bool unheard = outcome.code == ErrorCode::not_supported || outcome.code == ErrorCode::bad_answer;
  return reads && !outcome.ok() && unheard;
}

void note_reading(Worker& worker, OperationKind kind, const Outcome& outcome) {
  if (is_strange(kind, outcome)) {
    ++worker.strange_readings;
  } else if (kind == OperationKind::identify || outcome.reading) {
    worker.strange_readings = 0;
  }
}

bool must_be_identified(const Worker& worker) {
  return !worker.dialect || worker.strange_readings >= limits::kStrangeReadings;
}

bool note_late(Worker& worker, CallId call, OutcomeKind kind) {
  const auto it =
      std::find_if(worker.earlier.begin(), worker.earlier.end(), [&](const EarlierCall& e) { return e.call == call; });
  if (it == worker.earlier.end()) return false;
  if (it->resumes_memory) note_memory_answered(worker, kind);
  if (it->drops_cache) note_cache_ended(worker, *it, kind);  // nothing was loaded behind it
  if (kind == OutcomeKind::unknown) {
    end_unanswered(worker, *it);
  } else {
    worker.earlier.erase(it);  // its own answer: it has ended
  }
  return true;
}

}  // namespace weighlock::protocol
