// Which pairs of a scenario transfer from rank to rank.
#include <algorithm>

#include "sim/scenario.hpp"

namespace weighlock::sim {
namespace {

constexpr Milliseconds kBringUpTimeout{300'000};  // transfers.cpp
constexpr unsigned kAwexPermille = 250;           // of the runs with one gateway

Milliseconds draw_timeout(Random& dice) {
  if (dice.chance(600)) return Milliseconds{dice.between(3'000, 12'000)};
  if (dice.chance(800)) return Milliseconds{dice.between(12'000, 90'000)};
  return Milliseconds{dice.between(90'000, 600'000)};
}

void make_awex(Random& dice, Scenario& scenario, std::size_t p) {
  protocol::PairSpec& pair = scenario.pairs[p];
  pair.awex.emplace().colocate = dice.chance(200);
  scenario.no_storage[p] = dice.chance(400);
  if (scenario.no_storage[p]) scenario.stores[p] = StoreSettings{};  // of a path that nobody knows
  scenario.group_timeouts[p] = draw_timeout(dice);
  // No file is there to compare with.
  auto& evidence = pair.policy.evidence;
  if (evidence == Evidence::spot || evidence == Evidence::checksum) evidence = Evidence::label;
}

// A training job with two pairs, as for engines that evaluate: its trainers are in one group at a time.
void share_trainers(Random& dice, Scenario& scenario) {
  const protocol::PairSpec& first = scenario.pairs[0];
  for (std::size_t p = 1; p < scenario.pairs.size(); ++p) {
    protocol::PairSpec& pair = scenario.pairs[p];
    if (!pair.awex || pair.awex->colocate || first.awex->colocate || scenario.calm[p] || scenario.calm[0]) continue;
    if (dice.chance(300)) pair.trainer_urls = first.trainer_urls;
  }
}

void draw_faults(Random& dice, Faults& faults) {
  const unsigned share = static_cast<unsigned>(dice.between(0, 500));
  for (const Fault fault : {Fault::group_fails, Fault::group_late, Fault::group_never, Fault::group_lost}) {
    if (dice.chance(share)) faults.set_rate(fault, static_cast<unsigned>(dice.between(20, 200)));
  }
}

}  // namespace

void draw_awex(Random& dice, Scenario& scenario, Faults& faults) {
  scenario.no_storage.resize(scenario.pairs.size());
  scenario.group_timeouts.resize(scenario.pairs.size(), Milliseconds{0});
  if (scenario.has_rivals() || !dice.chance(kAwexPermille)) return;
  for (std::size_t p = 0; p < scenario.pairs.size(); ++p) {
    if (!scenario.pairs[p].lora && (p == 0 || dice.chance(500))) make_awex(dice, scenario, p);
  }
  share_trainers(dice, scenario);
  draw_faults(dice, faults);
  for (std::size_t p = 0; p < scenario.pairs.size(); ++p) {
    if (!scenario.pairs[p].awex || scenario.calm[p]) continue;
    const bool caller = scenario.pairs[p].policy.pause == protocol::PauseOwner::caller;
    ClientAction last;
    last.at = scenario.faults_end + kBringUpTimeout + Milliseconds{50'000} + scenario.group_timeouts[p];
    last.kind = caller ? ClientActionKind::pause_first : ClientActionKind::request;
    last.pair = p;
    scenario.actions.push_back(last);  // its group may have lost a process that was never read
    last.at = last.at + Milliseconds{100'000} + scenario.group_timeouts[p];
    last.is_last = true;
    scenario.actions.push_back(last);
    scenario.last_at = std::max(scenario.last_at, last.at);
  }
}

void plan_awex(Scenario& scenario, bool on_storage) {
  scenario.pairs[0].awex = protocol::AwexSpec{};
  scenario.no_storage = {!on_storage};
  scenario.group_timeouts = {Milliseconds{8'000}};
  scenario.actions[1].at = Instant{5'000};  // its group stands by then
  if (on_storage) scenario.actions[1].kind = ClientActionKind::request_path;
  scenario.actions.back().kind = ClientActionKind::request;
}

}  // namespace weighlock::sim
