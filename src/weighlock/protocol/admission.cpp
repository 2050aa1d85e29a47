// Pairs, requests and their queue (protocol.md section 6).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/mutant.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/policy_fit.hpp"
#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {
namespace {

void reply(Context& context, ReplyToken token, std::optional<Error> error, UpdateId update = {}) {
  if (token != 0) context.emit(Reply{token, std::move(error), std::move(update), {}});
}

Error error_of(ErrorCode code, std::string message) {
  return Error{code, std::move(message), nullptr};
}

}  // namespace

std::optional<Error> refuse_unfit(Context& context, const PairSpec& spec, const WorkerSpec& worker) {
  const auto known = context.state().workers.find(worker.url);
  const bool is_known = known != context.state().workers.end() && known->second.dialect;
  if (spec.lora || (!worker.dialect && !is_known)) return std::nullopt;  // an adapter is loaded without a pause
  const DialectKind dialect = worker.dialect ? *worker.dialect : *known->second.dialect;
  const auto why =
      why_unfit(spec.policy, context.traits_of(dialect), worker.url, spec.awex ? Files::unseen : Files::seen);
  if (!why) return std::nullopt;
  return error_of(ErrorCode::not_supported, fmt::format("pair '{}': {}", spec.name, *why));
}

std::optional<Error> refuse_spec(Context& context, const PairSpec& spec) {
  const auto bad = [&](std::string text) {
    return error_of(ErrorCode::invalid_argument, fmt::format("pair '{}': {}", spec.name, text));
  };
  if (spec.workers.empty()) return bad("workers: the list is empty");
  if (spec.workers.size() > limits::kWorkersPerPairMax)
    return bad(fmt::format("workers: {} of at most {}", spec.workers.size(), limits::kWorkersPerPairMax));
  if (spec.trainer_urls.size() > limits::kTrainersPerPairMax)
    return bad(fmt::format("trainers: {} of at most {}", spec.trainer_urls.size(), limits::kTrainersPerPairMax));
  const Quorum& quorum = spec.policy.quorum;
  if (quorum.kind == Quorum::Kind::count && quorum.count > static_cast<int>(spec.workers.size()))
    return bad(fmt::format("settings.quorum: {} of {} workers can never be met", quorum.count, spec.workers.size()));
  if (auto error = refuse_lora(context, spec)) return error;
  if (auto error = refuse_awex(context, spec)) return error;
  std::set<std::string> urls;
  for (const WorkerSpec& worker : spec.workers) {
    if (!urls.insert(worker.url).second) return bad(fmt::format("workers: {} is listed twice", worker.url));
    const auto it = context.state().workers.find(worker.url);
    if (!spec.lora && it != context.state().workers.end() && !it->second.pair.empty() && it->second.pair != spec.name &&
        it->second.state != WorkerState::abandoned)
      return error_of(ErrorCode::conflict,
                      fmt::format("pair '{}': worker {} belongs to pair '{}'; disconnect it there first", spec.name,
                                  worker.url, it->second.pair));
    if (auto error = refuse_unfit(context, spec, worker)) return error;
  }
  return std::nullopt;
}

json::object connected_body(const PairSpec& spec, std::int64_t lineage) {
  json::object body = spec_body(spec);
  body["lineage"] = lineage;
  return body;
}

void apply_spec(Context& context, const ConnectPair& event) {
  const std::string& name = event.spec.name;
  Pair& pair = context.state().pairs[name];
  const bool is_new = pair.lineage == 0;
  release_leaving(context, name, pair);
  const PairSpec before = std::exchange(pair.spec, event.spec);
  if (is_new || event.new_lineage) ++pair.lineage;
  if (pair.spec.lora) apply_lora_spec(context, pair, before);
  if (before.save_path != pair.spec.save_path) pair.ownership.strangers.clear();
  for (const WorkerSpec& spec : event.spec.workers) {
    if (pair.spec.lora) break;
    enter_pair(context, pair, spec);
  }
  note_use(pair, context.now(), false);
  context.record(RecordKind::pair_connected, name, "", "", connected_body(event.spec, pair.lineage));
  epoch_at_connect(context, name, before.save_path);
  if (!pair.spec.awex) drop_group(context, name, "the pair is connected by files");
  reply(context, event.token, std::nullopt);
}

