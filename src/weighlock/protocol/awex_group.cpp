// The transfer group of a pair: built at connect and before an update that needs another, dropped when it is in doubt.
#include "weighlock/protocol/awex.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/awex_drop.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

// Of a member that told no start time, and that another process answers for now: it equals no start time that is told.
constexpr const char* kUnreadProcess = "(not told)";
constexpr const char* kOnNoStorage = "weights go from rank to rank, and no version is on a storage";

json::array texts(const std::vector<std::string>& list) {
  json::array out;
  for (const std::string& text : list) out.push_back(json::string(text));
  return out;
}

// Workers put the group's name into the path of a URL as it is, and clients differ in what they quote.
std::string in_a_path(std::string name) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  for (char& c : name)
    if (kPlain.find(c) == std::string_view::npos) c = '_';
  return name;
}

// Who has some of these trainers just now, in words; "" = nobody. They can't be asked for two things at once.
std::string holder_of(Context& context, const std::string& pair, const std::vector<std::string>& trainers) {
  for (const auto& [id, ask] : context.state().group_asks) {
    if (ask.place.pair != pair && share(ask.group.trainers, trainers))
      return fmt::format("the transfer group of pair '{}', which also has some of these trainers, is being built",
                         ask.place.pair);
  }
  for (const auto& [name, other] : context.state().pairs) {
    if (name == pair || !other.group || !share(other.group->trainers, trainers)) continue;
    const Update* active = context.find_update(other.active);
    if (active && active->transfer && active->state > UpdateState::preparing && !is_terminal(active->state))
      return fmt::format("update {} of pair '{}', which also has some of these trainers, is {}", active->id, name,
                         protocol::name(active->state));
  }
  return "";
}

// Asks the edge for a group of these; `ask` says for whom.
void build(Context& context, const std::string& pair, const AwexSpec& awex, GroupAsk ask) {
  State& state = context.state();
  const std::uint64_t id = state.next_id++;
  // New over restarts, too: the boot id is drawn.
  ask.group.name = fmt::format("{}.e{}-{}", in_a_path(pair), state.boot, id);
  ask.awex = awex;
  ask.place = meeting_place(state, pair, awex, ask.group.workers.front());
  ask.awex.master_addr = ask.place.address;
  ask.awex.master_port = ask.place.port;
  free_trainers(context, pair, ask.group.trainers);
  if (Update* update = context.find_update(ask.update)) update->group_ask = id;
  context.record(RecordKind::group, pair, ask.update, "",
                 {{"what", "build"},
                  {"name", ask.group.name},
                  {"trainers", texts(ask.group.trainers)},
                  {"workers", texts(ask.group.workers)},
                  {"colocate", awex.colocate},
                  {"meets_at", json::string(ask.place.address)},
                  {"port", ask.place.port}});
  note_meeting(state, ask.place);
  context.emit(BuildGroup{id, pair, ask.group.name, ask.awex, ask.group.trainers, ask.group.workers});
  state.group_asks.emplace(id, std::move(ask));
}

// Somebody unknown has the port at which this group was to meet: the next one is to try another.
void note_taken(Context& context, const GroupAsk& ask) {
  MeetingPlace place = ask.place;
  place.worker.clear();
  context.record(RecordKind::group, place.pair, ask.update, "",
                 {{"what", "port_taken"},
                  {"name", ask.group.name},
                  {"meets_at", json::string(place.address)},
                  {"port", place.port}});
  note_meeting(context.state(), std::move(place));
}

void note_built(Context& context, const std::string& name, TransferGroup group, const UpdateId& update) {
  context.record(RecordKind::group, name, update, "", {{"what", "built"}, {"name", group.name}});
  context.state().pairs.at(name).group = std::move(group);
}

// Without the workers that failed by themselves, if those that are left are enough; their words go with the group.
// Where devices are shared no group is of some.
bool build_without_refused(Context& context, Update& update, GroupAsk ask, const std::vector<RefusedWorker>& refused) {
  if (refused.empty() || ask.awex.colocate || update.policy.on_failure == OnFailure::rollback_all) return false;
  const auto serve = [&](const std::vector<std::string>& urls) {
    return static_cast<int>(std::count_if(urls.begin(), urls.end(), [&](const std::string& url) {
      return context.state().workers.at(url).state == WorkerState::ready;
    }));
  };
  const int all = static_cast<int>(ask.group.workers.size());
  const int serving = serve(ask.group.workers);
  for (const RefusedWorker& worker : refused) {
    std::erase(ask.group.workers, worker.url);
    ask.group.incarnations.erase(worker.url);
    ask.group.refused[worker.url] = worker;
  }
  const int left = static_cast<int>(ask.group.workers.size());
  if (left == 0 || left == all) return false;
  const int members = serving > 0 ? serve(ask.group.workers) : left;
  if (members < update.policy.quorum.needed(serving > 0 ? serving : all)) return false;
  build(context, update.pair, *context.pair_of(update).spec.awex, std::move(ask));
  return true;
}

