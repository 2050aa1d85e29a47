#include "sim/scenario.hpp"

#include <fmt/format.h>
#include <algorithm>

namespace weighlock::sim {
namespace {

using protocol::PairSpec;
using protocol::Policy;

constexpr unsigned kCalmPermille = 80;       // runs without any fault: a machine that fails everything must not pass
constexpr unsigned kIsolatedPermille = 250;  // of the runs with several pairs: faults strike the first only

constexpr unsigned kLoraPermille = 350;
constexpr std::int64_t kLeaseMs = 86'400'000;  // longer than any run: a pair is in use to its end, or nobody is brought
                                               // back between updates

DialectTraits sglang_traits(Random& random) {
  DialectTraits traits;
  traits.kind = DialectKind::sglang;
  traits.pause_modes = {PauseMode::abort, PauseMode::keep, PauseMode::retract};
  traits.load_sets_label = true;
  traits.load_flushes = true;
  traits.load_barrier_needs_pause = random.chance(500);  // true of the real one; false also drawn: both must hold
  traits.missing_directory_harmless = true;
  traits.evidence_best = Evidence::spot;
  traits.barriers = {OperationKind::load, OperationKind::set_label, OperationKind::flush, OperationKind::pause,
                     OperationKind::resume};
  if (random.chance(100)) traits.barriers = {OperationKind::load, OperationKind::pause, OperationKind::resume};
  return traits;
}

DialectTraits vllm_traits() {
  DialectTraits traits;
  traits.kind = DialectKind::vllm;
  traits.pause_modes = {PauseMode::abort, PauseMode::keep, PauseMode::wait};
  traits.heal_needs_empty_load = true;
  traits.evidence_best = Evidence::checksum;
  traits.barriers = {OperationKind::load,  OperationKind::load_empty, OperationKind::set_label,
                     OperationKind::flush, OperationKind::pause,      OperationKind::resume};
  return traits;
}

// Rates are high where a fault has few chances in a run.
unsigned usual_rate(Fault fault, Random& random) {
  switch (fault) {
    case Fault::disk_full:
    case Fault::bad_checkpoint:
    case Fault::layout_change:
    case Fault::digest_fail:
    case Fault::slow_store:
      return 150;
    case Fault::tear:
    case Fault::lie:
    case Fault::new_but_failed:
    case Fault::die_in_load:
    case Fault::stuck:
    case Fault::foreign_pause:
    case Fault::never_back:
      return static_cast<unsigned>(random.between(30, 350));
    case Fault::foreign_label:
    case Fault::deny:
    case Fault::freeze:
    case Fault::partition:
      return static_cast<unsigned>(random.between(3, 20));
    case Fault::restart:
      return static_cast<unsigned>(random.between(3, 60));
    case Fault::slow_journal:
      return 200;
    default:
      return static_cast<unsigned>(random.between(10, 120));
  }
}

void draw_faults(Random& random, Faults& faults) {
  // One fault in four on average; sometimes nearly all.
  const unsigned share = random.chance(100) ? 800 : static_cast<unsigned>(random.between(60, 400));
  for (std::size_t i = 0; i < static_cast<std::size_t>(Fault::slow_epochs); ++i) {
    const auto fault = static_cast<Fault>(i);
    if (random.chance(share)) faults.set_rate(fault, usual_rate(fault, random));
  }
  // A worker that never comes back must first go away.
  if (faults.enabled(Fault::never_back)) faults.set_rate(Fault::restart, usual_rate(Fault::restart, random));
}

Policy draw_policy(Random& random, bool calm, const PairSpec& pair, const StoreSettings& store) {
  Policy policy;
  const bool all_vllm = std::all_of(pair.workers.begin(), pair.workers.end(),
                                    [](const protocol::WorkerSpec& w) { return w.dialect == DialectKind::vllm; });
  const bool all_sglang = std::all_of(pair.workers.begin(), pair.workers.end(),
                                      [](const protocol::WorkerSpec& w) { return w.dialect == DialectKind::sglang; });
  if (random.chance(250)) policy.quorum.kind = protocol::Quorum::Kind::all;
  if (random.chance(200)) {
    policy.quorum.kind = protocol::Quorum::Kind::count;
    policy.quorum.count = static_cast<int>(random.between(1, static_cast<std::int64_t>(pair.workers.size())));
  }
  if (random.chance(200)) policy.on_failure = protocol::OnFailure::rollback_all;
  if (random.chance(300)) policy.canary = static_cast<int>(random.between(1, 2));
  if (random.chance(150)) policy.max_lag = static_cast<int>(random.between(1, 2));
  if (random.chance(300)) policy.load_window = static_cast<int>(random.between(1, 3));
  if (random.chance(200)) policy.pause_mode = PauseMode::keep;
  if (all_vllm && random.chance(200)) policy.pause_mode = PauseMode::wait;
  if (all_sglang && random.chance(200)) policy.pause_mode = PauseMode::retract;
  if (random.chance(40)) policy.pause = protocol::PauseOwner::never;
  if (random.chance(120)) policy.pause = protocol::PauseOwner::caller;
  if (random.chance(200)) policy.digest = protocol::DigestPolicy::before;
  if (random.chance(200) || store.blind) policy.digest = protocol::DigestPolicy::off;
  if (random.chance(300)) {
    policy.evidence = Evidence::label;
    if (!store.blind && random.chance(500)) policy.evidence = Evidence::spot;
    if (!store.blind && all_vllm && policy.digest != protocol::DigestPolicy::off && random.chance(300)) {
      policy.evidence = Evidence::checksum;
    }
    if (random.chance(250)) policy.evidence = Evidence::probe;
  }
  const bool trusting = random.chance(250);
  if (trusting) policy.evidence = Evidence::acknowledged;
  policy.allow_layout_change = random.chance(150);
  policy.keep_versions = static_cast<int>(random.between(1, 3));
  policy.coalesce = random.chance(200);
  policy.pair_lease = Milliseconds{calm || random.chance(700) ? kLeaseMs : 0};
  policy.straggler_min = Milliseconds{2'000};
  policy.deadlines.save = Milliseconds{60'000};
  policy.deadlines.pause = Milliseconds{random.between(2'000, 10'000)};
  policy.deadlines.load = Milliseconds{random.between(15'000, 60'000)};
  policy.deadlines.verify = Milliseconds{random.between(2'000, 10'000)};
  policy.deadlines.resume = Milliseconds{random.between(2'000, 10'000)};
  if (random.chance(100)) policy.deadlines.whole = Milliseconds{random.between(5'000, 60'000)};
  if (calm) {  // nothing may be cut short
    policy.straggler_min = Milliseconds{60'000};
    policy.deadlines = protocol::Deadlines{};
    if (!trusting) policy.evidence.reset();
    policy.allow_layout_change = false;
  }
  return policy;
}

void draw_pairs(Random& random, Scenario& scenario) {
  const std::int64_t pairs = random.chance(600) ? 1 : random.between(2, 3);
  const bool all_calm = random.chance(kCalmPermille);
  const bool one_suffers = random.chance(kIsolatedPermille);
  for (std::int64_t p = 0; p < pairs; ++p) scenario.calm.push_back(all_calm || (one_suffers && p > 0));
  for (std::int64_t p = 0; p < pairs; ++p) {
    PairSpec pair;
    pair.name = fmt::format("pair{}", p);
    pair.save_path = fmt::format("/store/{}", pair.name);
    const std::int64_t workers = random.between(1, pairs == 1 ? 6 : 3);
    const std::int64_t mix = random.between(0, 2);  // all SGLang, all vLLM, both
    for (std::int64_t w = 0; w < workers; ++w) {
      const bool vllm = mix == 1 || (mix == 2 && random.chance(500));
      EngineSpec engine;
      engine.url = fmt::format("http://{}{}.{}:30000", vllm ? "v" : "s", w, pair.name);
      engine.kind = vllm ? DialectKind::vllm : DialectKind::sglang;
      scenario.engines.push_back(engine);
      pair.workers.push_back(protocol::WorkerSpec{engine.url, engine.kind});
    }
    const std::int64_t ranks = random.between(1, 4);
    for (std::int64_t r = 0; r < ranks; ++r)
      pair.trainer_urls.push_back(fmt::format("http://t{}.{}:9000", r, pair.name));
    if (random.chance(200)) pair.save_trigger = protocol::SaveTrigger::rank0;
    StoreSettings store;
    store.blind = random.chance(100);
    store.start_readable = random.chance(700);
    pair.policy = draw_policy(random, scenario.calm[static_cast<std::size_t>(p)], pair, store);
    if (random.chance(200)) {  // "auto": the machine has to ask
      for (protocol::WorkerSpec& worker : pair.workers) worker.dialect.reset();
    }
    scenario.pairs.push_back(std::move(pair));
    scenario.stores.push_back(store);
  }
}

// Beside a full-model pair on its engines, or on engines of its own.
void draw_lora_pair(Random& random, Scenario& scenario) {
  const std::size_t host = random.below(scenario.pairs.size());
  const bool all_calm = std::all_of(scenario.calm.begin(), scenario.calm.end(), [](bool calm) { return calm; });
  const bool shares = random.chance(750);
  PairSpec pair;
  pair.name = fmt::format("lora{}", scenario.pairs.size());
  pair.save_path = fmt::format("/store/{}", pair.name);
  pair.lora = protocol::LoraSpec{fmt::format("ad{}", scenario.pairs.size()), random.between(0, 3)};
  const std::int64_t own = random.between(1, 3);
  for (std::int64_t w = 0; !shares && w < own; ++w) {
    EngineSpec engine;
    engine.url = fmt::format("http://w{}.{}:30000", w, pair.name);
    engine.kind = random.chance(500) ? DialectKind::vllm : DialectKind::sglang;
    scenario.engines.push_back(engine);
    pair.workers.push_back(protocol::WorkerSpec{engine.url, engine.kind});
  }
  for (const protocol::WorkerSpec& worker : scenario.pairs[host].workers) {
    if (shares && (pair.workers.empty() || random.chance(700))) pair.workers.push_back(worker);
  }
  pair.trainer_urls.push_back(fmt::format("http://t0.{}:9000", pair.name));
  pair.policy.quorum.kind = protocol::Quorum::Kind::all;
  if (random.chance(300)) pair.policy.quorum.kind = protocol::Quorum::Kind::half;
  if (random.chance(200)) pair.policy.on_failure = protocol::OnFailure::rollback_all;
  if (random.chance(200)) pair.policy.canary = 1;
  if (random.chance(200)) pair.policy.load_window = 1;
  pair.policy.allow_layout_change = true;
  if (!all_calm) {
    pair.policy.straggler_min = Milliseconds{2'000};
    pair.policy.deadlines.save = Milliseconds{60'000};
    pair.policy.deadlines.pause = Milliseconds{random.between(2'000, 10'000)};
    pair.policy.deadlines.load = Milliseconds{random.between(15'000, 60'000)};
    pair.policy.deadlines.verify = Milliseconds{random.between(2'000, 10'000)};
  }
  StoreSettings store;
  store.blind = !all_calm && random.chance(100);
  scenario.calm.push_back(all_calm);
  scenario.pairs.push_back(std::move(pair));
  scenario.stores.push_back(store);
}

ClientActionKind draw_action(Random& random) {
  const std::int64_t roll = random.between(0, 99);
  if (roll < 46) return ClientActionKind::request;
  if (roll < 52) return ClientActionKind::change_worker;
  if (roll < 55) return ClientActionKind::request_again;
  if (roll < 61) return ClientActionKind::request_same_key;
  if (roll < 67) return ClientActionKind::request_same_version;
  if (roll < 71) return ClientActionKind::request_lower;
  if (roll < 72) return ClientActionKind::roll_back;
  if (roll < 73) return ClientActionKind::collect;
  if (roll < 77) return ClientActionKind::request_path;
  if (roll < 86) return ClientActionKind::cancel;
  if (roll < 91) return ClientActionKind::reconnect;
  if (roll < 93) return ClientActionKind::remove;
  if (roll < 95) return ClientActionKind::steal_worker;
  if (roll < 97) return ClientActionKind::continue_all;
  return ClientActionKind::pause_first;
}

// What the clients of one pair do; when they do the last of it.
std::int64_t draw_actions_of(Random& random, Scenario& scenario, std::size_t p) {
  std::int64_t at = random.between(1, 500);
  scenario.actions.push_back({Instant{at}, ClientActionKind::connect, p});
  const std::int64_t count = random.between(2, 8);
  const bool calm = scenario.calm[p];
  for (std::int64_t i = 0; i < count; ++i) {
    // Calm clients wait for one update before they ask for the next, the others don't.
    at += calm                 ? random.between(150'000, 200'000)
          : random.chance(300) ? random.between(1, 3'000)
                               : random.between(10'000, 90'000);
    ClientActionKind kind = calm ? ClientActionKind::request : draw_action(random);
    const bool other_kind = kind == ClientActionKind::steal_worker || kind == ClientActionKind::pause_first;
    if (scenario.pairs[p].lora && other_kind) kind = ClientActionKind::request;
    const bool caller = scenario.pairs[p].policy.pause == protocol::PauseOwner::caller;
    if (caller && kind == ClientActionKind::request) kind = ClientActionKind::pause_first;
    scenario.actions.push_back({Instant{at}, kind, p});
    if (kind == ClientActionKind::remove) {
      scenario.actions.push_back({Instant{at + random.between(1, 60'000)}, ClientActionKind::connect, p});
    }
  }
  return at;
}

void draw_actions(Random& random, Scenario& scenario) {
  std::int64_t latest = 0;
  for (std::size_t p = 0; p < scenario.pairs.size(); ++p)
    latest = std::max(latest, draw_actions_of(random, scenario, p));
  scenario.faults_end = Instant{latest + random.between(5'000, 90'000)};
  const bool any_calm = std::find(scenario.calm.begin(), scenario.calm.end(), true) != scenario.calm.end();
  scenario.shuts_down = !any_calm && random.chance(120);
  if (scenario.shuts_down)
    scenario.actions.push_back({Instant{random.between(1'000, latest + 20'000)}, ClientActionKind::shutdown, 0});
}

// A second adapter on the same engines, with clients of its own.
void draw_second_adapter(Random& dice, Scenario& scenario) {
  const std::size_t first = scenario.pairs.size() - 1;
  PairSpec pair = scenario.pairs[first];
  pair.name = fmt::format("lora{}", scenario.pairs.size());
  pair.save_path = fmt::format("/store/{}", pair.name);
  pair.lora = protocol::LoraSpec{fmt::format("ad{}", scenario.pairs.size()), dice.between(0, 3)};
  pair.trainer_urls = {fmt::format("http://t0.{}:9000", pair.name)};
  if (pair.workers.size() > 1 && dice.chance(500)) pair.workers.pop_back();
  scenario.calm.push_back(scenario.calm[first]);
  scenario.stores.push_back(scenario.stores[first]);
  scenario.pairs.push_back(std::move(pair));
  const std::int64_t latest = draw_actions_of(dice, scenario, first + 1);
  scenario.faults_end = std::max(scenario.faults_end, Instant{latest + dice.between(5'000, 90'000)});
}

// What windows of adapters meet beside faults: engines that have few places, pairs that nobody uses for long, and other
// adapters on the same engines.
void draw_windows(Random& dice, Scenario& scenario) {
  PairSpec& pair = scenario.pairs.back();
  if (!pair.lora) return;
  pair.policy.keep_versions = static_cast<int>(dice.between(1, 3));
  const bool calm = scenario.calm.back();
  pair.policy.pair_lease = Milliseconds{calm || dice.chance(850) ? kLeaseMs : 0};
  const bool few = !calm && dice.chance(200);
  for (EngineSpec& engine : scenario.engines) {
    if (few && engine.kind == DialectKind::sglang) engine.adapter_places = static_cast<std::size_t>(dice.between(1, 3));
  }
  if (dice.chance(200)) draw_second_adapter(dice, scenario);
}

// The clients of a second gateway connect pairs that the first one has; later somebody may want them back.
void draw_rival_actions(Random& dice, Scenario& scenario, std::size_t p, std::int64_t latest) {
  std::int64_t at = dice.between(1'000, latest + 20'000);
  std::size_t gateway = 1;
  for (int turns = dice.chance(300) ? 3 : 1; turns > 0; --turns, gateway = 1 - gateway) {
    scenario.actions.push_back(
        {Instant{at}, gateway == 1 ? ClientActionKind::connect : ClientActionKind::reconnect, p, gateway});
    if (dice.chance(500)) {  // the former owner, in the middle of what it does
      const std::int64_t from = std::max<std::int64_t>(0, at - dice.between(0, 8'000));
      scenario.stops.push_back({1 - gateway, Instant{from}, Instant{from + dice.between(500, 60'000)}});
    }
    for (std::int64_t i = dice.between(0, 3); i > 0; --i) {
      at += dice.chance(400) ? dice.between(1, 3'000) : dice.between(10'000, 90'000);
      const ClientActionKind kind = dice.chance(700) ? ClientActionKind::request : draw_action(dice);
      const bool taken =
          kind == ClientActionKind::steal_worker || (scenario.pairs[p].lora && kind == ClientActionKind::pause_first);
      scenario.actions.push_back({Instant{at}, taken ? ClientActionKind::request : kind, p, gateway});
    }
    at += dice.between(1, 60'000);
  }
}

// Each gateway may come to have one of two pairs on an engine.
std::vector<bool> draw_contested(Random& dice, const Scenario& scenario) {
  const bool any_lora =
      std::any_of(scenario.pairs.begin(), scenario.pairs.end(), [](const PairSpec& pair) { return pair.lora; });
  std::vector<bool> contested;
  for (std::size_t p = 0; p < scenario.pairs.size(); ++p) {
    const bool always = p == 0 && !any_lora;
    contested.push_back(always || dice.chance(scenario.pairs[p].lora ? 750 : p == 0 ? 700 : 500));
  }
  if (std::find(contested.begin(), contested.end(), true) == contested.end()) contested.back() = true;
  return contested;
}

void draw_rivals(Random& dice, Scenario& scenario, Faults& faults) {
  const bool any_calm = std::find(scenario.calm.begin(), scenario.calm.end(), true) != scenario.calm.end();
  if (!any_calm && dice.chance(chosen_rivals_permille)) scenario.gateways = 2;
  scenario.keeps_epochs = scenario.has_rivals() || dice.chance(chosen_epochs_permille);
  if (!scenario.keeps_epochs) return;
  if (dice.chance(300)) faults.set_rate(Fault::slow_epochs, static_cast<unsigned>(dice.between(5, 100)));
  if (dice.chance(200)) faults.set_rate(Fault::epochs_fail, static_cast<unsigned>(dice.between(5, 100)));
  if (!scenario.has_rivals()) return;
  const std::int64_t latest = scenario.actions.back().at.ms;
  for (StoreSettings& store : scenario.stores) store.blind = false;  // where no file is seen nothing keeps them apart
  for (ClientAction& action : scenario.actions) {
    if (action.kind == ClientActionKind::steal_worker) action.kind = ClientActionKind::request;
  }
  const std::vector<bool> contested = draw_contested(dice, scenario);
  for (std::size_t p = 0; p < scenario.pairs.size(); ++p) {
    if (contested[p]) draw_rival_actions(dice, scenario, p, latest);
  }
  for (const ClientAction& action : scenario.actions)
    scenario.faults_end = std::max(scenario.faults_end, action.at + Milliseconds{5'000});
  for (const Stop& stop : scenario.stops)
    scenario.faults_end = std::max(scenario.faults_end, stop.until + Milliseconds{5'000});
}

// On the addresses of engines that end the other one starts. Only where each policy is for both: a worker that can't do
// what its pair asks for stays out, and the pair's updates are refused.
void draw_replacements(Random& dice, const Scenario& scenario, Faults& faults) {
  const bool fit = std::all_of(scenario.pairs.begin(), scenario.pairs.end(), [](const PairSpec& pair) {
    const PauseMode mode = pair.policy.pause_mode;
    return mode != PauseMode::wait && mode != PauseMode::retract && pair.policy.evidence != Evidence::checksum;
  });
  if (!fit || !dice.chance(200)) return;
  faults.set_rate(Fault::replaced, static_cast<unsigned>(dice.between(200, 900)));
  faults.set_rate(Fault::restart, usual_rate(Fault::restart, dice));
}

}  // namespace

// Every name in a scenario holds its pair's.
std::size_t Scenario::pair_of(std::string_view name) const {
  for (std::size_t p = 0; p < pairs.size(); ++p) {
    if (name.find(pairs[p].name) != std::string_view::npos) return p;
  }
  return 0;
}

Scenario planned_scenario(std::uint64_t seed, Random& random) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.planned = true;
  scenario.dialects.sglang = sglang_traits(random);
  scenario.dialects.sglang.barriers = {OperationKind::load, OperationKind::set_label, OperationKind::flush,
                                       OperationKind::pause, OperationKind::resume};
  scenario.dialects.vllm = vllm_traits();
  const std::uint64_t variant = seed % kPlannedScenarios;
  PairSpec pair;
  pair.name = "pair0";
  pair.save_path = "/store/pair0";
  for (int w = 0; w < 3; ++w) {
    const bool vllm = variant == 2 || (variant != 1 && w == 1);
    const std::string url = fmt::format("http://{}{}.pair0:30000", vllm ? "v" : "s", w);
    scenario.engines.push_back({url, vllm ? DialectKind::vllm : DialectKind::sglang});
    pair.workers.push_back(protocol::WorkerSpec{url, scenario.engines.back().kind});
  }
  pair.trainer_urls = {"http://t0.pair0:9000", "http://t1.pair0:9000"};
  if (variant == 1) pair.policy.canary = 1;
  if (variant == 2) pair.policy.pause_mode = PauseMode::keep;
  pair.policy.pair_lease = Milliseconds{kLeaseMs};
  pair.policy.straggler_min = Milliseconds{60'000};  // what is only slow isn't lost
  pair.policy.deadlines.save = Milliseconds{30'000};
  pair.policy.deadlines.pause = pair.policy.deadlines.verify = pair.policy.deadlines.resume = Milliseconds{5'000};
  pair.policy.deadlines.load = Milliseconds{20'000};
  if (variant == 3) {
    pair.lora = protocol::LoraSpec{"ad", 2};
    pair.policy.quorum.kind = protocol::Quorum::Kind::all;
    pair.policy.allow_layout_change = true;
  }
  const std::int64_t from = kPlannedFrom.ms;
  scenario.actions = {{Instant{1}, ClientActionKind::connect, 0},
                      {Instant{10}, ClientActionKind::request, 0},
                      {Instant{from}, ClientActionKind::request, 0},
                      {kPlannedUntil, ClientActionKind::request_path, 0}};
  scenario.faults_end = kPlannedUntil + Milliseconds{1};
  scenario.pairs.push_back(std::move(pair));
  scenario.stores.emplace_back();
  scenario.calm.push_back(false);
  scenario.no_storage.resize(1);
  scenario.group_timeouts.resize(1, Milliseconds{0});
  if (variant >= 4) plan_awex(scenario, variant == 5);
  return scenario;
}

Scenario draw_scenario(std::uint64_t seed, Random& random, Faults& faults) {
  Scenario scenario;
  scenario.seed = seed;
  scenario.dialects.sglang = sglang_traits(random);
  scenario.dialects.vllm = vllm_traits();
  draw_pairs(random, scenario);
  if (random.chance(kLoraPermille)) draw_lora_pair(random, scenario);
  draw_actions(random, scenario);
  draw_faults(random, faults);
  Random windows(seed ^ 0x94d049bb133111ebULL);  // likewise
  draw_windows(windows, scenario);
  Random rivals(seed ^ 0xc2b2ae3d27d4eb4fULL);  // of their own: a run without is what it was before there were any
  draw_rivals(rivals, scenario, faults);
  Random awex(seed ^ 0x1615a75fe1028668ULL);  // likewise
  draw_awex(awex, scenario, faults);
  Random replacements(seed ^ 0x2545f4914f6cdd1dULL);  // likewise
  draw_replacements(replacements, scenario, faults);
  return scenario;
}

}  // namespace weighlock::sim
