#include "sim/world.hpp"

#include <algorithm>
#include <utility>

#include "sim/dump.hpp"
#include "sim/violation.hpp"

namespace weighlock::sim {

namespace {

constexpr std::uint64_t kStepsMax = 400'000;  // a machine that turns in a circle must not turn for ever

}  // namespace

World::World(std::uint64_t seed, Coverage& coverage, std::FILE* story, const Plan* plan)
    : coverage_(coverage),
      random_(seed),
      faults_(random_, coverage.faults),
      no_faults_(random_, coverage.faults),
      trace_(scheduler_, story),
      scenario_(plan == nullptr ? draw_scenario(seed, random_, faults_) : planned_scenario(seed, random_)),
      store_(random_, faults_, scheduler_,
             [this](std::size_t gateway, protocol::EventBody event) { gateways_[gateway]->post(std::move(event)); }),
      network_(scenario_, random_, faults_, no_faults_, scheduler_, store_, trace_,
               [this](protocol::CallId call, Outcome outcome) {
                 gateways_[gateway_of(call)]->post(protocol::CallEnded{call, std::move(outcome)});
               }),
      transfers_(
          scenario_, random_, faults_, no_faults_, scheduler_, network_, store_, trace_,
          [this](std::size_t gateway, protocol::EventBody event) { gateways_[gateway]->post(std::move(event)); }),
      epochs_(scenario_, faults_, scheduler_, trace_,
              [this](const std::string& pair, std::size_t) { pair_taken(pair); }),
      plan_(plan) {
  was_alive_.resize(scenario_.engines.size(), true);
  for (std::size_t i = 0; i < scenario_.pairs.size(); ++i) {
    StoreSettings settings = scenario_.stores[i];
    settings.calm = scenario_.calm[i];
    store_.add_save_path(scenario_.pairs[i].save_path, settings);
    trainers_.push_back(std::make_unique<TrainerGroup>(
        random_, settings.calm ? no_faults_ : faults_, scheduler_, store_, trace_,
        [this](protocol::SaveEnded event) { gateways_[gateway_of(event.call)]->post(std::move(event)); }));
  }
  const Around around{coverage_, random_,  faults_,    no_faults_, scheduler_, trace_, scenario_,
                      store_,    network_, transfers_, epochs_,    trainers_,  plan_};
  for (std::size_t i = 0; i < scenario_.gateways; ++i) gateways_.push_back(std::make_unique<Gateway>(i, around));
  if (std::any_of(scenario_.pairs.begin(), scenario_.pairs.end(), [](const auto& pair) { return pair.awex; }))
    ++coverage_.with_groups;
  if (!scenario_.has_rivals()) return;
  ++coverage_.rivals;
  network_.when_done([this](const Engine& engine, const Engine::Request& request) { on_done(engine, request); });
}

void World::pair_taken(const std::string& pair) {
  const std::size_t index = scenario_.pair_of(pair);
  for (const EngineSpec& engine : scenario_.engines) {
    if (scenario_.pair_of(engine.url) == index) found_.erase(engine.url);
    found_adapters_.erase({pair, engine.url});
  }
  for (const std::unique_ptr<Gateway>& gateway : gateways_) gateway->pair_taken(pair);
  if (!scenario_.has_rivals()) return;
  ++coverage_.taken_over;
  if (scenario_.pairs[index].lora) ++coverage_.lora_taken_over;
}

// An owner that was replaced may have sent a call that comes behind the new owner's barrier: nothing can stop it, and
// until the next load nothing is expected of that engine.
void World::on_done(const Engine& engine, const Engine::Request& request) {
  if (changes_adapters(request.operation.kind)) return on_adapter_done(engine, request);
  const std::string& pair = scenario_.pairs[scenario_.pair_of(engine.url())].name;
  const std::optional<std::size_t> owner = epochs_.owner(pair);
  if (!owner) return;
  const auto found = found_.find(engine.url());
  if (gateway_of(request.sent_as) == *owner) {
    const bool barrier = request.operation.kind == OperationKind::barrier;
    if (found == found_.end() && barrier) found_.insert(engine.url());
    return;
  }
  if (!changes_engine(request.operation.kind) || found == found_.end()) return;
  ++coverage_.stragglers;
  trace_.line("engine {} did what a former owner had sent", engine.url());
  gateways_[*owner]->disturbed(engine.url());
  network_.find(engine.url())->pause_is_forgotten();
}

// Likewise of adapters, which take turns in an engine: nothing of a former owner comes in behind the first that the new
// one has changed there, but what was on its way.
void World::on_adapter_done(const Engine& engine, const Engine::Request& request) {
  for (const protocol::PairSpec& spec : scenario_.pairs) {
    if (!spec.lora || !request.operation.adapter.starts_with(spec.lora->name + "-v")) continue;
    const std::optional<std::size_t> owner = epochs_.owner(spec.name);
    if (!owner) return;
    const std::pair<std::string, std::string> place{spec.name, engine.url()};
    if (gateway_of(request.sent_as) == *owner) {
      found_adapters_.insert(place);
    } else if (found_adapters_.count(place) > 0) {
      ++coverage_.adapter_stragglers;
      trace_.line("engine {} did what a former owner of {} had sent", engine.url(), spec.name);
      gateways_[*owner]->adapter_disturbed(engine.url(), request.operation.adapter);
    }
  }
}

// Processes also end while nobody asks anything of them.
void World::schedule_restarts() {
  if (!faults_.enabled(Fault::restart)) return;
  for (Engine& engine : network_.engines()) {
    if (scenario_.is_calm(engine.url()) || !random_.chance(300)) continue;
    scheduler_.at(Instant{random_.between(0, scenario_.faults_end.ms)}, [&engine] { engine.die("restart in peace"); });
  }
}

// Other people do what they like at any time.
void World::schedule_strangers() {
  for (Engine& engine : network_.engines()) {
    if (scenario_.is_calm(engine.url())) continue;
    for (const Fault fault : {Fault::foreign_pause, Fault::foreign_resume}) {
      if (!faults_.enabled(fault) || !random_.chance(300)) continue;
      scheduler_.at(Instant{random_.between(0, scenario_.faults_end.ms)}, [&engine, fault] {
        fault == Fault::foreign_pause ? engine.foreign_pause() : engine.foreign_resume();
      });
    }
  }
}

// In which states of the registry workers' processes end.
void World::look_at_engines() {
  for (std::size_t i = 0; i < was_alive_.size(); ++i) {
    const EngineTruth& real = network_.engines()[i].truth();
    const bool died = was_alive_[i] && !real.alive;
    was_alive_[i] = real.alive;
    if (!died) continue;
    const auto worker = gateways_[0]->state().workers.find(network_.engines()[i].url());
    if (worker != gateways_[0]->state().workers.end())
      ++coverage_.died_in[static_cast<std::size_t>(worker->second.state)];
  }
}

// By when everything must have come to rest: each update that may wait, one after the other.
Instant World::patience() const {
  Milliseconds longest{0};
  for (const protocol::PairSpec& pair : scenario_.pairs) {
    const protocol::Deadlines& d = pair.policy.deadlines;
    longest = std::max(longest, d.save + d.pause + 5 * d.load + 3 * d.verify + 3 * d.resume);
  }
  return std::max(scenario_.faults_end, scenario_.last_at) +
         longest * static_cast<std::int64_t>(scenario_.actions.size() + 2 + kDeathsMax) + Milliseconds{300'000};
}

void World::tell_scenario() const {
  if (!trace_.on()) return;
  for (const protocol::PairSpec& pair : scenario_.pairs) {
    const protocol::Policy& p = pair.policy;
    trace_.line(
        "{}{}: {} workers, {} ranks, quorum {}/{}, {}, canary {}, max_lag {}, pause {} {}, window {}, evidence {}, "
        "digest {}{}",
        pair.name, scenario_.is_calm(pair.name) ? " (calm)" : "", pair.workers.size(), pair.trainer_urls.size(),
        static_cast<int>(p.quorum.kind), p.quorum.count, name(p.on_failure), p.canary, p.max_lag, name(p.pause),
        name(p.pause_mode), p.load_window, p.evidence ? name(*p.evidence) : "best", name(p.digest),
        p.allow_layout_change ? ", layout may change" : "");
  }
  for (std::size_t i = 0; i < kFaults; ++i) {
    const auto fault = static_cast<Fault>(i);
    if (faults_.enabled(fault)) trace_.line("fault {}", name(fault));
  }
}

void World::tell_states(std::FILE* story) const {
  for (const std::unique_ptr<Gateway>& gateway : gateways_) fmt::print(story, "{}", dump(gateway->state()));
}

std::string World::unsettled() const {
  if (scheduler_.now() < scenario_.last_at && !gateways_[0]->stopped()) return "clients have something left to ask";
  for (const std::unique_ptr<Gateway>& gateway : gateways_) {
    if (std::string why = gateway->unsettled(); !why.empty()) return why;
  }
  return "";
}

void World::schedule_all() {
  for (const ClientAction& action : scenario_.actions)
    scheduler_.at(action.at, [this, action] { gateways_[action.gateway]->act(action); });
  schedule_restarts();
  for (const std::unique_ptr<Gateway>& gateway : gateways_) {
    gateway->schedule_deaths();
    gateway->schedule_stops();
  }
  schedule_strangers();
  scheduler_.at(scenario_.faults_end, [this] {
    trace_.line("faults stop");
    faults_.stop();
    network_.heal();
    transfers_.heal();
  });
}

void World::run() {
  ++coverage_.runs;
  tell_scenario();
  schedule_all();
  const Instant end = patience();
  std::string why = "faults have not stopped";
  while (!scheduler_.empty() && scheduler_.now() <= end) {
    scheduler_.run_one();
    look_at_engines();
    for (const std::unique_ptr<Gateway>& gateway : gateways_) gateway->check();
    if (scheduler_.steps() > kStepsMax) throw Violation{16, "the run doesn't come to rest: " + why};
    if (faults_.on()) continue;
    why = unsettled();
    if (why.empty()) break;
  }
  coverage_.actions += scheduler_.steps();
  if (gateways_[0]->stopped()) ++coverage_.stopped;
  if (!why.empty()) throw Violation{16, why};
  if (plan_ != nullptr) gateways_[0]->check_planned_end();
}

std::uint64_t World::fingerprint() const {
  std::uint64_t all = 0;
  for (const std::unique_ptr<Gateway>& gateway : gateways_) all = all * 31 + gateway->fingerprint();
  return all;
}

}  // namespace weighlock::sim