void group_stands(Context& context, Update& update) {
  context.cancel_timer(update, "save");
  Pair& pair = context.pair_of(update);
  update.sealed = SealedVersion();
  update.sealed->blind = true;
  update.sealed->reference_reason = kOnNoStorage;
  if (!pair.last_good) pair.rollback_reason = kOnNoStorage;
  context.record(
      RecordKind::sealed, update, "",
      {{"directory", ""}, {"bytes", 0}, {"tensors", 0}, {"blind", true}, {"reference_reason", kOnNoStorage}});
  begin_pausing(context, update);
}

// Workers of the pair that can take part, in the order of its list, which is the order of ranks.
std::vector<std::string> reachable_workers(Context& context, const Update& update, std::string& reasons) {
  std::vector<std::string> out;
  for (const WorkerSpec& spec : context.pair_of(update).spec.workers) {
    const auto target = update.targets.find(spec.url);
    if (target == update.targets.end()) {
      reasons += fmt::format("; worker {}: {}", spec.url, name(context.state().workers.at(spec.url).state));
      continue;
    }
    const Worker& worker = context.worker_of(target->second);
    if (may_take_part(context.pair_of(update), update, target->second, worker)) {
      out.push_back(spec.url);
      continue;
    }
    const auto& cause = target->second.cause ? target->second.cause : worker.cause;
    reasons += fmt::format("; worker {}: {}", spec.url, cause ? cause->message : "left out");
  }
  return out;
}

// Who wrote another label on a member may have it in a group of another.
bool has_foreign_member(Context& context, const TransferGroup& group) {
  return std::any_of(group.workers.begin(), group.workers.end(), [&](const std::string& url) {
    return context.state().workers.at(url).state == WorkerState::foreign;
  });
}

// A process that started anew is in no group, whatever its URL.
bool has_new_process(Context& context, const TransferGroup& group) {
  return std::any_of(group.workers.begin(), group.workers.end(), [&](const std::string& url) {
    const auto joined = group.incarnations.find(url);
    return joined != group.incarnations.end() && !joined->second.empty() &&
           joined->second != context.state().workers.at(url).incarnation;
  });
}

// Of a member that had not been read when the group was built.
void note_members(Context& context, TransferGroup& group) {
  for (const std::string& url : group.workers) group.incarnations[url] = context.state().workers.at(url).incarnation;
}

// A process that starts anew before the first update is known by what it was when it joined.
void read_members(Context& context, const std::string& pair) {
  for (const auto& [url, incarnation] : context.state().pairs.at(pair).group->incarnations) {
    if (incarnation.empty()) look_soon(context, context.state().workers.at(url), Milliseconds(0));
  }
}

void connect_built(Context& context, GroupAsk ask, const std::optional<Error>& error) {
  const ConnectPair event = *ask.connect;
  const std::string& name = event.spec.name;
  State& state = context.state();
  const auto fail = [&](Error why) {
    if (event.token != 0) context.emit(Reply{event.token, std::move(why), {}, {}});
  };
  const auto known = state.pairs.find(name);
  std::optional<Error> refused = error;
  if (!refused && state.stopping) refused = Error{ErrorCode::shutting_down, "the gateway is shutting down", nullptr};
  if (!refused) refused = refuse_spec(context, event.spec);
  if (refused) {
    if (!error) drop(context, name, ask.awex, ask.group, "its pair could not be connected", !is_anothers(state, name));
    // Its trainers left the pair's former group, if they were in one.
    drop_group(context, name, "its trainers were asked to join another");
    if (known != state.pairs.end()) known->second.reconnect.reset();
    fail(std::move(*refused));
  } else {
    drop_group(context, name, "the pair was connected again");
    apply_spec(context, event);  // whoever is on its list no more leaves by it
    state.pairs.at(name).reconnect.reset();
    note_built(context, name, std::move(ask.group), "");
    read_members(context, name);
  }
  pair_is_idle(context, name);
  stop_if_idle(context);
}

