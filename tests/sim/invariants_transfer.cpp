// Pairs that transfer from rank to rank (docs/adr/0005): their groups, and who may call a collective done.
#include <algorithm>
#include <utility>

#include "sim/invariants.hpp"
#include "sim/violation.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock::sim {

using protocol::SaveOutcomeKind;

namespace {

std::string text_of(const protocol::Record& record, const char* key) {
  const json::value* value = record.body.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

}  // namespace

std::int64_t Invariants::content_of(const std::string& pair, const protocol::VersionRef& version) const {
  return version.directory.empty() ? w_.transfers.content_of(pair, version) : content_of(version.directory);
}

void Invariants::note_group_record(const protocol::Record& record) {
  if (text_of(record, "what") == "build") group_intents_.insert(text_of(record, "name"));
  if (text_of(record, "what") == "transfer") transfer_intents_.insert(record.update);
}

void Invariants::check_build(const protocol::BuildGroup& build) {
  if (group_intents_.count(build.name) == 0)
    throw Violation{6, fmt::format("group {} is built, and no record says so", build.name)};
  if (!group_names_.insert(build.name).second)
    throw Violation{10, fmt::format("the name {} is used for a second group", build.name)};
  if (build.trainers.empty() || build.workers.empty())
    throw Violation{0, fmt::format("group {} has no members", build.name)};
  GroupBook& book = groups_[build.name];
  present_groups_.insert(build.name);
  for (const std::string& url : build.trainers) last_group_of_[url] = build.name;
  book.trainers = build.trainers;
  book.workers = build.workers;
  for (const std::string& url : build.workers) {
    const auto worker = state().workers.find(url);
    book.was_read[url] = worker != state().workers.end() && !worker->second.incarnation.empty();
  }
  group_asks_[build.ask] = build.name;
}

void Invariants::check_drop(const protocol::DropGroup& drop) {
  // One of a process before: whether it stood, or was dropped already, may have been in records that were lost.
  if (group_intents_.contains(drop.name) && !present_groups_.contains(drop.name)) return;
  const auto group = groups_.find(drop.name);
  if (group == groups_.end() || !group->second.built)
    throw Violation{0, fmt::format("group {} is dropped, which was never built", drop.name)};
  groups_.erase(group);
}

void Invariants::on_group_built(const protocol::GroupBuilt& event) {
  const auto ask = group_asks_.find(event.ask);
  if (ask == group_asks_.end()) throw Violation{0, fmt::format("nobody asked for group {}", event.ask)};
  if (event.error) {
    groups_.erase(ask->second);
  } else {
    groups_[ask->second].built = true;
  }
  group_asks_.erase(ask);
}

void Invariants::check_transfer(const protocol::RunTransfer& run) {
  if (run.name.empty()) return check_hand_over(run, {});  // a worker that came out of it late
  const auto found = groups_.find(run.name);
  if (found == groups_.end() || !found->second.built)
    throw Violation{5, fmt::format("update {} uses group {}, which isn't there", run.update, run.name)};
  if (transfer_intents_.count(run.update) == 0)
    throw Violation{6, fmt::format("the collective of {} has no durable intent", run.update)};
  GroupBook& group = found->second;
  if (!group.used_by.empty() && group.used_by != run.update && !ended_well(group.used_by))
    throw Violation{
        10, fmt::format("group {} is used again after {}, which did not end well there", run.name, group.used_by)};
  for (const std::string& url : group.trainers) {
    if (last_group_of_[url] == run.name) continue;
    throw Violation{10, fmt::format("group {} is used, and its trainer {} was asked to join {} since", run.name, url,
                                    last_group_of_[url])};
  }
  group.used_by = run.update;
  TransferBook& book = transfers_[run.update];
  for (const auto* members : {&run.trainers, &run.workers}) {
    for (const auto& member : *members) {
      book.open.insert(member.call);
      transfer_of_[member.call] = run.update;
    }
  }
  for (const auto& member : run.workers) {
    const auto call = call_worker_.find(member.call);
    if (call == call_worker_.end() || call->second != member.url)
      throw Violation{6, fmt::format("{} takes part in a collective, and no call says so", member.url)};
  }
  if (run.step != protocol::HandOverStep::transfer) return check_hand_over(run, group);
  if (std::exchange(book.has_begun, true))
    throw Violation{10, fmt::format("update {} begins a second collective", run.update)};
  check_members(run, group);
  ++w_.coverage.collectives;
}

void Invariants::check_members(const protocol::RunTransfer& run, GroupBook& group) const {
  const auto urls = [](const std::vector<protocol::RunTransfer::Member>& members) {
    std::vector<std::string> out;
    for (const auto& member : members) out.push_back(member.url);
    return out;
  };
  if (urls(run.trainers) != group.trainers || urls(run.workers) != group.workers)
    throw Violation{5, fmt::format("the collective of {} has other members than group {}", run.update, run.name)};
  for (const auto& member : run.workers) {
    const auto worker = state().workers.find(member.url);
    const std::string joined = w_.transfers.process_in(run.name, member.url);
    if (group.was_read[member.url] && worker != state().workers.end() && worker->second.incarnation != joined)
      throw Violation{5, fmt::format("{} takes part as {}, and the process in group {} was {}", member.url,
                                     worker->second.incarnation, run.name, joined)};
    group.was_read[member.url] = true;
  }
}

// An engine is asked to resume a tag once for each time that it was released: at the beginning of a transfer.
void Invariants::check_hand_over(const protocol::RunTransfer& run, const GroupBook& group) {
  if (run.step == protocol::HandOverStep::release_optimizer) {
    for (const std::string& url : group.workers) memory_asked_.erase(url);
  }
  for (const auto& member : run.workers) {
    if (!memory_asked_[member.url].insert(run.step).second)
      throw Violation{5, fmt::format("{} is asked twice: {}", member.url, name(run.step))};
  }
  ++w_.coverage.hand_overs;
}

bool Invariants::ended_well(const protocol::UpdateId& update) const {
  const auto book = transfers_.find(update);
  return book != transfers_.end() && book->second.open.empty() && book->second.failed.empty();
}

void Invariants::note_part_ended(protocol::CallId call, bool ok) {
  const auto known = transfer_of_.find(call);
  if (known == transfer_of_.end()) return;
  TransferBook& book = transfers_.at(known->second);
  if (book.open.erase(call) == 0) return;
  if (!ok) book.failed.insert(call);
  if (book.has_begun && ended_well(known->second) && !std::exchange(book.counted, true)) ++w_.coverage.collectives_well;
}

// A collective has no verdict for one member: it is done when all say so.
void Invariants::check_transferred(const protocol::Update& update) const {
  const auto book = transfers_.find(update.id);
  if (book == transfers_.end() || !book->second.has_begun)
    throw Violation{3, fmt::format("update {} commits what was never transferred", update.id)};
  if (ended_well(update.id)) return;
  throw Violation{3, fmt::format("update {} commits although {} members of its collective failed and {} did not answer",
                                 update.id, book->second.failed.size(), book->second.open.size())};
}

// After the faults a collective ends well, on a new group if need be; unless a worker needs more than that.
std::string Invariants::unsettled_last(protocol::ReplyToken token) const {
  const auto ask = w_.clients.asks().find(token);
  if (ask == w_.clients.asks().end() || ask->second.refused || stopped_) return "";
  const auto found = state().updates.find(ask->second.update);
  if (found == state().updates.end()) return "";
  const protocol::Update& update = found->second;
  const bool good = update.state == protocol::UpdateState::succeeded || update.state == protocol::UpdateState::degraded;
  const bool began = transfers_.count(update.id) > 0;
  const bool unbuilt = update.error && update.error->text().find("transfer group could not be built") != std::string::npos;
  if (good || (!began && !unbuilt)) return "";  // else nobody was touched: who is there is too few, or held
  if (update.policy.deadlines.whole) return "";
  for (const auto& [url, worker] : state().workers) {
    const EngineTruth& real = truth(url);
    if (worker.pair == ask->second.pair &&
        (!real.alive || real.stuck || worker.memory > protocol::EngineMemory::released))
      return "";
  }
  return fmt::format("no fault any more, and update {} is {}: {}", update.id, name(update.state),
                     update.error ? update.error->text() : "");
}

// A process that starts has no group: what another one built is never used.
void Invariants::forget_groups() {
  present_groups_.clear();
  last_group_of_.clear();
  groups_.clear();
  group_asks_.clear();
}

}  // namespace weighlock::sim
