#include "sim/network.hpp"

#include <algorithm>
#include <utility>

namespace weighlock::sim {

using protocol::CallId;

namespace {

constexpr std::int64_t kConnectTimeoutMs = 5'000;  // core/limits.hpp

}  // namespace

Network::Network(const Scenario& scenario, Random& random, Faults& faults, Faults& no_faults, Scheduler& scheduler,
                 Store& store, const Trace& trace, Ended ended)
    : random_(random),
      scenario_(scenario),
      all_faults_(faults),
      scheduler_(scheduler),
      trace_(trace),
      ended_(std::move(ended)) {
  for (const EngineSpec& spec : scenario.engines) {
    by_url_[spec.url] = engines_.size();
    faults_.push_back(scenario.is_calm(spec.url) ? &no_faults : &faults);
    engines_.emplace_back(
        spec.url, spec.kind, spec.adapter_places, scenario.dialects, random, *faults_.back(), scheduler, store, trace,
        [this](CallId call, Outcome outcome) { answered(call, std::move(outcome)); },
        [this](CallId call) { broken(call); });
  }
  last_answered_.resize(engines_.size());
  cut_until_.resize(engines_.size());
}

Engine* Network::find(const std::string& url) {
  const auto it = by_url_.find(url);
  return it == by_url_.end() ? nullptr : &engines_[it->second];
}

const Engine* Network::find(const std::string& url) const {
  const auto it = by_url_.find(url);
  return it == by_url_.end() ? nullptr : &engines_[it->second];
}

std::int64_t Network::past_cut(std::size_t engine, std::int64_t delay) const {
  const Instant due = scheduler_.now() + Milliseconds{delay};
  return due < cut_until_[engine] ? (cut_until_[engine] - scheduler_.now()).count() + delay : delay;
}

bool Network::may_suffer(const Operation& operation) const {
  if (operation.adapter.empty()) return false;
  return std::any_of(scenario_.pairs.begin(), scenario_.pairs.end(), [&](const protocol::PairSpec& pair) {
    return pair.lora && operation.adapter.starts_with(pair.lora->name + "-v") && !scenario_.is_calm(pair.name);
  });
}

void Network::start(const protocol::Call& call, Mishap mishap) {
  Flight flight;
  flight.loses_answer = mishap == Mishap::answer_lost;
  flight.call = call.call;
  flight.engine = by_url_.at(call.worker);
  flight.life = engines_[flight.engine].truth().life;
  flight.number = next_number_++;
  flight.operation = call.operation;
  flight.dialect = call.dialect;
  if (call.operation.kind == OperationKind::barrier) flight.rounds = 2;
  const std::size_t engine = flight.engine;
  Faults& faults = may_suffer(call.operation) ? all_faults_ : *faults_[engine];
  flight.faults = &faults;
  flights_.emplace(call.call, std::move(flight));
  if (faults_[engine]->strikes(Fault::partition)) {
    cut_until_[engine] = scheduler_.now() + Milliseconds{random_.between(1'000, 60'000)};
    trace_.line("no route to {} until {}", call.worker, cut_until_[engine].ms);
  }
  if (mishap == Mishap::silent) return;
  if (mishap == Mishap::request_lost) {
    fail(call.call, OutcomeKind::unknown, "connection reset", random_.between(1, 2'000));
  } else if (mishap == Mishap::not_sent) {
    fail(call.call, OutcomeKind::not_sent, "connection refused", random_.between(1, 20));
  } else if (scheduler_.now() < cut_until_[engine]) {
    fail(call.call, OutcomeKind::not_sent, "connect timed out", kConnectTimeoutMs);
  } else if (!engines_[engine].truth().alive || faults.strikes(Fault::refuse)) {
    fail(call.call, OutcomeKind::not_sent, "connection refused", random_.between(1, 20));
  } else if (faults.strikes(Fault::lose_request)) {
    // Half of the time nobody ever tells the caller.
    if (random_.chance(500)) fail(call.call, OutcomeKind::unknown, "connection reset", random_.between(1, 2'000));
  } else {
    const bool late = faults.strikes(Fault::late_request);
    const std::int64_t delay = late ? random_.between(1'000, 90'000) : random_.between(1, 30);
    if (late && random_.chance(300)) reset(call.call, random_.between(1, 2'000));
    scheduler_.after(delay, [this, id = call.call] { arrive(id); });
  }
}

void Network::fail(CallId call, OutcomeKind kind, const char* text, std::int64_t after) {
  flights_.at(call).over = true;
  Outcome outcome;
  outcome.kind = kind;
  outcome.code = kind == OutcomeKind::not_sent ? ErrorCode::unreachable : ErrorCode::connection_lost;
  outcome.text = text;
  tell(call, std::move(outcome), after);
}

void Network::arrive(CallId call) {
  const auto it = flights_.find(call);
  if (it == flights_.end()) return;
  Flight& flight = it->second;
  Engine& engine = engines_[flight.engine];
  if (scheduler_.now() < cut_until_[flight.engine]) {
    scheduler_.at(cut_until_[flight.engine] + Milliseconds{random_.between(1, 100)}, [this, call] { arrive(call); });
    return;
  }
  if (!engine.truth().alive || engine.truth().life != flight.life) {
    broken(call);
    return;
  }
  if (flight.hung_up && last_answered_[flight.engine] > flight.number) {
    trace_.line("call {} was reset before it arrived", call);
    flights_.erase(it);
    return;
  }
  if (random_.chance(500) && flight.faults->strikes(Fault::lose_answer)) reset(call, random_.between(1, 2'000));
  engine.deliver(Engine::Request{call, flight.operation, call, {}, flight.dialect});
}

// A second copy of what was just done, behind it: before anything that its caller sends next. Its answer goes nowhere.
void Network::deliver_again(const Flight& flight, const Outcome& outcome) {
  Engine& engine = engines_[flight.engine];
  const OperationKind kind = flight.operation.kind;
  const bool loads = kind == OperationKind::load || kind == OperationKind::load_empty;
  if (loads || !outcome.ok() || !engine.truth().alive || !engine.takes_turns(kind)) return;
  if (flight.faults->strikes(Fault::duplicate))
    engine.deliver(Engine::Request{0, flight.operation, flight.call, {}, flight.dialect});
}

void Network::answered(CallId call, Outcome outcome) {
  const auto it = flights_.find(call);
  if (it == flights_.end()) return;
  last_answered_[it->second.engine] = std::max(last_answered_[it->second.engine], it->second.number);
  if (it->second.hung_up) {
    flights_.erase(it);
    return;
  }
  if (--it->second.rounds > 0) {
    it->second.number = next_number_++;
    scheduler_.after(random_.between(1, 30), [this, call] { arrive(call); });
    return;
  }
  it->second.over = true;
  deliver_again(it->second, outcome);
  if (it->second.loses_answer) return reset(call, random_.between(1, 500));
  if (it->second.faults->strikes(Fault::lose_answer)) {
    if (random_.chance(500)) reset(call, random_.between(1, 500));  // else nobody ever tells the caller
    return;
  }
  const std::int64_t delay =
      it->second.faults->strikes(Fault::late_answer) ? random_.between(1'000, 120'000) : random_.between(1, 30);
  tell(call, std::move(outcome), past_cut(it->second.engine, delay));
}

void Network::broken(CallId call) {
  const auto it = flights_.find(call);
  if (it == flights_.end()) return;
  if (it->second.hung_up) {
    flights_.erase(it);
    return;
  }
  fail(call, OutcomeKind::unknown, "connection reset by peer", past_cut(it->second.engine, random_.between(1, 200)));
}

void Network::tell(CallId call, Outcome outcome, std::int64_t after) {
  const auto known = flights_.find(call);
  const bool counts = known != flights_.end() && !only_reads(known->second.operation.kind);
  telling_ += counts ? 1 : 0;
  scheduler_.after(after, [this, call, counts, outcome = std::move(outcome)]() mutable {
    telling_ -= counts ? 1 : 0;
    const auto it = flights_.find(call);
    if (it == flights_.end()) return;
    const bool gone = it->second.hung_up;
    it->second.hung_up = true;
    if (it->second.over) flights_.erase(it);
    if (!gone) ended_(call, std::move(outcome));
  });
}

void Network::reset(CallId call, std::int64_t after) {
  Outcome outcome;
  outcome.kind = OutcomeKind::unknown;
  outcome.code = ErrorCode::connection_lost;
  outcome.text = "connection reset";
  tell(call, std::move(outcome), after);
}

void Network::cancel(CallId call) {
  const auto it = flights_.find(call);
  if (it != flights_.end()) it->second.hung_up = true;
}

void Network::gateway_died(std::size_t gateway) {
  for (auto& [call, flight] : flights_) flight.hung_up = flight.hung_up || gateway_of(call) == gateway;
}

void Network::time_passes() {
  for (auto it = flights_.begin(); it != flights_.end();) {
    const Engine& engine = engines_[it->second.engine];
    const bool there = engine.has(it->first);
    it = there ? std::next(it) : flights_.erase(it);
  }
  for (Engine& engine : engines_) {
    engine.pause_is_forgotten();
    engine.take_memory_back();  // whoever took it has started anew meanwhile, too
  }
}

void Network::heal() {
  for (std::size_t i = 0; i < engines_.size(); ++i) {
    engines_[i].thaw();
    cut_until_[i] = scheduler_.now();
  }
}

bool Network::quiet() const {
  if (telling_ > 0) return false;
  return std::all_of(engines_.begin(), engines_.end(), [](const Engine& engine) { return engine.idle(); });
}

bool Network::reachable(const std::string& url) const {
  const std::size_t engine = by_url_.at(url);
  return engines_[engine].truth().alive && !engines_[engine].in_transfer() && scheduler_.now() >= cut_until_[engine];
}

bool Network::adapter_pending(const std::string& url, const std::string& directory) const {
  return engines_[by_url_.at(url)].has_queued_adapter(directory);
}

bool Network::load_pending(const std::string& url, std::size_t gateway) const {
  const Engine& engine = engines_[by_url_.at(url)];
  const auto ours = [&](CallId sent_as) { return gateway_of(sent_as) == gateway; };
  return engine.has_queued(OperationKind::load, ours) || engine.has_queued(OperationKind::load_empty, ours);
}

}  // namespace weighlock::sim
