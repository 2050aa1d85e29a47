#include "sim/epochs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/limits.hpp"

namespace weighlock::sim {

using protocol::ClaimedEpoch;
using protocol::Epoch;

std::string owner_id(std::size_t gateway) {
  return fmt::format("owner{}", gateway);
}

Epochs::Epochs(const Scenario& scenario, Faults& faults, Scheduler& scheduler, const Trace& trace, Taken taken)
    : scenario_(scenario),
      random_(scenario.seed ^ 0x94d049bb133111ebULL),
      faults_(faults),
      scheduler_(scheduler),
      trace_(trace),
      taken_(std::move(taken)) {}

std::int64_t Epochs::delay(std::size_t gateway, const std::string& pair) {
  if (scenario_.is_calm(pair) || !faults_.strikes(Fault::slow_epochs)) return random_.between(1, 20);
  const std::int64_t slow = random_.between(200, 9'000);
  trouble_[gateway] = std::max(trouble_[gateway], scheduler_.now() + Milliseconds{slow});
  return slow;
}

std::optional<Error> Epochs::fails(const std::string& pair, bool writes) {
  const std::size_t index = scenario_.pair_of(pair);
  if (scenario_.stores[index].blind) return Error{ErrorCode::storage_not_visible, "not mounted here"};
  if (scenario_.calm[index] || !faults_.strikes(Fault::epochs_fail)) return std::nullopt;
  if (writes) return Error{ErrorCode::storage_full, "no space for the epoch's file"};
  return Error{ErrorCode::storage_failed, "stale file handle"};
}

// As store/epoch does it.
Result<ClaimedEpoch> Epochs::claim_now(std::size_t gateway, const protocol::ClaimEpoch& effect) {
  if (std::optional<Error> error = fails(effect.pair, true)) return *error;
  Files& files = files_[effect.pair];
  const Epoch top = files.by_number.empty() ? Epoch{} : files.by_number.rbegin()->second;
  ClaimedEpoch out;
  Epoch mine{effect.epoch, effect.owner, effect.owner + "-host", "", "", effect.paused};
  if (effect.epoch == 0) {
    mine.number = top.owner == effect.owner ? top.number : top.number + 1;
    const auto above = files.by_number.lower_bound(mine.number);
    if (above != files.by_number.begin() && std::prev(above)->second.owner != effect.owner)
      out.predecessor = std::prev(above)->second;
    for (const protocol::HeldWorker& held : out.predecessor ? out.predecessor->paused : effect.paused) {
      const auto same = [&](const protocol::HeldWorker& one) { return one.url == held.url; };
      if (std::none_of(mine.paused.begin(), mine.paused.end(), same)) mine.paused.push_back(held);
    }
  } else if (top.number >= effect.epoch && top.owner != effect.owner) {
    out.superseded_by = top;
    return out;
  }
  out.epoch = mine.number;
  files.by_number[mine.number] = mine;
  if (trace_.on()) {
    std::string list;
    for (const protocol::HeldWorker& one : mine.paused)
      list += fmt::format(" {} '{}'{}", one.url, one.label, one.held ? "" : " (for its label)");
    trace_.line("{}: gateway {} lists{}", effect.pair, gateway, list);
  }
  if (files.owner != gateway) {
    trace_.line("{} is gateway {}'s: epoch {}", effect.pair, gateway, mine.number);
    files.owner = gateway;
    files.taken_at = scheduler_.now();
    taken_(effect.pair, gateway);
  }
  return out;
}

void Epochs::claim(std::size_t gateway, const protocol::ClaimEpoch& effect, Answer answer) {
  const int deaths = deaths_[gateway];
  scheduler_.after(delay(gateway, effect.pair), [this, gateway, effect, deaths, answer = std::move(answer)] {
    // The next process has the state directory's lock, so the last write of this one is over, or never comes.
    if (deaths_[gateway] != deaths) return;
    Result<ClaimedEpoch> claimed = claim_now(gateway, effect);
    scheduler_.after(random_.between(1, 10), [ask = effect.ask, pair = effect.pair, answer, claimed] {
      answer(protocol::EpochClaimed{ask, pair, claimed});
    });
  });
}

void Epochs::look(std::size_t gateway, const protocol::LookEpoch& effect, Answer answer) {
  looks_[{gateway, effect.ask}] = Look{effect.pair, scheduler_.now()};
  scheduler_.after(delay(gateway, effect.pair), [this, gateway, effect, answer = std::move(answer)] {
    Result<Epoch> seen = Epoch{};
    if (std::optional<Error> error = fails(effect.pair, false)) {
      seen = *error;
      trouble_[gateway] = std::max(trouble_[gateway], scheduler_.now());  // a look at another pair may be slow still
    } else if (const Files& files = files_[effect.pair]; !files.by_number.empty()) {
      seen = files.by_number.rbegin()->second;
    }
    scheduler_.after(random_.between(1, 10), [ask = effect.ask, pair = effect.pair, answer, seen] {
      answer(protocol::EpochSeen{ask, pair, seen});
    });
  });
}

void Epochs::gateway_died(std::size_t gateway) {
  ++deaths_[gateway];
  std::erase_if(looks_, [&](const auto& entry) { return entry.first.first == gateway; });
}

void Epochs::told(std::size_t gateway, std::uint64_t ask) {
  looks_.erase({gateway, ask});
}

std::optional<std::size_t> Epochs::owner(const std::string& pair) const {
  const auto it = files_.find(pair);
  return it == files_.end() ? std::nullopt : it->second.owner;
}

Instant Epochs::taken_at(const std::string& pair) const {
  const auto it = files_.find(pair);
  return it == files_.end() ? Instant{} : it->second.taken_at;
}

Instant Epochs::trouble(std::size_t gateway) const {
  const auto it = trouble_.find(gateway);
  return it == trouble_.end() ? Instant{} : it->second;
}

bool Epochs::overdue(std::size_t gateway, const std::string& pair) const {
  return std::any_of(looks_.begin(), looks_.end(), [&](const auto& entry) {
    return entry.first.first == gateway && entry.second.pair == pair &&
           scheduler_.now() - entry.second.began >= limits::kEpochLookTimeout;
  });
}

}  // namespace weighlock::sim