void abort_queue(Context& context, Pair& pair, const Error& error) {
  const std::deque<UpdateId> queue = std::exchange(pair.queue, {});
  for (const UpdateId& id : queue) {
    if (Update* update = context.find_update(id)) end_before_pause(context, *update, UpdateState::aborted, error);
  }
}

namespace {

std::optional<Error> refuse_request(Context& context, const RequestUpdate& event) {
  State& state = context.state();
  if (state.stopping) return error_of(ErrorCode::shutting_down, "the gateway is shutting down");
  const auto it = state.pairs.find(event.pair);
  if (it == state.pairs.end()) return error_of(ErrorCode::not_found, fmt::format("Pair '{}' not found", event.pair));
  const Pair& pair = it->second;
  if (!pair.removing.empty())
    return error_of(ErrorCode::conflict, fmt::format("pair '{}' is being removed", event.pair));
  if (pair.reconnect)
    return error_of(ErrorCode::conflict,
                    fmt::format("pair '{}' is being connected again; ask when that was answered", event.pair));
  if (is_superseded(pair)) return superseded_error(event.pair, *pair.ownership.superseded_by);
  if (event.rollback) return refuse_directory(pair, "rollback");  // else judged when it is no repetition
  if (!event.path.empty()) {
    if (auto error = refuse_directory(pair, fmt::format("v{} from '{}'", event.version, event.path))) return error;
  }
  if (event.lineage && *event.lineage != pair.lineage)
    return error_of(ErrorCode::superseded, fmt::format("pair '{}': lineage {} asked for, the present one is {}",
                                                       event.pair, *event.lineage, pair.lineage));
  if (event.path.empty() && (pair.spec.trainer_kind == TrainerKind::external || pair.spec.trainer_urls.empty()))
    return error_of(ErrorCode::invalid_argument,
                    fmt::format("pair '{}' has no trainers to ask for a save; hand over a finished directory "
                                "(`update --from DIR`, or \"path\")",
                                event.pair));
  return std::nullopt;
}

// As `wanted_by` says it of a request.
std::string wanted_before(const Update& update) {
  if (update.rollback) return fmt::format("the rollback to v{}", update.version.version);
  RequestUpdate asked;
  asked.version = update.version.version;
  asked.path = update.path;
  return wanted_by(asked);
}

// The update that this request is a repetition of: the same key, or the same version while it is wanted already.
// `error`: it isn't one after all, since it names another version or directory.
std::optional<UpdateId> joined(Context& context, const Pair& pair, const RequestUpdate& event,
                               std::optional<Error>& error) {
  if (!event.key.empty()) {
    const auto known = pair.keys.find(event.key);
    if (known != pair.keys.end()) {
      const Update* update = context.find_update(known->second);
      if (update && !is_repetition(*update, event))
        error =
            error_of(ErrorCode::conflict, fmt::format("pair '{}': idempotency key '{}' was used for {}, not {}",
                                                      event.pair, event.key, wanted_before(*update), wanted_by(event)));
      return known->second;
    }
  }
  if (event.rollback && !event.rollback_to) return running_rollback(context, pair);
  const std::int64_t wanted = event.rollback ? *event.rollback_to : event.version;
  const auto wants_it = [&](const UpdateId& id) {
    const Update* update = context.find_update(id);
    return update && update->kind == UpdateKind::update && update->rollback == event.rollback &&
           update->version.version == wanted &&
           (event.rollback ? !event.lineage || update->version.lineage == *event.lineage
                           : update->version.lineage == pair.lineage);
  };
  std::optional<UpdateId> found;
  if (wants_it(pair.active)) {
    found = pair.active;
  } else if (const auto queued = std::find_if(pair.queue.begin(), pair.queue.end(), wants_it);
             queued != pair.queue.end()) {
    found = *queued;
  }
  if (!found || event.rollback) return found;
  const Update& update = *context.find_update(*found);
  if (!is_repetition(update, event))
    error = error_of(ErrorCode::conflict, fmt::format("pair '{}': {} is on its way, not {}; cancel it, or take another "
                                                      "number",
                                                      event.pair, wanted_before(update), wanted_by(event)));
  return found;
}

VersionRef version_to_make(const Pair& pair, const RequestUpdate& event) {
  VersionRef version{pair.lineage, event.version, "", event.policy.label_format, ""};
  if (const auto at = version.label.find("{version}"); at != std::string::npos)
    version.label.replace(at, std::string_view("{version}").size(), std::to_string(event.version));
  return version;
}

// `target`: of a rollback.
UpdateId enqueue(Context& context, Pair& pair, const RequestUpdate& event, const StoredVersion* target) {
  Update update;
  update.number = context.state().next_update++;
  update.id = fmt::format("{}-{}", context.state().boot, update.number);
  update.pair = event.pair;
  update.version = target ? target->version : version_to_make(pair, event);
  update.rollback = target != nullptr;
  update.attempt = ++pair.attempts;
  update.key = event.key;
  update.path = !target ? event.path : target->handed ? target->version.directory : std::string();
  update.policy = event.policy;
  update.transfer = is_by_transfer(pair, update);
  update.requested_at = context.now();
  note_use(pair, context.now(), true);
  update.phases.push_back(PhaseTime{UpdateState::queued, context.now(), Milliseconds{0}});
  const UpdateId id = update.id;
  if (!event.key.empty()) pair.keys[event.key] = id;
  pair.queue.push_back(id);
  json::object body{{"version", update.version.version},
                    {"lineage", update.version.lineage},
                    {"attempt", update.attempt},
                    {"label", update.version.label},
                    {"policy", policy_body(event.policy)}};
  if (!event.key.empty()) body["key"] = event.key;
  if (!update.path.empty()) body["path"] = update.path;
  if (target) {
    body["rollback"] = true;
    body["directory"] = target->version.directory;
    body["digest"] = target->version.digest;
  }
  context.record(RecordKind::update_requested, update, "", std::move(body));
  context.state().updates.emplace(id, std::move(update));
  return id;
}

void coalesce(Context& context, Pair& pair, std::int64_t version, bool wanted) {
  if (!wanted) return;
  const std::deque<UpdateId> queue = pair.queue;
  for (const UpdateId& id : queue) {
    Update* update = context.find_update(id);
    if (!update || update->rollback || update->version.version >= version) continue;
    std::erase(pair.queue, id);
    end_before_pause(context, *update, UpdateState::rejected,
                     error_of(ErrorCode::superseded, fmt::format("pair '{}': v{} was superseded by v{} before it began",
                                                                 update->pair, update->version.version, version)));
  }
}

bool same_workers(const PairSpec& a, const PairSpec& b) {
  const auto same = [](const WorkerSpec& x, const WorkerSpec& y) { return x.url == y.url && x.dialect == y.dialect; };
  return std::equal(a.workers.begin(), a.workers.end(), b.workers.begin(), b.workers.end(), same);
}

// Asks the running update to make way: cancelled while engines are untouched, waited for otherwise.
void make_way(Context& context, const std::string& name, Pair& pair, const std::string& why) {
  abort_queue(context, pair, error_of(ErrorCode::cancelled, fmt::format("pair '{}': {}", name, why)));
  Update* active = context.find_update(pair.active);
  if (active && active->kind == UpdateKind::update && active->state <= UpdateState::preparing)
    end_before_pause(
        context, *active, UpdateState::aborted,
        error_of(ErrorCode::cancelled, fmt::format("pair '{}': v{}: {}", name, active->version.version, why)));
}

}  // namespace