// Two pairs would release the memory of one trainer by turns.
std::optional<Error> refuse_shared_memory(Context& context, const PairSpec& spec) {
  for (const auto& [name, pair] : context.state().pairs) {
    const auto& other = pair.spec;
    if (name == spec.name || !other.awex || !spec.awex || !(other.awex->colocate || spec.awex->colocate)) continue;
    for (const std::string& url : spec.trainer_urls) {
      const auto& taken = other.trainer_urls;
      if (std::find(taken.begin(), taken.end(), url) == taken.end()) continue;
      return Error{ErrorCode::conflict,
                   fmt::format("pair '{}': trainer {} shares its memory with the workers of pair '{}' (colocate); "
                               "disconnect it there first",
                               spec.name, url, name),
                   nullptr};
    }
  }
  return std::nullopt;
}

}  // namespace

bool is_by_transfer(const Pair& pair, const Update& update) {
  return pair.spec.awex && !update.rollback && update.path.empty();
}

std::string why_no_last_good(const Update& update) {
  return update.transfer
             ? fmt::format("v{} was transferred from rank to rank, and is on no storage", update.version.version)
             : std::string("the storage is not visible from the gateway");
}

std::optional<Error> refuse_awex(Context& context, const PairSpec& spec) {
  if (spec.awex && spec.trainer_urls.empty())
    return Error{ErrorCode::invalid_argument,
                 fmt::format("pair '{}': trainers: the list is empty, and a transfer needs one URL for each rank, in "
                             "the order of ranks",
                             spec.name),
                 nullptr};
  if (auto error = refuse_shared_memory(context, spec)) return error;
  if (const std::string holder = spec.awex ? holder_of(context, spec.name, spec.trainer_urls) : ""; !holder.empty())
    return Error{ErrorCode::conflict, fmt::format("pair '{}': {}; connect when that has ended", spec.name, holder),
                 nullptr};
  for (const auto& [id, ask] : context.state().group_asks) {
    if (spec.lora || !ask.connect || ask.connect->spec.name == spec.name) continue;  // adapters are beside a model
    for (const WorkerSpec& worker : spec.workers) {
      const auto& taken = ask.group.workers;
      if (std::find(taken.begin(), taken.end(), worker.url) == taken.end()) continue;
      return Error{ErrorCode::conflict,
                   fmt::format("pair '{}': worker {} is being connected to pair '{}'; disconnect it there first",
                               spec.name, worker.url, ask.connect->spec.name),
                   nullptr};
    }
  }
  return std::nullopt;
}

bool is_connecting(Context& context, const std::string& pair) {
  const auto& asks = context.state().group_asks;
  return std::any_of(asks.begin(), asks.end(), [&](const auto& entry) {
    return entry.second.connect && entry.second.connect->spec.name == pair;
  });
}

void begin_group_connect(Context& context, const ConnectPair& event) {
  GroupAsk ask;
  ask.connect = event;
  ask.group.trainers = event.spec.trainer_urls;
  for (const WorkerSpec& worker : event.spec.workers) {
    ask.group.workers.push_back(worker.url);
    const auto known = context.state().workers.find(worker.url);
    std::string& incarnation = ask.group.incarnations[worker.url];
    if (known != context.state().workers.end()) incarnation = known->second.incarnation;
  }
  build(context, event.spec.name, *event.spec.awex, std::move(ask));
}

void note_read_member(Context& context, const Worker& worker) {
  const auto pair = context.state().pairs.find(worker.pair);
  if (pair == context.state().pairs.end() || !pair->second.group) return;
  const auto known = pair->second.group->incarnations.find(worker.url);
  if (known != pair->second.group->incarnations.end() && known->second.empty()) known->second = worker.incarnation;
}

bool is_brought_up(const State& state, const std::string& worker) {
  return std::any_of(state.group_asks.begin(), state.group_asks.end(), [&](const auto& entry) {
    const auto& members = entry.second.group.workers;
    return std::find(members.begin(), members.end(), worker) != members.end();
  });
}

void note_replaced_member(Context& context, const Worker& worker, const std::string& before) {
  const auto pair = context.state().pairs.find(worker.pair);
  if (pair == context.state().pairs.end() || !pair->second.group) return;
  const auto known = pair->second.group->incarnations.try_emplace(worker.url, before).first;
  if (known->second.empty()) known->second = before.empty() ? kUnreadProcess : before;
}

void refuse_connects(Context& context, const Error& error) {
  for (auto& [id, ask] : context.state().group_asks) {
    if (!ask.connect) continue;
    if (ask.connect->token != 0) context.emit(Reply{ask.connect->token, error, {}, {}});
    const auto pair = context.state().pairs.find(ask.connect->spec.name);
    if (pair != context.state().pairs.end()) pair->second.reconnect.reset();
    ask.connect.reset();
  }
}

void abandon_connect(Context& context, const std::string& pair) {
  for (auto& [id, ask] : context.state().group_asks) {
    if (ask.connect && ask.connect->spec.name == pair) ask.connect.reset();
  }
}

