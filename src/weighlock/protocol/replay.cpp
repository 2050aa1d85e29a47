// long because each kind of record has its few lines here
#include "weighlock/protocol/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {
namespace {

std::optional<Error> error_from(const json::value* body) {
  if (!body || !body->is_object()) return std::nullopt;
  return Error{error_code_from(text_of(*body, "code")), std::string(text_of(*body, "message")), nullptr};
}

}  // namespace

void Replay::take(const Record& record, Instant at) {
  switch (record.kind) {
    case RecordKind::gateway_started:
      return process_ended();
    case RecordKind::pair_connected:
      pair_connected(record);
      return note_use(state_.pairs.at(record.pair), at, false);
    case RecordKind::pair_removed:
      return pair_removed(record);
    case RecordKind::update_requested:
      return requested(record, at);
    case RecordKind::update_phase:
      return phase(record, at);
    case RecordKind::update_ended:
      return ended(record, at);
    case RecordKind::targets:
      return targets(record, at);
    case RecordKind::intent:
      return about_adapters(record, at) ? void() : intent(record);
    case RecordKind::outcome:
      return about_adapters(record, at) ? void() : outcome(record, at);
    case RecordKind::verdict:
      return verdicts(record, at);
    case RecordKind::commit:
      return commit(record);
    case RecordKind::sealed:
      return sealed(record);
    case RecordKind::digest:
      return digest(record);
    case RecordKind::last_good:
      return last_good(record);
    case RecordKind::save_intent:
      return save_intent(record, at);
    case RecordKind::save_ended:
      return save_ended(record);
    case RecordKind::worker_state:
      return worker_state(record, at);
    case RecordKind::worker_seen:
      return worker_seen(record);
    case RecordKind::worker_changed:
      return worker_changed(record);
    case RecordKind::death:
      if (Pair* pair = pair_of(record))
        pair->deaths[std::string(text_of(record.body, "version"))].emplace(text_of(record.body, "incarnation"));
      return;
    case RecordKind::key_joined:
      if (Pair* pair = pair_of(record)) pair->keys.emplace(text_of(record.body, "key"), record.update);
      return;
    case RecordKind::discard:
      return discard(record);
    case RecordKind::owner:
      state_.owner = text_of(record.body, "owner");
      return;
    case RecordKind::epoch:
      return epoch(record, at);
    case RecordKind::superseded:
      return superseded(record, at);
    case RecordKind::group:
      return group(record);
    case RecordKind::gateway_stopping:
    case RecordKind::update_rejected:
      return;  // update_ended tells the rest
  }
}

// Its workers' own intents tell what may run, and no group outlives its process. But the worker at which it met listens
// on, and trainers are in it until they are told to leave.
void Replay::group(const Record& record) {
  const json::object& body = record.body;
  const std::string name(text_of(body, "name"));
  if (text_of(body, "what") == "dead") state_.left_groups.erase(name);
  if (text_of(body, "what") == "build") {
    LeftGroup& left = state_.left_groups[name];
    left.pair = record.pair;
    left.colocate = flag_of(body, "colocate");
    for (const json::value& url : list_of(body, "trainers")) {
      if (url.is_string()) left.trainers.emplace_back(url.as_string());
    }
  }
  const json::array& workers = list_of(body, "workers");
  const std::string first(workers.empty() || !workers.front().is_string()
                              ? std::string_view()
                              : std::string_view(workers.front().as_string()));
  note_meeting(state_, MeetingPlace{record.pair, first, std::string(text_of(body, "meets_at")),
                                    static_cast<int>(number_of(body, "port"))});
  for (const json::value& released : list_of(body, "released")) {
    if (released.is_string()) memory_released(record, std::string(released.get_string()));
  }
}

State Replay::finish(std::string boot, Instant now) {
  process_ended();
  // The collective's time-out counts from now on: how long the process was gone, no clock of ours can tell.
  for (auto& [trainer, busy] : state_.busy) busy.since = now;
  for (auto& [url, worker] : state_.workers) {
    worker.joins.not_before = now;
    if (worker.owes_flush) worker.owes_flush->tries = 0;
  }
  state_.boot = std::move(boot);
  return std::move(state_);
}

void Replay::process_ended() {
  // The last records of a process may be lost, answers among them: any of the planned steps may have begun.
  for (const auto& [url, plans] : planned_) {
    for (const Record& plan : plans) begin_call(plan, 0);
  }
  planned_.clear();
  for (const auto& [name, pair] : state_.pairs) {
    if (pair.spec.lora) continue;
    std::set<UpdateId> running = pair.joins;
    running.insert(pair.active);
    for (const UpdateId& id : running) {
      if (const auto update = state_.updates.find(id); update != state_.updates.end()) suppose_resumes(update->second);
    }
  }
  for (auto& [url, worker] : state_.workers) {
    if (worker.in_flight) worker.earlier.push_back(*std::exchange(worker.in_flight, std::nullopt));
    for (EarlierCall& earlier : worker.earlier) earlier.may_answer = false;
  }
  for (auto& [trainer, busy] : state_.busy) busy.call = 0;
}

