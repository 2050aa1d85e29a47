// Two gateways on one fleet: how one is stopped and goes on, and what the one that lost a pair may not do
// (design/protocol.md section 9).
#include <fmt/format.h>

#include <utility>

#include "sim/gateway.hpp"
#include "sim/violation.hpp"
#include "weighlock/core/limits.hpp"

namespace weighlock::sim {

namespace {

// A look, its answer, and a group of the journal that must be over first.
constexpr Milliseconds kLookSlack{1'500};

}  // namespace

void Gateway::when_awake(std::function<void()> work) {
  if (!stands_still_) return work();
  later_.push_back([life = life_, this, work = std::move(work)] {
    if (life == life_) work();
  });
}

void Gateway::stand_still() {
  if (dying_ || stands_still_ || invariants_.stopped()) return;
  trace_.line("gateway {} stands still", index_);
  ++coverage_.stood_still;
  stands_still_ = true;
  stood_since_ = now();
}

void Gateway::go_on() {
  if (!stands_still_) return;
  trace_.line("gateway {} goes on", index_);
  invariants_.stood_still(now() - stood_since_);
  stands_still_ = false;
  awake_since_ = now();
  for (const std::function<void()>& work : std::exchange(later_, {})) {
    if (dying_) break;
    work();
  }
}

void Gateway::schedule_stops() {
  for (const Stop& stop : scenario_.stops) {
    if (stop.gateway != index_) continue;
    scheduler_.at(stop.from, [this] { stand_still(); });
    scheduler_.at(stop.until, [this] { go_on(); });
  }
}

bool Gateway::may_not_know(const std::string& pair) const {
  const std::optional<std::size_t> owner = epochs_.owner(pair);
  if (!owner || *owner == index_ || epochs_.overdue(index_, pair)) return true;
  const auto trouble = epochs_.trouble(index_);  // a look that failed counts for nothing, and nothing waits for it
  return decided_at_ <= std::max(epochs_.taken_at(pair), trouble) + limits::kEpochStale;
}

// Who was replaced commands nothing: what was decided upon a look that came before is on its way.
void Gateway::check_rivalry(const protocol::Call& call) const {
  if (!scenario_.has_rivals() || !(changes_engine(call.operation.kind) || changes_adapters(call.operation.kind)))
    return;
  const auto worker = state().workers.find(call.worker);
  const auto update = state().updates.find(call.update);
  std::string pair = worker == state().workers.end() ? "" : worker->second.pair;
  if (update != state().updates.end()) pair = update->second.pair;
  if (const auto adapter = state().adapter_calls.find(call.call); adapter != state().adapter_calls.end())
    pair = adapter->second.pair;
  if (may_not_know(pair)) return;
  throw Violation{
      5, fmt::format("gateway {} sends {} to {}, and {} is another's since {} ms", index_, name(call.operation.kind),
                     call.worker, pair, (decided_at_ - epochs_.taken_at(pair)).count())};
}

void Gateway::check_commits(const std::vector<protocol::Record>& group) const {
  if (!scenario_.has_rivals()) return;
  for (const protocol::Record& record : group) {
    if (record.kind == protocol::RecordKind::commit && !may_not_know(record.pair))
      throw Violation{5, fmt::format("gateway {} commits {}, and {} is another's since {} ms", index_, record.update,
                                     record.pair, (decided_at_ - epochs_.taken_at(record.pair)).count())};
  }
}

void Gateway::let_go(const std::string& url) {
  if (scenario_.has_rivals()) network_.find(url)->pause_is_forgotten();
}

// It finds out in time, and says so.
void Gateway::check_knows() const {
  if (!scenario_.has_rivals() || stands_still_ || dying_ || invariants_.stopped()) return;
  for (const auto& [name, pair] : state().pairs) {
    const std::optional<std::size_t> owner = epochs_.owner(name);
    if (!owner || *owner == index_ || pair.ownership.epoch == 0 || pair.ownership.superseded_by) continue;
    const Instant since = std::max({epochs_.taken_at(name), awake_since_, epochs_.trouble(index_)});
    if (now() - since > limits::kEpochLookPeriod + kLookSlack)
      throw Violation{5, fmt::format("gateway {} does not know that {} is another's since {} ms", index_, name,
                                     (now() - since).count())};
  }
}

void Gateway::check() {
  if (dying_) return;
  invariants_.check_state();
  check_knows();
}

}  // namespace weighlock::sim
