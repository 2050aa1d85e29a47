// One worker of a pair is added, removed, drained, quarantined or released (protocol.md sections 2 and 8).
//
// Each is done when the pair is idle: at once, or when the running update has ended; the client is answered then.
// Between two of the queue's updates changes come first.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

std::string_view word(WorkerChange change) {
  switch (change) {
    case WorkerChange::add:
      return "add";
    case WorkerChange::remove:
      return "remove";
    case WorkerChange::drain:
      return "drain";
    case WorkerChange::quarantine:
      return "quarantine";
    case WorkerChange::release:
      return "release";
  }
  return "unknown";
}

void reply(Context& context, ReplyToken token, std::optional<Error> error, std::vector<std::string> abandoned = {}) {
  if (token != 0) context.emit(Reply{token, std::move(error), {}, std::move(abandoned)});
}

bool lists(const PairSpec& spec, const std::string& url) {
  return std::any_of(spec.workers.begin(), spec.workers.end(), [&](const WorkerSpec& w) { return w.url == url; });
}

// ABANDONED workers are on no list any more.
bool is_abandoned(const State& state, const ChangeWorker& event) {
  const auto worker = state.workers.find(event.worker.url);
  return worker != state.workers.end() && worker->second.pair == event.pair &&
         worker->second.state == WorkerState::abandoned;
}

std::optional<Error> refuse_add(Context& context, const Pair& pair, const ChangeWorker& event) {
  const auto refuse = [&](ErrorCode code, std::string text) {
    return Error{code, fmt::format("pair '{}': {}", event.pair, text), nullptr};
  };
  if (lists(pair.spec, event.worker.url))
    return refuse(ErrorCode::conflict, fmt::format("worker {} is listed already", event.worker.url));
  if (pair.spec.workers.size() >= limits::kWorkersPerPairMax)
    return refuse(ErrorCode::invalid_argument,
                  fmt::format("workers: {} of at most {}", pair.spec.workers.size() + 1, limits::kWorkersPerPairMax));
  const auto worker = context.state().workers.find(event.worker.url);
  if (!pair.spec.lora && worker != context.state().workers.end() && !worker->second.pair.empty() &&
      worker->second.pair != event.pair && worker->second.state != WorkerState::abandoned)
    return refuse(ErrorCode::conflict, fmt::format("worker {} belongs to pair '{}'; remove it there first",
                                                   event.worker.url, worker->second.pair));
  if (!pair.spec.lora) return refuse_unfit(context, pair.spec, event.worker);
  PairSpec wanted = pair.spec;
  wanted.workers.push_back(event.worker);
  return refuse_lora(context, wanted);
}

std::optional<Error> refuse_for_state(const Worker& worker, const ChangeWorker& event) {
  const auto refuse = [&](std::string_view text) {
    return Error{ErrorCode::conflict,
                 fmt::format("pair '{}': worker {} is {}: {}", event.pair, worker.url, name(worker.state), text),
                 nullptr};
  };
  if (event.change == WorkerChange::release && worker.state == WorkerState::ready)
    return refuse("nothing holds it back");
  if (event.change != WorkerChange::drain) return std::nullopt;
  const bool runs = worker.state == WorkerState::ready || worker.state == WorkerState::draining;
  if (!runs) return refuse("it doesn't serve, so there is nothing to drain; quarantine or remove it");
  return std::nullopt;
}

std::optional<Error> refuse_change(Context& context, const ChangeWorker& event) {
  const State& state = context.state();
  const auto refuse = [&](ErrorCode code, std::string text) {
    return Error{code, fmt::format("pair '{}': {}", event.pair, text), nullptr};
  };
  if (state.stopping) return Error{ErrorCode::shutting_down, "the gateway is shutting down", nullptr};
  if (event.change == WorkerChange::release && is_abandoned(state, event)) return std::nullopt;
  const auto it = state.pairs.find(event.pair);
  if (it == state.pairs.end())
    return Error{ErrorCode::not_found, fmt::format("pair '{}' not found", event.pair), nullptr};
  const Pair& pair = it->second;
  if (!pair.removing.empty()) return refuse(ErrorCode::conflict, "it is being removed");
  if (is_superseded(pair)) return superseded_error(event.pair, *pair.ownership.superseded_by);
  if (pair.leaving.contains(event.worker.url)) return std::nullopt;
  if (event.change == WorkerChange::add) return refuse_add(context, pair, event);
  if (!lists(pair.spec, event.worker.url))
    return refuse(ErrorCode::not_found, fmt::format("it has no worker {}", event.worker.url));
  if (event.change == WorkerChange::remove) {
    const std::size_t left = pair.spec.workers.size() - 1;
    const Quorum& quorum = pair.spec.policy.quorum;
    if (left == 0)
      return refuse(ErrorCode::conflict,
                    fmt::format("worker {} is its last one; remove the pair instead", event.worker.url));
    if (quorum.kind != Quorum::Kind::count || quorum.count <= static_cast<int>(left)) return std::nullopt;
    return refuse(ErrorCode::conflict,
                  fmt::format("without worker {} its quorum of {} could never be met; set a lower one first",
                              event.worker.url, quorum.count));
  }
  if (pair.spec.lora)
    return refuse(ErrorCode::not_supported,
                  fmt::format("it is a LoRA pair: only the full-model pair of worker {} can {} it", event.worker.url,
                              word(event.change)));
  if (!pair.active.empty()) return std::nullopt;  // its state is looked at when its turn comes
  return refuse_for_state(state.workers.at(event.worker.url), event);
}