// Nothing waits for the record of a resume, so it may be lost with the process, and the resume be on its way to whoever
// was paused: in this update, or before it. The start's own record says it again to each later reader, so the doubt
// outlives a barrier that isn't answered in time.
void Replay::suppose_resumes(const Update& update) {
  for (const auto& [url, target] : update.targets) {
    const auto worker = state_.workers.find(url);
    if (worker == state_.workers.end() || target.step == Step::done) continue;
    if (!target.pause_sent && !worker->second.paused_by_us) continue;
    std::vector<EarlierCall>& earlier = worker->second.earlier;
    const auto resumes = [](const EarlierCall& call) { return call.kind == OperationKind::resume; };
    if (std::any_of(earlier.begin(), earlier.end(), resumes)) continue;
    EarlierCall resume;
    resume.kind = OperationKind::resume;
    resume.held_before = worker->second.paused_by_us;
    earlier.push_back(resume);
  }
}

Pair* Replay::pair_of(const Record& record) {
  const auto it = state_.pairs.find(record.pair);
  return it == state_.pairs.end() ? nullptr : &it->second;
}

Update* Replay::update_of(const Record& record) {
  const auto it = state_.updates.find(record.update);
  return it == state_.updates.end() ? nullptr : &it->second;
}

Target* Replay::target_of(const Record& record) {
  Update* update = update_of(record);
  if (!update || is_terminal(update->state)) return nullptr;
  const auto it = update->targets.find(record.worker);
  return it == update->targets.end() ? nullptr : &it->second;
}

Worker& Replay::worker_of(const Record& record) {
  Worker& worker = state_.workers[record.worker];
  worker.url = record.worker;
  const Pair* pair = pair_of(record);
  if (!record.pair.empty() && !(pair && pair->spec.lora)) worker.pair = record.pair;
  return worker;
}

// --- pairs

// A worker that LoRA pairs still use stays, as one that no full-model pair ever had.
void Replay::forget_worker(const std::string& url) {
  const auto it = state_.workers.find(url);
  if (it == state_.workers.end()) return;
  const std::optional<DialectKind> dialect = it->second.dialect;
  if (!is_shared(state_, url)) {
    state_.workers.erase(it);
    return;
  }
  it->second = Worker();
  it->second.url = url;
  it->second.dialect = dialect;
}

void Replay::pair_connected(const Record& record) {
  const json::object& body = record.body;
  Pair& pair = state_.pairs[record.pair];
  const PairSpec before = std::exchange(pair.spec, spec_from(body));
  pair.spec.name = record.pair;
  pair.lineage = number_of(body, "lineage", pair.lineage);
  if (is_superseded(pair) || before.save_path != pair.spec.save_path) pair.ownership = Ownership();
  if (pair.spec.lora) return adapters_connected(pair, before);
  std::set<std::string> gone;
  for (const auto& [url, worker] : state_.workers) {
    if (worker.pair == record.pair && worker.state != WorkerState::abandoned) gone.insert(url);
  }
  for (const WorkerSpec& spec : pair.spec.workers) gone.erase(spec.url);
  for (const std::string& url : gone) forget_worker(url);
  for (const WorkerSpec& spec : pair.spec.workers) {
    Worker& worker = state_.workers[spec.url];
    worker.url = spec.url;
    worker.pair = record.pair;
    if (spec.dialect && !worker.seen_as) worker.dialect = spec.dialect;
    take_over_stranger(pair, worker);
  }
}

void Replay::pair_removed(const Record& record) {
  const auto it = state_.pairs.find(record.pair);
  if (it == state_.pairs.end()) return;
  it->second.adapters.clear();
  std::vector<std::string> gone;
  for (const auto& [url, worker] : state_.workers) {
    if (worker.pair == record.pair && worker.state != WorkerState::abandoned) gone.push_back(url);
  }
  for (const std::string& url : gone) forget_worker(url);
  forget_unused_workers();
  state_.orphans.insert(state_.orphans.end(), it->second.joins_ended.begin(), it->second.joins_ended.end());
  state_.orphans.insert(state_.orphans.end(), it->second.history.begin(), it->second.history.end());
  forget_oldest(state_, state_.orphans);
  state_.pairs.erase(it);
}

// --- updates

