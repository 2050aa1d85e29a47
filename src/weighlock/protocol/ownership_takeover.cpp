// What a pair's former owner left: its workers are doubted, its pauses are ours (protocol.md sections 7 and 9).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/replay.hpp"
#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {
namespace {

// Before its first commit here a pair serves what it finds; a label that no load left behind says that it is whole,
// unless labels aren't written at all.
bool may_serve_as_found(const Pair& pair, const Worker& worker) {
  return !pair.committed && worker.state == WorkerState::ready && pair.spec.policy.evidence != Evidence::acknowledged;
}

void bring_back(Context& context, Update& update, Target& target) {
  const Worker& worker = context.worker_of(target);
  target.pause_sent = true;
  target.was_paused = false;
  if (may_serve_as_found(context.pair_of(update), worker)) {
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
    if (!worker.taken_over || !worker.taken_over->held || worker.taken_over->tried) continue;
    worker.taken_over->tried = true;
    urls.push_back(url);
  }
  if (urls.empty()) return false;
  Update update;
  update.number = context.state().next_update++;
  update.id = fmt::format("{}-{}", context.state().boot, update.number);
  update.kind = UpdateKind::leave;
  update.takes_over = true;
  update.pair = name;
  update.policy = pair.spec.policy;
  update.version = pair.committed.value_or(VersionRef{});
  update.requested_at = context.now();
  for (const std::string& url : urls) update.targets[url].worker = url;
  const UpdateId id = update.id;
  pair.active = id;
  context.state().updates.emplace(id, std::move(update));
  begin_leave(context, context.state().updates.at(id));
  return true;
}

void on_taken_over_read(Context& context, Update& update, Target& target) {
  Worker& worker = context.worker_of(target);
  if (!target.reached) {
    quarantine(context, update, target,
               target.cause.value_or(context.cause(CauseCode::unreachable, "it could not be read")));
  } else if (!target.paused) {
    worker.paused_by_us = false;
    target.step = Step::done;
  } else if (!worker.paused_by_us) {
    target.step = Step::done;  // another process than the one that was paused: somebody else did that
  } else {
    bring_back(context, update, target);
  }
  finish_if_done(context, update);
}

void settle_taken_over(Context& context, Worker& worker, const StateReading& reading, bool first) {
  const TakenOver taken = *std::exchange(worker.taken_over, std::nullopt);
  const bool same = taken.incarnation.empty() || taken.incarnation == reading.incarnation;
  if (taken.held && same) worker.paused_by_us = true;
  if (first) return;
  if (says_loading(reading.label)) {
    worker.labels = {reading.label};
    context.set_worker(
        worker, WorkerState::quarantined,
        context.cause(
            CauseCode::load_unknown,
            fmt::format("its label '{}' says that a load of the pair's former owner did not end", reading.label)));
  } else {
    worker.labels.clear();
    if (reading.label != worker.start_label) worker.labels.push_back(reading.label);
  }
}

void take_over_workers(State& state, const std::string& name, const Epoch& predecessor) {
  const auto pair = state.pairs.find(name);
  if (pair == state.pairs.end()) return;
  for (auto& [url, worker] : state.workers) {
    if (worker.pair != name || worker.state == WorkerState::abandoned) continue;
    const auto listed = std::find_if(predecessor.paused.begin(), predecessor.paused.end(),
                                     [&, &here = url](const HeldWorker& held) { return held.url == here; });
    const bool held = listed != predecessor.paused.end();
    // Whatever it had sent may still run: nothing goes out before a barrier.
    EarlierCall sent;
    sent.kind = OperationKind::load;
    sent.held_before = held;
    worker.earlier.push_back(sent);
    worker.taken_over = TakenOver{held, held ? listed->incarnation : std::string(), false};
    worker.version.reset();
    worker.evidence = Evidence::none;
    pair->second.ownership.bring_back = pair->second.ownership.bring_back || held;
  }
}

void let_go_of_workers(State& state, const std::string& name) {
  for (auto& [url, worker] : state.workers) {
    if (worker.pair != name) continue;
    worker.paused_by_us = worker.pause_since_read = false;
    worker.taken_over.reset();
  }
}

void Replay::epoch(const Record& record) {
  const json::value body(record.body);
  Pair* pair = pair_of(record);
  if (!pair) return;
  pair->ownership = Ownership();
  pair->ownership.epoch = number_of(body, "epoch");
  if (const json::value* before = find(body, "predecessor"))
    take_over_workers(state_, record.pair, epoch_from(*before));
}

void Replay::superseded(const Record& record) {
  Pair* pair = pair_of(record);
  if (!pair) return;
  pair->ownership.superseded_by = epoch_from(json::value(record.body));
  pair->ownership.bring_back = false;
  let_go_of_workers(state_, record.pair);
}

json::object epoch_body(const Epoch& epoch) {
  json::array paused;
  for (const HeldWorker& worker : epoch.paused)
    paused.push_back(json::object{{"url", worker.url}, {"incarnation", worker.incarnation}});
  json::object body{{"epoch", epoch.number},
                    {"owner", epoch.owner},
                    {"host", epoch.host},
                    {"written_at", epoch.written_at},
                    {"paused", std::move(paused)}};
  if (!epoch.remark.empty()) body["remark"] = epoch.remark;
  return body;
}

Epoch epoch_from(const json::value& body) {
  Epoch out;
  out.number = number_of(body, "epoch");
  out.owner = text_of(body, "owner");
  out.host = text_of(body, "host");
  out.written_at = text_of(body, "written_at");
  out.remark = text_of(body, "remark");
  for (const json::value& one : list_of(body, "paused"))
    out.paused.push_back({std::string(text_of(one, "url")), std::string(text_of(one, "incarnation"))});
  return out;
}

}  // namespace weighlock::protocol