void record_change(Context& context, const ChangeWorker& event) {
  json::object body{{"change", std::string(word(event.change))}};
  if (!event.reason.empty()) body["reason"] = json::string(event.reason);
  context.record(RecordKind::worker_changed, event.pair, "", event.worker.url, std::move(body));
}

void record_spec(Context& context, Pair& pair) {
  note_use(pair, context.now(), false);
  context.record(RecordKind::pair_connected, pair.spec.name, "", "", connected_body(pair.spec, pair.lineage));
}

void add(Context& context, Pair& pair, const ChangeWorker& event) {
  const PairSpec before = pair.spec;
  pair.spec.workers.push_back(event.worker);
  if (pair.spec.lora) {
    apply_lora_spec(context, pair, before);
  } else {
    enter_pair(context, pair, event.worker);
  }
  record_spec(context, pair);
  reply(context, event.token, std::nullopt);
}

// False: it is healed first; this is called again when that has ended.
bool remove(Context& context, Pair& pair, const ChangeWorker& event) {
  const std::string& name = event.pair;
  if (pair.spec.lora) {
    const PairSpec before = pair.spec;
    drop_joins(context, pair, "a worker of the pair was removed");
    std::erase_if(pair.spec.workers, [&](const WorkerSpec& spec) { return spec.url == event.worker.url; });
    apply_lora_spec(context, pair, before);
    record_spec(context, pair);
    reply(context, event.token, std::nullopt);
    return true;
  }
  pair.leaving.insert(event.worker.url);
  if (start_leave_job(context, name, pair)) return false;
  std::vector<std::string> abandoned = release_leaving(context, name, pair);
  pair.leaving.clear();
  std::erase_if(pair.spec.workers, [&](const WorkerSpec& spec) { return spec.url == event.worker.url; });
  record_spec(context, pair);
  reply(context, event.token, std::nullopt, std::move(abandoned));
  return true;
}

Cause operator_cause(Context& context, std::string_view what, const std::string& reason) {
  return context.cause(CauseCode::operator_hold,
                       reason.empty() ? std::string(what) : fmt::format("{}: {}", what, reason));
}

void quarantine_worker(Context& context, Worker& worker, const ChangeWorker& event) {
  const Cause cause = operator_cause(context, "quarantined by its operator", event.reason);
  context.set_worker(worker, WorkerState::quarantined, cause);
  context.emit(Fence{worker.url, worker.pair, cause});
  look_soon(context, worker, Milliseconds(0));
}

// What held it back is over, whatever it was; it is read, and brought to what is committed.
void release(Context& context, const ChangeWorker& event) {
  State& state = context.state();
  const auto it = state.workers.find(event.worker.url);
  if (it->second.state == WorkerState::abandoned) return forget_worker(context, it->second.url);
  Worker& worker = it->second;
  worker.joins = JoinHistory{};
  worker.memory = EngineMemory::whole;  // whoever releases it has seen to that
  Pair& pair = state.pairs.at(event.pair);
  if (pair.committed) pair.deaths.erase(version_key(*pair.committed));
  context.set_worker(worker, WorkerState::joining, operator_cause(context, "released by its operator", event.reason));
  look_soon(context, worker, Milliseconds(0));
}

// False: it goes on when what it began has ended.
bool apply_change(Context& context, const ChangeWorker& event) {
  Pair& pair = context.state().pairs.at(event.pair);
  const bool goes_on = pair.leaving.contains(event.worker.url);
  if (auto error = refuse_change(context, event)) {
    reply(context, event.token, std::move(error));
    return true;
  }
  if (!goes_on) record_change(context, event);
  const auto worker = context.state().workers.find(event.worker.url);
  if (worker != context.state().workers.end() && !pair.spec.lora)
    drop_join_of(context, worker->second, "its operator changed the worker");
  switch (event.change) {
    case WorkerChange::add:
      add(context, pair, event);
      return true;
    case WorkerChange::remove:
      return remove(context, pair, event);
    case WorkerChange::drain:
      context.set_worker(worker->second, WorkerState::draining,
                         operator_cause(context, "drained by its operator", event.reason));
      break;
    case WorkerChange::quarantine:
      quarantine_worker(context, worker->second, event);
      break;
    case WorkerChange::release:
      release(context, event);
      break;
  }
  reply(context, event.token, std::nullopt);
  return true;
}

}  // namespace

void on_change_worker(Context& context, const ChangeWorker& event) {
  if (auto error = refuse_change(context, event)) return reply(context, event.token, std::move(error));
  const auto pair = context.state().pairs.find(event.pair);
  if (pair == context.state().pairs.end()) {  // an ABANDONED worker of a pair that is gone
    record_change(context, event);
    release(context, event);
    return reply(context, event.token, std::nullopt);
  }
  if (pair->second.changes.size() >= limits::kWorkersPerPairMax)
    return reply(
        context, event.token,
        Error{ErrorCode::queue_full,
              fmt::format("pair '{}': {} changes wait already", event.pair, pair->second.changes.size()), nullptr});
  pair->second.changes.push_back(event);
  pair_is_idle(context, event.pair);
}

bool apply_changes(Context& context, const std::string& name) {
  while (true) {
    const auto pair = context.state().pairs.find(name);
    if (pair == context.state().pairs.end() || pair->second.changes.empty()) return true;
    const ChangeWorker event = pair->second.changes.front();
    if (!apply_change(context, event)) return false;
    pair->second.changes.pop_front();
  }
}

void refuse_changes(Context& context, Pair& pair, const Error& error) {
  pair.leaving.clear();
  const std::deque<ChangeWorker> changes = std::exchange(pair.changes, {});
  for (const ChangeWorker& event : changes) reply(context, event.token, error);
}

}  // namespace weighlock::protocol