void on_connect(Context& context, const ConnectPair& event) {
  State& state = context.state();
  if (state.stopping)
    return reply(context, event.token, error_of(ErrorCode::shutting_down, "the gateway is shutting down"));
  if (is_connecting(context, event.spec.name))
    return reply(context, event.token,
                 error_of(ErrorCode::conflict,
                          fmt::format("pair '{}' is being connected; ask when that was answered", event.spec.name)));
  if (auto error = refuse_spec(context, event.spec)) return reply(context, event.token, std::move(error));
  const auto it = state.pairs.find(event.spec.name);
  if (it == state.pairs.end()) {
    if (state.pairs.size() >= limits::kPairsMax)
      return reply(context, event.token,
                   error_of(ErrorCode::queue_full,
                            fmt::format("{} pairs of at most {}", state.pairs.size(), limits::kPairsMax)));
    return event.spec.awex ? begin_group_connect(context, event) : apply_spec(context, event);
  }
  Pair& pair = it->second;
  if (!pair.removing.empty())
    return reply(context, event.token,
                 error_of(ErrorCode::conflict, fmt::format("pair '{}' is being removed", event.spec.name)));
  // By files in place of a group, or the other way round: that waits for the running update, as other workers do.
  const bool same_mode = pair.spec.awex.has_value() == event.spec.awex.has_value();
  if (!event.new_lineage && same_mode && same_workers(pair.spec, event.spec)) {
    const std::string save_path = std::exchange(pair.spec, event.spec).save_path;  // they hold from the next update on
    note_use(pair, context.now(), false);
    context.record(RecordKind::pair_connected, event.spec.name, "", "", connected_body(event.spec, pair.lineage));
    epoch_at_connect(context, event.spec.name, save_path);
    return reply(context, event.token, std::nullopt);
  }
  if (pair.reconnect)
    reply(context, pair.reconnect->token,
          error_of(ErrorCode::superseded, fmt::format("pair '{}' was connected again", event.spec.name)));
  pair.reconnect = event;
  make_way(context, event.spec.name, pair, "the pair was connected again");
  pair_is_idle(context, event.spec.name);
}

