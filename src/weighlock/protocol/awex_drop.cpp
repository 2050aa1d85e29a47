// How transfer groups end: dropped by their pair, by another that takes their trainers, or by the next process.
#include "weighlock/protocol/awex_drop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/ownership.hpp"

namespace weighlock::protocol {

bool share(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  return std::any_of(one.begin(), one.end(),
                     [&](const std::string& url) { return std::find(other.begin(), other.end(), url) != other.end(); });
}

void record_dead_group(Context& context, const std::string& pair, const std::string& name, std::string_view why) {
  context.record(RecordKind::group, pair, "", "", {{"what", "dead"}, {"name", name}, {"why", why}});
}

bool is_anothers(const State& state, const std::string& name) {
  const auto pair = state.pairs.find(name);
  if (pair != state.pairs.end() && is_superseded(pair->second)) return true;
  return std::any_of(state.workers.begin(), state.workers.end(), [&](const auto& entry) {
    return entry.second.pair == name && entry.second.state == WorkerState::foreign;
  });
}

namespace {

// Groups of processes before this one, of the pair or with some of these trainers, who are about to join another: they
// are told to leave them. Not the trainers of a pair that another gateway has: they are in that one's group.
void drop_left_groups(Context& context, const std::string& pair, const std::vector<std::string>& trainers) {
  State& state = context.state();
  const auto& pairs = state.pairs;
  auto& left = state.left_groups;
  for (auto it = left.begin(); it != left.end();) {
    const auto& [name, group] = *it;
    if (group.pair != pair && !share(group.trainers, trainers)) {
      ++it;
      continue;
    }
    const auto owner = pairs.find(group.pair);
    const bool is_wanted = share(group.trainers, trainers);
    if (owner == pairs.end() || (!is_superseded(owner->second) && (is_wanted || !is_anothers(state, group.pair)))) {
      record_dead_group(context, group.pair, name, "its gateway ended");
      AwexSpec awex;
      awex.colocate = group.colocate;
      context.emit(DropGroup{group.pair, name, std::move(awex), group.trainers});
    }
    it = left.erase(it);
  }
}

}  // namespace

void drop(Context& context, const std::string& pair, const AwexSpec& awex, const TransferGroup& group,
          std::string_view why, bool are_told) {
  record_dead_group(context, pair, group.name, why);
  context.emit(DropGroup{pair, group.name, awex, are_told ? group.trainers : std::vector<std::string>()});
}

void end_group(Context& context, const std::string& name, std::string_view why, bool are_told) {
  const auto it = context.state().pairs.find(name);
  if (it == context.state().pairs.end() || !it->second.group) return;
  const TransferGroup group = *std::exchange(it->second.group, std::nullopt);
  drop(context, name, it->second.spec.awex.value_or(AwexSpec{}), group, why, are_told);
}

// A trainer is in one group at a time.
void free_trainers(Context& context, const std::string& pair, const std::vector<std::string>& trainers) {
  std::vector<std::string> losing;
  for (const auto& [name, other] : context.state().pairs) {
    if (name != pair && other.group && share(other.group->trainers, trainers)) losing.push_back(name);
  }
  for (const std::string& name : losing)
    end_group(context, name, fmt::format("its trainers join the group of pair '{}'", pair),
              !is_superseded(context.state().pairs.at(name)));
  drop_left_groups(context, pair, trainers);
}

void drop_group(Context& context, const std::string& name, std::string_view why) {
  drop_left_groups(context, name, {});
  end_group(context, name, why, !is_anothers(context.state(), name));
}

}  // namespace weighlock::protocol