void Replay::requested(const Record& record, Instant at) {
  const json::object& body = record.body;
  Pair* pair = pair_of(record);
  if (!pair) return;
  Update& update = state_.updates[record.update];
  update.id = record.update;
  update.number = state_.next_update++;
  update.pair = record.pair;
  update.version.lineage = number_of(body, "lineage");
  update.version.version = number_of(body, "version");
  update.version.label = text_of(body, "label");
  update.attempt = number_of(body, "attempt");
  update.key = text_of(body, "key");
  update.path = text_of(body, "path");
  update.version.directory = update.path;
  update.rollback = flag_of(body, "rollback");
  if (update.rollback) {
    update.version.directory = text_of(body, "directory");
    update.version.digest = text_of(body, "digest");
  }
  if (const json::value* policy = find(body, "policy")) update.policy = policy_from(*policy);
  update.transfer = is_by_transfer(*pair, update);
  update.requested_at = at;
  update.phases.push_back(PhaseTime{UpdateState::queued, at, Milliseconds{0}});
  pair->attempts = std::max(pair->attempts, update.attempt);
  note_use(*pair, at, true);
  if (!update.key.empty()) pair->keys[update.key] = update.id;
  pair->queue.push_back(update.id);
}

// A job that heals leaving workers, or brings one back, has no request: its first record names its phase.
Update& Replay::job_update(const Record& record, Instant at) {
  Pair& pair = state_.pairs[record.pair];
  Update& update = state_.updates[record.update];
  update.id = record.update;
  update.number = state_.next_update++;
  update.kind = text_of(record.body, "kind") == name(UpdateKind::join) ? UpdateKind::join : UpdateKind::leave;
  update.pair = record.pair;
  update.policy = pair.spec.policy;
  update.version = pair.committed.value_or(VersionRef{});
  update.requested_at = at;
  if (update.kind == UpdateKind::join) {
    if (!pair.committed && pair.last_good) update.version = *pair.last_good;
    if (!pair.window.empty()) update.attempt = pair.window.back().attempt;
    pair.joins.insert(update.id);
  } else {
    pair.active = update.id;
  }
  return update;
}

void Replay::phase(const Record& record, Instant at) {
  const json::object& body = record.body;
  Pair* pair = pair_of(record);
  if (!pair) return;
  Update* update = update_of(record);
  if (!update) update = &job_update(record, at);
  if (!update->phases.empty()) update->phases.back().took = at - update->phases.back().began;
  update->state = enum_from(text_of(body, "state"), UpdateState::failed, update->state);
  update->phases.push_back(PhaseTime{update->state, at, Milliseconds{0}});
  if (auto error = error_from(find(body, "error"))) update->error = std::move(error);
  std::erase(pair->queue, update->id);
  if (update->kind != UpdateKind::join) pair->active = update->id;
}

void Replay::ended(const Record& record, Instant at) {
  const json::object& body = record.body;
  Update* update = update_of(record);
  Pair* pair = pair_of(record);
  if (!update || !pair) return;
  if (!update->phases.empty()) update->phases.back().took = at - update->phases.back().began;
  update->state = enum_from(text_of(body, "state"), UpdateState::failed, UpdateState::failed);
  update->committed = find_bool(body, "committed");
  update->error = error_from(find(body, "error"));
  update->ended_at = at;
  std::set<std::string> named;
  for (const json::value& one : list_of(body, "workers")) {
    const std::string url(text_of(one, "worker"));
    named.insert(url);
    Target& target = update->targets[url];
    settle_planned(url);
    target.worker = url;
    target.step = Step::done;
    target.verdict = enum_from(text_of(one, "verdict"), Verdict::unknown, target.verdict);
    target.evidence = evidence_from(text_of(one, "evidence")).value_or(Evidence::none);
    target.ended_as = enum_from(text_of(one, "state"), WorkerState::abandoned, WorkerState::gone);
    target.cause = cause_from(find(one, "cause"), at);
    target.load_took.reset();
    target.paused_at.reset();
    target.resumed_at.reset();
    if (const auto ms = find_int(one, "load_ms")) target.load_took = Milliseconds(*ms);
    if (const auto ms = find_int(one, "switched_ms")) target.switched_at = update->requested_at + Milliseconds(*ms);
    if (const auto ms = find_int(one, "paused_ms")) {
      target.paused_at = at + -Milliseconds(*ms);
      target.resumed_at = at;
    }
    if (flag_of(one, "spoiled")) pair->spoiled[version_key(update->version)].insert(url);
    const auto worker = state_.workers.find(url);
    if (update->kind == UpdateKind::join && !pair->spec.lora && worker != state_.workers.end())
      note_join_ended(worker->second, *update, target, at);
  }
  std::erase_if(update->targets, [&](const auto& entry) { return !named.contains(entry.first); });
  if (update->state >= UpdateState::rolled_back && update->committed == false) note_stored(*pair, *update, false);
  if (pair->spec.lora) adapters_ended(*pair, *update);
  if (pair->active == update->id) pair->active.clear();
  std::erase(pair->queue, update->id);
  pair->joins.erase(update->id);
  if (update->kind == UpdateKind::update) note_use(*pair, at, false);
  std::deque<UpdateId>& ended = update->kind == UpdateKind::join ? pair->joins_ended : pair->history;
  ended.push_back(update->id);
  forget_oldest(state_, ended);
}