void on_remove(Context& context, const RemovePair& event) {
  const auto it = context.state().pairs.find(event.pair);
  if (it == context.state().pairs.end())
    return reply(context, event.token, error_of(ErrorCode::not_found, fmt::format("Pair '{}' not found", event.pair)));
  Pair& pair = it->second;
  pair.removing.push_back(event.token);
  if (pair.removing.size() > 1) return;
  if (pair.reconnect) {
    reply(context, pair.reconnect->token,
          error_of(ErrorCode::conflict, fmt::format("pair '{}' is being removed", event.pair)));
    pair.reconnect.reset();
    abandon_connect(context, event.pair);
  }
  refuse_changes(context, pair, error_of(ErrorCode::conflict, fmt::format("pair '{}' is being removed", event.pair)));
  make_way(context, event.pair, pair, "the pair was disconnected");
  pair_is_idle(context, event.pair);
}

void pair_is_idle(Context& context, const std::string& name) {
  const auto it = context.state().pairs.find(name);
  if (it == context.state().pairs.end()) return;
  Pair& pair = it->second;
  if (!pair.active.empty() && !mutant(Mutant::updates_interleave)) return;
  if (is_connecting(context, name)) return;
  if (pair.queue.empty() && !context.state().stopping && start_bring_back(context, name)) return;
  if (pair.reconnect) {  // while it waited another pair may have taken a worker of its list
    if (auto error = refuse_spec(context, pair.reconnect->spec)) {
      reply(context, pair.reconnect->token, std::move(error));
      pair.reconnect.reset();
    }
  }
  const bool wants_leave = !pair.removing.empty() || pair.reconnect;
  if (wants_leave) drop_joins(context, pair, "the pair was disconnected or connected again");
  if (wants_leave && !context.state().stopping && start_leave_job(context, name, pair)) return;
  if (!pair.removing.empty()) {
    const std::vector<ReplyToken> tokens = pair.removing;
    remove_lora(context, pair);
    drop_group(context, name, "the pair was disconnected");
    const std::vector<std::string> abandoned = release_leaving(context, name, pair);
    context.record(RecordKind::pair_removed, name, "", "", {{"abandoned", abandoned.size()}});
    auto& orphans = context.state().orphans;
    orphans.insert(orphans.end(), pair.joins_ended.begin(), pair.joins_ended.end());
    orphans.insert(orphans.end(), pair.history.begin(), pair.history.end());
    for (; orphans.size() > limits::kUpdatesRememberedMax; orphans.pop_front())
      context.state().updates.erase(orphans.front());
    context.state().pairs.erase(it);
    for (ReplyToken token : tokens) {
      if (token != 0) context.emit(Reply{token, std::nullopt, {}, abandoned});
    }
    return;
  }
  if (pair.reconnect) {
    const ConnectPair event = *pair.reconnect;
    if (event.spec.awex && context.state().stopping) {
      pair.reconnect.reset();
      return reply(context, event.token, error_of(ErrorCode::shutting_down, "the gateway is shutting down"));
    }
    if (event.spec.awex) return begin_group_connect(context, event);
    apply_spec(context, event);
    context.state().pairs[name].reconnect.reset();
  }
  if (!apply_changes(context, name)) return;
  if (!pair.active.empty() || context.state().stopping) return;
  if (pair.queue.empty()) return collect_unleased(context, name);
  const UpdateId next = pair.queue.front();
  pair.queue.pop_front();
  pair.active = next;
  begin_update(context, context.state().updates.at(next));
}

