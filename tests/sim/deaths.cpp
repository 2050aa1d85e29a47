// How the gateway dies, and what the next one starts with (world.hpp).
#include <fmt/format.h>

#include <algorithm>

#include "sim/dump.hpp"
#include "sim/gateway.hpp"
#include "sim/violation.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/protocol/replay.hpp"

namespace weighlock::sim {

using protocol::Record;

namespace {

// Ids of calls that no record names must not be used again: the world would take them for the same call.
constexpr std::uint64_t kIdsPerLife = 1'000'000;

}  // namespace

protocol::State Gateway::first_state() {
  protocol::State state;
  state.boot = index_ == 0 ? "sim" : fmt::format("rival{}", index_);
  state.next_id = std::max(state.next_id, kIdsPerGateway * index_);
  if (!scenario_.keeps_epochs) return state;
  state.owner = owner_id(index_);
  journal_.push_back(Record{protocol::RecordKind::owner, "", "", "", {{"owner", state.owner}}});
  return state;
}

bool Gateway::in_planned_time() const {
  return scheduler_.now() >= kPlannedFrom && scheduler_.now() < kPlannedUntil;
}

Gateway::Fate Gateway::planned_fate() {
  if (!in_planned_time()) return Fate::goes_on;
  ++places_;
  if (plan_->dies_first > 0 && !plan_began_) {
    if (places_ < plan_->dies_first) return Fate::goes_on;
    places_ = 0;
    plan_began_ = true;
    return Fate::dies_after;
  }
  if (places_ != plan_->nth || plan_reached_) return Fate::goes_on;
  plan_reached_ = true;
  if (plan_->what == Plan::What::fail) return Fate::fails;
  return plan_->what == Plan::What::die_before ? Fate::dies_before : Fate::dies_after;
}

Gateway::Fate Gateway::fate() {
  if (plan_ != nullptr) return planned_fate();
  const bool may_die = faults_.on() && lives_left_ > 0 && effect_death_permille_ > 0;
  if (!may_die || !death_dice_.chance(effect_death_permille_)) return Fate::goes_on;
  return death_dice_.chance(500) ? Fate::dies_before : Fate::dies_after;
}

void Gateway::doom(int effects) {
  dying_ = true;
  effects_left_ = effects;
  scheduler_.after(0, [this, life = life_] {
    if (life == life_) die();
  });
}

// As after a power failure with a disk that had not written what it said that it had.
void Gateway::lose_tail() {
  const auto groups = static_cast<std::size_t>(death_dice_.between(1, 3));
  const std::size_t left = group_ends_.size() > groups ? group_ends_.size() - groups : 0;
  if (left == group_ends_.size()) return;
  group_ends_.resize(left);
  journal_.resize(left > 0 ? group_ends_.back() : scenario_.keeps_epochs ? 1 : 0);
  trace_.line("the last {} groups are gone: the journal ends at record {}", groups, journal_.size());
  ++coverage_.tails_lost;
  network_.time_passes();
  clients_.keys_are_forgotten();
  invariants_.tail_lost(journal_);
}

protocol::State Gateway::replayed() {
  const auto replay = [&](bool clock_jumps) {
    protocol::Replay read(scenario_.dialects);
    for (const Record& record : journal_) {
      Record as_read = record;  // as the journal gives it back
      as_read.body = parse_json(json::serialize(record.body), "record")->as_object();
      const Milliseconds jump{clock_jumps ? death_dice_.between(-400'000'000, 400'000'000) : 0};
      read.take(as_read, now() + jump);
    }
    return read.finish(fmt::format("{}{}", index_ == 0 ? "sim" : fmt::format("rival{}-", index_), life_), now());
  };
  protocol::State state = replay(true);
  if (dump(state) != dump(replay(false))) throw Violation{14, "what a replay gives depends on the clock, or on chance"};
  journal_.push_back(Record{protocol::RecordKind::gateway_started, "", "", "", {}});
  if (dump(state) != dump(replay(true)))
    throw Violation{14, "a process that dies before it has done anything changes what the next one reads"};
  if (!group_ends_.empty()) group_ends_.back() = journal_.size();
  return state;
}

void Gateway::die() {
  if (invariants_.stopped()) {  // it has ended by itself, and whoever came in the last moment is told nothing
    dying_ = false;
    clients_.gateway_ended();
    return;
  }
  if (!group_on_its_way_.empty() && death_dice_.chance(500))
    on_group_durable(std::exchange(group_on_its_way_, {}), nullptr, false, 0);
  group_on_its_way_.clear();
  ++life_;
  --lives_left_;
  ++coverage_.deaths;
  trace_.line("gateway {} dies and starts again", index_);
  appending_ = dying_ = stands_still_ = false;
  later_.clear();
  awake_since_ = now();
  timers_.clear();
  network_.gateway_died(index_);
  parts_.clear();
  transfers_.gateway_died(index_);
  store_.gateway_died(index_);
  epochs_.gateway_died(index_);
  clients_.gateway_died();
  if (loses_tails_ && death_dice_.chance(500)) lose_tail();
  invariants_.gateway_died(journal_);
  protocol::State state = replayed();
  state.next_id = std::max(state.next_id, kIdsPerGateway * index_ + kIdsPerLife * static_cast<std::uint64_t>(life_));
  driver_ = std::make_unique<protocol::Driver>(std::move(state), scenario_.dialects, *this);
  invariants_.watch(*driver_);
  post(protocol::Recover{});
}

// Between two events, too.
void Gateway::schedule_deaths() {
  if (plan_ != nullptr || lives_left_ == 0 || !death_dice_.chance(300)) return;
  for (int i = 0; i < 2; ++i) {
    scheduler_.at(Instant{death_dice_.between(0, scenario_.faults_end.ms)}, [this] {
      if (faults_.on() && lives_left_ > 0 && !dying_ && !invariants_.stopped()) die();
    });
  }
}

}  // namespace weighlock::sim
