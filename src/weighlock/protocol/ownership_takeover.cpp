// What a pair's former owner left: its workers are doubted, its pauses are ours (protocol.md sections 7 and 9).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/replay.hpp"
#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {
namespace {

// What it was when this began. After a death it counts as UNKNOWN until it was read (recover.cpp).
WorkerState state_before(const Worker& worker, const Target& target) {
  return worker.state == WorkerState::unknown ? target.former_state : worker.state;
}

// There is nothing to undo.
void leave_as_it_was(Context& context, Worker& worker, Target& target) {
  target.step = Step::done;
  if (worker.state == WorkerState::unknown) context.set_worker(worker, target.former_state, target.former_cause);
}

// A process before this one had begun to heal it.
bool is_half_healed(const Target& target) {
  return target.label_changed || target.load_sent;
}

// Before its first commit here a pair serves what it finds; a label that no load left behind says that it is whole,
// unless labels aren't written at all.
bool may_serve_as_found(const Pair& pair, const Worker& worker, const Target& target) {
  return !pair.committed && state_before(worker, target) == WorkerState::ready && !is_half_healed(target) &&
         pair.spec.policy.evidence != Evidence::acknowledged;
}

// Nothing but its label says that it is whole, and one answer may be an old one: it is read once more.
bool must_be_read_again(const Pair& pair, const Worker& worker, Target& target) {
  return target.paused && may_serve_as_found(pair, worker, target) && !std::exchange(target.read_twice, true);
}

void bring_back(Context& context, Update& update, Target& target) {
  const Worker& worker = context.worker_of(target);
  target.pause_sent = true;
  target.was_paused = false;
  if (shares_devices(context.pair_of(update)))
    return quarantine(context, update, target,
                      context.cause(CauseCode::needs_restart,
                                    "the pair's former owner left it paused, and which of its memory it has is not "
                                    "known: restart it, or resume it by hand and release the worker"));
  const bool as_read_before = label_is_ours(worker, target.former_label);
  if (!as_read_before)
    target.cause =
        context.cause(CauseCode::load_unknown,
                      fmt::format("the pair's former owner left it paused, and at another reading its label is '{}'",
                                  target.former_label));
  if (as_read_before && may_serve_as_found(context.pair_of(update), worker, target)) {
    target.former_state = WorkerState::ready;
    target.verdict = Verdict::untouched;
    return start_resume(context, update, target);
  }
  target.verdict = Verdict::unknown;
  if (!target.cause) target.cause = context.cause(CauseCode::load_unknown, "the pair's former owner left it paused");
  heal_or_quarantine(context, update, target);
}

}  // namespace

bool start_bring_back(Context& context, const std::string& name) {
  Pair& pair = context.state().pairs.at(name);
  if (!std::exchange(pair.ownership.bring_back, false)) return false;
  std::vector<std::string> urls;
  for (auto& [url, worker] : context.state().workers) {
    if (worker.pair != name || worker.state == WorkerState::abandoned) continue;
    // Read by an update that ended before it paused anyone: whole, and paused still by its former owner.
    const bool was_read = !worker.taken_over && worker.state == WorkerState::ready && worker.paused_by_us;
    const bool is_listed = worker.taken_over && worker.taken_over->listed && !worker.taken_over->tried;
    if (!(is_listed || (was_read && worker.earlier.empty()))) continue;
    if (is_listed) worker.taken_over->tried = true;
    urls.push_back(url);
  }
  if (urls.empty()) return false;
  start_leave(context, name, urls, true);
  return true;
}

void on_taken_over_read(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  if (!target.reached) {
    quarantine(context, update, target,
               target.cause.value_or(context.cause(CauseCode::unreachable, "it could not be read")));
  } else if (is_half_healed(target) || (target.paused && worker.paused_by_us)) {
    if (must_be_read_again(context.pair_of(update), worker, target)) return read_worker(context, update, target);
    bring_back(context, update, target);
  } else {
    if (!target.paused) worker.paused_by_us = false;
    leave_as_it_was(context, worker, target);
  }
  finish_if_done(context, update);
}

void settle_taken_over(Context& context, Worker& worker, const StateReading& reading, bool first) {
  const TakenOver taken = *std::exchange(worker.taken_over, std::nullopt);
  // Whichever process answers: the pause that was listed may have reached a later one than it was meant for.
  // Nothing that was sent is on its way any more, so who runs isn't held by a pause of ours.
  worker.paused_by_us = reading.paused && (taken.held || worker.paused_by_us);
  if (!first) {
    worker.labels.clear();
    if (says_loading(reading.label) || reading.label != worker.start_label) worker.labels.push_back(reading.label);
  }
  const bool loading = says_loading(reading.label);
  const bool changed = taken.listed && reading.label != taken.label;
  if (!loading && !changed) return;
  const std::string what =
      loading
          ? fmt::format("its label '{}' says that a load of the pair's former owner did not end", reading.label)
          : fmt::format("the pair's former owner had it {}{}, and its label is '{}'", taken.held ? "paused" : "in hand",
                        taken.label.empty() ? std::string(" for what may have torn it")
                                            : fmt::format(" with the label '{}'", taken.label),
                        reading.label);
  context.set_worker(worker, WorkerState::quarantined, context.cause(CauseCode::load_unknown, what));
}