void on_request(Context& context, const RequestUpdate& event) {
  if (auto error = refuse_request(context, event)) return reply(context, event.token, std::move(error));
  Pair& pair = context.state().pairs.at(event.pair);
  std::optional<Error> error;
  if (const auto known = joined(context, pair, event, error)) {
    if (!error && !event.key.empty() && pair.keys.emplace(event.key, *known).second)
      context.record(RecordKind::key_joined, event.pair, *known, "", {{"key", event.key}});
    return reply(context, event.token, std::move(error), *known);
  }
  if (pair.queue.size() >= limits::kQueuedUpdatesMax)
    return reply(context, event.token,
                 error_of(ErrorCode::queue_full,
                          fmt::format("pair '{}': {} updates wait already", event.pair, pair.queue.size())));
  std::optional<StoredVersion> target;
  if (event.rollback) {
    Result<StoredVersion> found = rollback_target(pair, event);
    if (!found) return reply(context, event.token, found.error());
    target = *std::move(found);
  }
  const UpdateId id = enqueue(context, pair, event, target ? &*target : nullptr);
  reply(context, event.token, std::nullopt, id);
  if (!event.rollback) coalesce(context, pair, event.version, event.policy.coalesce);
  pair_is_idle(context, event.pair);
}

void on_cancel(Context& context, const CancelUpdate& event) {
  Update* update = context.find_update(event.update);
  if (!update)
    return reply(context, event.token,
                 error_of(ErrorCode::not_found, fmt::format("update '{}' not found", event.update)));
  const auto refuse = [&](std::string_view why) {
    reply(context, event.token,
          error_of(ErrorCode::conflict, fmt::format("update {} can't be cancelled: {}", event.update, why)));
  };
  if (is_terminal(update->state)) return refuse(fmt::format("it ended as {}", name(update->state)));
  if (update->state == UpdateState::restoring) return refuse("it is being undone already");
  if (update->state >= UpdateState::committing) return refuse("its version is committed");
  reply(context, event.token, std::nullopt, event.update);
  Error error{
      ErrorCode::cancelled,
      fmt::format("pair '{}': v{}: cancelled in phase {}", update->pair, update->version.version, name(update->state)),
      nullptr};
  if (update->state >= UpdateState::pausing) return begin_restoring(context, *update, std::move(error));
  std::erase(context.pair_of(*update).queue, event.update);
  end_before_pause(context, *update, UpdateState::aborted, std::move(error));
}

void stop_update(Context& context, Update& update) {
  const Error error{ErrorCode::shutting_down, "the gateway is shutting down", nullptr};
  if (update.kind != UpdateKind::update) return;
  if (update.state < UpdateState::pausing) return end_before_pause(context, update, UpdateState::aborted, error);
  if (update.state < UpdateState::committing) begin_restoring(context, update, error);
}

void on_shutdown(Context& context) {
  State& state = context.state();
  if (state.stopping) return;
  state.stopping = true;
  context.record(RecordKind::gateway_stopping, "", "", "", {});
  std::vector<std::string> names;
  for (const auto& [name, pair] : state.pairs) names.push_back(name);
  const Error error{ErrorCode::shutting_down, "the gateway is shutting down", nullptr};
  refuse_connects(context, error);
  for (const std::string& name : names) {
    Pair& pair = state.pairs.at(name);
    abort_queue(context, pair, error);
    refuse_changes(context, pair, error);
    if (pair.ownership.recover_waits) continue;  // it goes on when its epoch was looked at
    if (pair.spec.lora) drop_joins(context, pair, "the gateway stops");
    Update* active = context.find_update(pair.active);
    const bool holds = active && active->state >= UpdateState::pausing;
    if (active && !(holds && stop_waits_for_look(context, name))) stop_update(context, *active);
  }
  for (const std::string& name : names) pair_is_idle(context, name);
  stop_if_idle(context);
}

}  // namespace weighlock::protocol