void Replay::targets(const Record& record, Instant at) {
  const json::object& body = record.body;
  Update* update = update_of(record);
  if (!update) return;
  for (const json::value& one : list_of(body, "targets")) {
    const std::string url(text_of(one, "worker"));
    Target& target = update->targets[url];
    target.worker = url;
    target.role = text_of(one, "role") == "extra" ? Role::extra : Role::member;
    target.included = flag_of(one, "included", true);
    target.step = target.included ? Step::judged : Step::done;
    target.counted_lost = !target.included;
    target.was_paused = flag_of(one, "was_paused");
    target.incarnation = text_of(one, "incarnation");
    target.former_label = text_of(one, "label");
    target.former_state = enum_from(text_of(one, "state", "ready"), WorkerState::abandoned, WorkerState::ready);
    target.former_cause = cause_from(find(one, "cause"), at);
    if (!target.included) target.cause = cause_from(find(one, "why"), at);
    const auto worker = state_.workers.find(url);
    if (worker == state_.workers.end()) continue;
    target.former_version = worker->second.version;
    target.pause_sent = flag_of(one, "paused") && worker->second.paused_by_us;
  }
  update->takes_over = text_of(body, "kind") == "takeover";
  update->members_fixed = true;
}

// The decision. The record is the commit: who reads it back goes forward.
void Replay::commit(const Record& record) {
  Update* update = update_of(record);
  Pair* pair = pair_of(record);
  if (!update || !pair) return;
  const json::object& body = record.body;
  update->version = version_from(body);
  update->committed = true;
  note_committed(*pair, *update);
  note_stored(*pair, *update, true);
  if (pair->spec.lora) adapters_committed(*pair, *update);
  if (!update->sealed) return;
  pair->bytes_last = update->sealed->bytes;
  if (!update->sealed->blind) return;
  pair->last_good.reset();
  pair->rollback_reason = why_no_last_good(*update);
}

void Replay::sealed(const Record& record) {
  const json::object& body = record.body;
  Update* update = update_of(record);
  Pair* pair = pair_of(record);
  if (!update || !pair) return;
  SealedVersion sealed;
  sealed.bytes = static_cast<std::uint64_t>(number_of(body, "bytes"));
  sealed.tensors = static_cast<std::uint64_t>(number_of(body, "tensors"));
  sealed.blind = flag_of(body, "blind");
  sealed.digest = text_of(body, "digest");
  update->sealed = sealed;
  update->version.directory = text_of(body, "directory");
  update->version.digest = sealed.digest;
  const std::string_view reason = text_of(body, "reference_reason");
  if (!pair->last_good && !update->rollback)
    pair->rollback_reason = reason.empty() ? std::string_view("the start model is not readable here") : reason;
}

void Replay::digest(const Record& record) {
  const json::object& body = record.body;
  const auto digest = find_string(body, "digest");
  Update* update = update_of(record);
  if (!digest || !update) return;
  update->version.digest = *digest;
  Pair* pair = pair_of(record);
  if (!pair) return;
  note_digest(*pair, update->version);
}

void Replay::last_good(const Record& record) {
  const json::object& body = record.body;
  Pair* pair = pair_of(record);
  if (!pair) return;
  if (const auto reason = find_string(body, "reason")) {  // the last one's bytes turned out bad
    pair->distrusted = true;
    pair->last_good = std::exchange(pair->previous_good, std::nullopt);
    const Update* update = update_of(record);
    if (!pair->last_good)
      pair->rollback_reason =
          fmt::format("the files of v{} can't be trusted: {}", update ? update->version.version : 0, *reason);
    return;
  }
  pair->last_good = VersionRef{0, 0, std::string(text_of(body, "directory")), std::string(text_of(body, "label")), ""};
}

bool needs_recovery(const State& state) {
  return std::any_of(state.pairs.begin(), state.pairs.end(), [](const auto& entry) {
    return !entry.second.active.empty() || !entry.second.queue.empty() || !entry.second.joins.empty();
  });
}

}  // namespace weighlock::protocol