namespace {

// This gateway had sent it when the pair was its own before, and it has no known end.
bool may_be_paused_late(const Worker& worker) {
  const auto pauses = [](const EarlierCall& call) { return call.kind == OperationKind::pause; };
  return (worker.in_flight && pauses(*worker.in_flight)) ||
         std::any_of(worker.earlier.begin(), worker.earlier.end(), pauses);
}

// Whatever its former owner had sent may still run: nothing goes out before a barrier.
void take_over_worker(Pair& pair, Worker& worker, const HeldWorker* listed) {
  worker.paused_by_us = worker.paused_by_us || may_be_paused_late(worker);
  EarlierCall sent;
  sent.kind = OperationKind::load;
  sent.held_before = listed != nullptr;
  worker.earlier.push_back(sent);
  worker.taken_over = TakenOver{};
  if (listed) worker.taken_over = TakenOver{true, listed->held, listed->incarnation, listed->label, false};
  worker.version.reset();
  worker.evidence = Evidence::none;
  // Whether its former owner still owed it one, nobody tells.
  const Policy& policy = pair.spec.policy;
  worker.owes_flush.reset();
  if (policy.pause_mode == PauseMode::keep && policy.pause != PauseOwner::caller) worker.owes_flush.emplace();
  pair.ownership.bring_back = pair.ownership.bring_back || listed != nullptr;
}

}  // namespace

void take_over_workers(State& state, const std::string& name, const Epoch& predecessor, Instant now) {
  const auto pair = state.pairs.find(name);
  if (pair == state.pairs.end()) return;
  doubt_adapters(pair->second,
                 Cause{CauseCode::foreign, "the pair was another gateway's; it is to be loaded anew", now});
  for (auto& [url, known] : pair->second.adapters) {
    if (!pair->second.committed) known.cause.reset();  // nothing was to be served yet
  }
  std::vector<HeldWorker> strangers = predecessor.paused;
  for (auto& [url, worker] : state.workers) {
    if (worker.pair != name || worker.state == WorkerState::abandoned) continue;
    const auto listed = std::find_if(predecessor.paused.begin(), predecessor.paused.end(),
                                     [&, &here = url](const HeldWorker& held) { return held.url == here; });
    take_over_worker(pair->second, worker, listed == predecessor.paused.end() ? nullptr : &*listed);
    if (worker.owes_flush && worker.state == WorkerState::ready) worker.owes_flush->since = now;
    std::erase_if(strangers, [&, &here = url](const HeldWorker& held) { return held.url == here; });
  }
  pair->second.ownership.strangers = std::move(strangers);
}

void take_over_stranger(Pair& pair, Worker& worker) {
  std::vector<HeldWorker>& strangers = pair.ownership.strangers;
  const auto listed =
      std::find_if(strangers.begin(), strangers.end(), [&](const HeldWorker& held) { return held.url == worker.url; });
  if (listed == strangers.end()) return;
  take_over_worker(pair, worker, &*listed);
  std::erase_if(strangers, [&](const HeldWorker& held) { return held.url == worker.url; });
}

void let_go_of_workers(State& state, const std::string& name) {
  for (auto& [url, worker] : state.workers) {
    if (worker.pair != name) continue;
    worker.paused_by_us = worker.pause_since_read = false;
    worker.taken_over.reset();
    worker.owes_flush.reset();  // whoever has the pair sees to it
  }
}

void Replay::epoch(const Record& record, Instant at) {
  const json::object& body = record.body;
  Pair* pair = pair_of(record);
  if (!pair) return;
  pair->ownership = Ownership();
  pair->ownership.epoch = number_of(body, "epoch");
  if (const json::value* before = find(body, "predecessor")) {
    forget_unloads(record.pair);
    take_over_workers(state_, record.pair, epoch_from(*before), at);
  }
}

void Replay::superseded(const Record& record, Instant at) {
  Pair* pair = pair_of(record);
  if (!pair) return;
  pair->ownership.superseded_by = epoch_from(record.body);
  pair->ownership.bring_back = false;
  pair->ownership.strangers.clear();
  let_go_of_workers(state_, record.pair);
  const Error error = superseded_error(record.pair, *pair->ownership.superseded_by);
  doubt_adapters(*pair, Cause{CauseCode::foreign, error.message, at});
  forget_unloads(record.pair);
}

json::object epoch_body(const Epoch& epoch) {
  json::array paused;
  for (const HeldWorker& worker : epoch.paused) {
    json::object one{{"url", worker.url}, {"incarnation", worker.incarnation}, {"label", worker.label}};
    if (!worker.held) one["held"] = false;
    paused.push_back(std::move(one));
  }
  json::object body{{"epoch", epoch.number},
                    {"owner", epoch.owner},
                    {"host", epoch.host},
                    {"written_at", epoch.written_at},
                    {"paused", std::move(paused)}};
  if (!epoch.remark.empty()) body["remark"] = epoch.remark;
  return body;
}

Epoch epoch_from(JsonMembers body) {
  Epoch out;
  out.number = number_of(body, "epoch");
  out.owner = text_of(body, "owner");
  out.host = text_of(body, "host");
  out.written_at = text_of(body, "written_at");
  out.remark = text_of(body, "remark");
  for (const json::value& one : list_of(body, "paused"))
    out.paused.push_back({std::string(text_of(one, "url")), std::string(text_of(one, "incarnation")),
                          std::string(text_of(one, "label")), flag_of(one, "held", true)});
  return out;
}

}  // namespace weighlock::protocol