void on_group_built(Context& context, const GroupBuilt& event) {
  auto node = context.state().group_asks.extract(event.ask);
  if (node.empty()) return;
  GroupAsk ask = std::move(node.mapped());
  if (event.port_taken) note_taken(context, ask);
  if (event.error) record_dead_group(context, ask.place.pair, ask.group.name, "it could not be built");
  if (ask.connect) return connect_built(context, std::move(ask), event.error);
  Update* update = context.find_update(ask.update);
  const bool waits = update && update->state == UpdateState::preparing && update->group_ask == event.ask;
  if (!waits) {
    if (!event.error)
      drop(context, update ? update->pair : "", ask.awex, ask.group, "nobody waits for it any more",
           !is_anothers(context.state(), ask.place.pair));
    return;
  }
  if (event.error) {
    if (build_without_refused(context, *update, ask, event.refused)) return;
    Error error{event.error->code,
                fmt::format("pair '{}': v{}: the transfer group could not be built: {}", update->pair,
                            update->version.version, event.error->text()),
                nullptr};
    return end_before_pause(context, *update, UpdateState::aborted, std::move(error));
  }
  note_built(context, update->pair, std::move(ask.group), update->id);
  group_stands(context, *update);
}

void prepare_transfer(Context& context, Update& update) {
  update.save_done = true;
  list_before_pause(context, update);
  begin_survey(context, update);
}

void transfer_survey_done(Context& context, Update& update) {
  update.survey_done = true;
  Pair& pair = context.pair_of(update);
  std::string reasons;
  const std::vector<std::string> workers = reachable_workers(context, update, reasons);
  if (workers.empty())
    return end_before_pause(
        context, update, UpdateState::rejected,
        Error{ErrorCode::unreachable,
              fmt::format("pair '{}': v{}: no worker can be updated{}", update.pair, update.version.version, reasons),
              nullptr});
  // Ranks of both sides are paired device by device.
  if (shares_devices(pair) && workers.size() != pair.spec.workers.size())
    return end_before_pause(
        context, update, UpdateState::rejected,
        Error{ErrorCode::unreachable,
              fmt::format("pair '{}': v{}: where devices are shared all workers take part in an "
                          "update, and {} of {} can{}",
                          update.pair, update.version.version, workers.size(), pair.spec.workers.size(), reasons),
              nullptr});
  const bool fits = pair.group && pair.group->workers == workers && pair.group->trainers == pair.spec.trainer_urls &&
                    !has_new_process(context, *pair.group) && !has_foreign_member(context, *pair.group);
  if (fits) {
    note_members(context, *pair.group);
    return group_stands(context, update);
  }
  if (const std::string holder = holder_of(context, update.pair, pair.spec.trainer_urls); !holder.empty())
    return end_before_pause(context, update, UpdateState::rejected,
                            Error{ErrorCode::conflict,
                                  fmt::format("pair '{}': v{}: {}; ask again when that has ended", update.pair,
                                              update.version.version, holder),
                                  nullptr});
  update.targets.clear();
  end_group(context, update.pair, "its members changed", true);  // they join the next one
  GroupAsk ask;
  ask.update = update.id;
  ask.group.trainers = pair.spec.trainer_urls;
  ask.group.workers = workers;
  note_members(context, ask.group);
  build(context, update.pair, *pair.spec.awex, std::move(ask));
}

void leave_out_of_group(Context& context, Update& update, Target& target) {
  const auto& group = context.pair_of(update).group;
  if (!group) return;
  if (const auto refused = group->refused.find(target.worker); refused != group->refused.end()) {
    target.included = false;
    const RefusedWorker& why = refused->second;
    target.cause = context.cause(
        why.unreachable ? CauseCode::unreachable : CauseCode::needs_restart,
        fmt::format("it could not join the transfer group: {}; restart it, or release it to have it tried again",
                    why.words));
    return;
  }
  const auto& in = group->workers;
  const auto joined = group->incarnations.find(target.worker);
  const bool is_member = std::find(in.begin(), in.end(), target.worker) != in.end();
  const bool is_same = joined == group->incarnations.end() || joined->second.empty() ||
                       joined->second == context.worker_of(target).incarnation;
  if (is_member && is_same) return;
  target.included = false;
  target.cause =
      context.cause(CauseCode::unreachable, is_member ? "a new process answers, which is not in the transfer group"
                                                      : "it came back after the transfer group was built");
}

bool group_is_whole(Context& context, const Update& update) {
  const auto& group = context.pair_of(update).group;
  return group && std::all_of(group->workers.begin(), group->workers.end(), [&](const std::string& url) {
           const auto target = update.targets.find(url);
           return target != update.targets.end() && target->second.included;
         });
}

}  // namespace weighlock::protocol
