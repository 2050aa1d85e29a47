#include "sim/transfers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weighlock::sim {

using protocol::CallId;
using protocol::SaveOutcomeKind;

namespace {

constexpr std::int64_t kStepTimeoutMs = 300'000;  // of a bring-up, and of a teardown: the edge's
constexpr std::int64_t kPollMs = 500;

std::pair<std::string, int> place_of(const protocol::BuildGroup& order) {
  return {order.awex.master_addr, order.awex.master_port};
}

std::string key_of(const std::string& pair, const protocol::VersionRef& version) {
  return fmt::format("{} {}/{}", pair, version.lineage, version.version);
}

}  // namespace

Transfers::Transfers(const Scenario& scenario, Random& random, Faults& faults, Faults& no_faults, Scheduler& scheduler,
                     Network& network, Store& store, const Trace& trace, Post post)
    : scenario_(scenario),
      random_(random),
      faults_(faults),
      no_faults_(no_faults),
      scheduler_(scheduler),
      network_(network),
      store_(store),
      trace_(trace),
      post_(std::move(post)) {
  for (Engine& engine : network_.engines())
    engine.when_in_collectives([this](Engine& one, CallId call) { engine_enters(one, call); },
                               [this](const Engine& one) { engine_died(one); });
}

std::int64_t Transfers::content_of(const std::string& pair, const protocol::VersionRef& version) const {
  const auto found = contents_.find(key_of(pair, version));
  return found == contents_.end() ? -2 : found->second;
}

std::string Transfers::process_in(const std::string& group, const std::string& worker) const {
  const auto found = groups_.find(group);
  if (found == groups_.end()) return "";
  const auto process = found->second.processes.find(worker);
  return process == found->second.processes.end() ? "" : process->second;
}

void Transfers::gateway_died(std::size_t gateway) {
  Edge& edge = edges_[gateway];
  const std::map<std::uint64_t, protocol::BuildGroup> builds = std::move(edge.builds);
  edge = Edge{edge.life + 1, {}, {}, {}, {}};
  for (const auto& [ask, order] : builds) {
    if (!random_.chance(500)) continue;  // what was on its way still brings them together, and nobody knows
    scheduler_.after(random_.between(0, 3'000), [this, order = order] { join(order); });
  }
}

void Transfers::heal() {
  for (auto& [url, rank] : ranks_) rank.stuck_until = std::min(rank.stuck_until, scheduler_.now());
}

// --- groups

bool Transfers::in_peace(const std::string& trainer) const {
  const auto rank = ranks_.find(trainer);
  return rank == ranks_.end() || (rank->second.parts == 0 && scheduler_.now() >= rank->second.stuck_until);
}

// A teardown that comes late would end the group that is built now.
bool Transfers::is_free(std::size_t gateway, const std::vector<std::string>& trainers) const {
  const Edge& edge = edges_.at(gateway);
  return std::none_of(trainers.begin(), trainers.end(), [&](const std::string& url) {
    return edge.leaving.contains(url) || edge.building.contains(url);
  });
}

void Transfers::build(std::size_t gateway, const protocol::BuildGroup& order, Mishap mishap) {
  begin_build(gateway, edges_[gateway].life, order, mishap);
}

void Transfers::begin_build(std::size_t gateway, int life, const protocol::BuildGroup& order, Mishap mishap) {
  Edge& edge = edges_[gateway];
  if (life != edge.life) return;
  if (!is_free(gateway, order.trainers)) {
    scheduler_.after(kPollMs, [=, this] { begin_build(gateway, life, order, mishap); });
    return;
  }
  edge.building.insert(order.trainers.begin(), order.trainers.end());
  edge.builds[order.ask] = order;
  Faults& faults = faults_of(order.pair);
  std::int64_t took = random_.between(300, 1'400);
  if (faults.strikes(Fault::group_late)) took += random_.between(5'000, 60'000);
  std::string error;
  std::string refused;  // a worker that fails by itself; "" = nobody is named
  bool joined = random_.chance(500);
  if (mishap == Mishap::silent || faults.strikes(Fault::group_never)) {
    error = "no answer";
    took = kStepTimeoutMs;
  } else if (mishap != Mishap::none || faults.strikes(Fault::group_fails)) {
    error = "a member answered 500";
    joined = mishap == Mishap::answer_lost || joined;
    if (random_.chance(500)) refused = random_.pick(order.workers);
    // A stranger of that host listens there from now on.
    if (mishap == Mishap::none && !stranger_) stranger_ = place_of(order);
  }
  scheduler_.after(took, [=, this] { end_build(gateway, life, order, error, joined, refused); });
}

void Transfers::end_build(std::size_t gateway, int life, const protocol::BuildGroup& order, std::string error,
                          bool joined, const std::string& refused) {
  Edge& edge = edges_[gateway];
  if (life != edge.life) return;
  for (const std::string& url : order.workers) {
    if (error.empty() && !network_.reachable(url)) error = url + " does not answer";
  }
  for (const std::string& url : order.trainers) {
    if (error.empty() && !in_peace(url)) error = url + " does not answer";
  }
  const bool port_taken = stranger_ == place_of(order);
  if (error.empty() && port_taken) error = "its port is taken";
  edge.builds.erase(order.ask);
  for (const std::string& url : order.trainers) edge.building.erase(url);
  if (error.empty() || joined) {
    for (const std::string& url : order.trainers) edge.joined[url] = order.name;
    if (error.empty()) {
      join(order);
    } else if (random_.chance(500)) {
      leave(order.trainers.front());  // it came into the new one, which the others never did
    }
  }
  if (!error.empty() && joined) {
    for (const std::string& url : order.trainers) teardown(gateway, url, Mishap::none);
  }
  trace_.line("group {} is {}", order.name, error.empty() ? "built" : error);
  std::optional<Error> told;
  if (!error.empty()) told = Error{ErrorCode::worker_failed, std::move(error), nullptr};
  std::vector<protocol::RefusedWorker> by_themselves;
  if (told && !port_taken && !refused.empty()) by_themselves.push_back({refused, "answered 500", false});
  post_(gateway, protocol::GroupBuilt{order.ask, std::move(told), port_taken, std::move(by_themselves)});
}

// Whoever isn't there any more is in nothing; the others don't know.
void Transfers::join(const protocol::BuildGroup& order) {
  Group& group = groups_[order.name];
  group.pair = order.pair;
  group.timeout = scenario_.group_timeouts[scenario_.pair_of(order.pair)];
  for (const std::string& url : order.workers) {
    const EngineTruth& real = network_.find(url)->truth();
    if (real.alive) group.processes[url] = real.incarnation;
  }
  for (const std::string& url : order.trainers) {
    leave(url);
    ranks_[url].group = order.name;
  }
}

void Transfers::leave(const std::string& trainer) {
  Rank& rank = ranks_[trainer];
  if (rank.group.empty()) return;
  groups_[rank.group].is_void = true;
  rank.group.clear();
}

void Transfers::drop(std::size_t gateway, const protocol::DropGroup& order, Mishap mishap) {
  if (order.awex.colocate) return;
  Edge& edge = edges_[gateway];
  for (const std::string& url : order.trainers) {
    const auto last = edge.joined.find(url);
    if (last != edge.joined.end() && last->second != order.name) continue;
    if (last != edge.joined.end()) edge.joined.erase(last);
    teardown(gateway, url, mishap);
  }
}

void Transfers::teardown(std::size_t gateway, const std::string& trainer, Mishap mishap) {
  Edge& edge = edges_[gateway];
  edge.leaving.insert(trainer);
  Faults& faults = faults_of(trainer);
  std::int64_t delay = random_.between(1, 200);
  if (faults.strikes(Fault::group_late)) delay = random_.between(1'000, 30'000);
  const bool lost = mishap == Mishap::not_sent || mishap == Mishap::request_lost || mishap == Mishap::silent;
  if (lost || faults.strikes(Fault::group_fails)) {
    scheduler_.after(delay, [=, this, life = edge.life] { left(gateway, life, trainer); });
    return;
  }
  const Instant until = scheduler_.now() + Milliseconds{kStepTimeoutMs};
  scheduler_.after(delay, [=, this, life = edge.life] { try_teardown(gateway, life, trainer, until); });
}

// A rank that sits in a collective answers when that has ended.
void Transfers::try_teardown(std::size_t gateway, int life, const std::string& trainer, Instant until) {
  if (!in_peace(trainer) && scheduler_.now() < until) {
    scheduler_.after(kPollMs, [=, this] { try_teardown(gateway, life, trainer, until); });
    return;
  }
  leave(trainer);
  left(gateway, life, trainer);
}

void Transfers::left(std::size_t gateway, int life, const std::string& trainer) {
  Edge& edge = edges_[gateway];
  if (life != edge.life) return;
  if (const auto one = edge.leaving.find(trainer); one != edge.leaving.end()) edge.leaving.erase(one);
}

// --- collectives

void Transfers::run(const protocol::RunTransfer& order, const protocol::VersionRef& version, Mishap mishap,
                    const std::function<bool()>& asks) {
  const std::uint64_t id = next_++;
  Collective& collective = collectives_[id];
  collective.group = order.name;
  collective.content = contents_[key_of(order.pair, version)] = store_.new_content();
  for (const auto& member : order.trainers) collective.parts[member.url] = Part{member.call, true, {}};
  for (const auto& member : order.workers) {
    Part& part = collective.parts[member.url] = Part{member.call, false, {}};
    for (const auto& trainer : order.trainers) {
      if (random_.chance(600)) part.needs.insert(trainer.url);
    }
    if (part.needs.empty()) part.needs.insert(random_.pick(order.trainers).url);
    of_call_[member.call] = id;
  }
  for (const auto& trainer : order.trainers) {
    of_call_[trainer.call] = id;
    if (random_.chance(300)) continue;  // its sends are buffered
    for (const auto& worker : order.workers) {
      if (collective.parts[worker.url].needs.contains(trainer.url))
        collective.parts[trainer.url].needs.insert(worker.url);
    }
  }
  if (faults_of(order.pair).strikes(Fault::group_lost)) leave(random_.pick(order.trainers).url);  // a new process
  for (const auto& trainer : order.trainers) {
    if (asks()) ask_trainer(id, trainer.url, std::exchange(mishap, Mishap::none));
  }
}

// Whoever trains has the engines' memory when an update begins: the first step finds it so.
void Transfers::hand_over(const protocol::RunTransfer& order, Mishap mishap, const std::function<bool()>& asks) {
  if (order.step == protocol::HandOverStep::release_optimizer) {
    for (const auto& [url, process] : groups_[order.name].processes) {
      Engine* engine = network_.find(url);
      if (engine->truth().alive && engine->truth().incarnation == process) engine->release_memory();
    }
  }
  for (const auto& trainer : order.trainers) {
    if (!asks()) continue;
    Faults& faults = faults_of(trainer.url);
    const Mishap mine = std::exchange(mishap, Mishap::none);
    const std::int64_t after =
        faults.strikes(Fault::save_late) ? random_.between(5'000, 90'000) : random_.between(1, 500);
    if (mine == Mishap::silent || faults.strikes(Fault::save_never)) continue;
    if (mine == Mishap::not_sent || faults.strikes(Fault::save_refuse))
      tell_trainer(trainer.call, SaveOutcomeKind::not_sent, "connection refused", after);
    else if (mine != Mishap::none || faults.strikes(Fault::save_reset))
      tell_trainer(trainer.call, SaveOutcomeKind::unknown, "connection reset", after);
    else if (faults.strikes(Fault::save_fail))
      tell_trainer(trainer.call, SaveOutcomeKind::failed, "answered 500", after);
    else
      tell_trainer(trainer.call, SaveOutcomeKind::ok, "", after);
  }
}

void Transfers::tell_trainer(CallId call, SaveOutcomeKind kind, std::string text, std::int64_t after,
                             bool blames_a_peer) {
  scheduler_.after(after, [this, call, kind, text = std::move(text), blames_a_peer] {
    trace_.line("transfer {} of a trainer ends: {} {}", call, static_cast<int>(kind), text);
    post_(gateway_of(call), protocol::SaveEnded{call, kind, text, false, blames_a_peer});
  });
}

void Transfers::ask_trainer(std::uint64_t id, const std::string& url, Mishap mishap) {
  Faults& faults = faults_of(url);
  const CallId call = collectives_.at(id).parts.at(url).call;
  if (mishap == Mishap::silent) return;
  if (mishap == Mishap::not_sent || faults.strikes(Fault::save_refuse))
    return tell_trainer(call, SaveOutcomeKind::not_sent, "connection refused", random_.between(1, 50));
  if (mishap == Mishap::request_lost)
    return tell_trainer(call, SaveOutcomeKind::unknown, "connection reset", random_.between(1, 2'000));
  const std::int64_t delay = faults.strikes(Fault::save_late) ? random_.between(5'000, 90'000) : random_.between(1, 30);
  if (mishap == Mishap::answer_lost) collectives_.at(id).parts.at(url).call = 0;
  if (mishap == Mishap::answer_lost)
    tell_trainer(call, SaveOutcomeKind::unknown, "connection reset", random_.between(100, 8'000));
  scheduler_.after(delay, [=, this] { trainer_enters(id, url); });
}

void Transfers::trainer_enters(std::uint64_t id, const std::string& url) {
  Collective& collective = collectives_.at(id);
  Part& part = collective.parts.at(url);
  Rank& rank = ranks_[url];
  if (scheduler_.now() < rank.stuck_until) {
    scheduler_.at(rank.stuck_until, [=, this] { trainer_enters(id, url); });
    return;
  }
  Faults& faults = faults_of(url);
  if (rank.group != collective.group || groups_[collective.group].is_void)
    return tell_trainer(part.call, SaveOutcomeKind::failed, "no such group", random_.between(1, 50));
  if (faults.strikes(Fault::save_never)) {
    rank.stuck_until = scheduler_.now() + Milliseconds{random_.between(30'000, 600'000)};
    return;
  }
  if (faults.strikes(Fault::save_fail)) {
    if (random_.chance(500))
      return tell_trainer(part.call, SaveOutcomeKind::failed, "answered 500", random_.between(1, 500));
    scheduler_.after(random_.between(1, 3'000), [=, this] { die(id, url); });
  }
  ++rank.parts;
  enter(id, url);
}

void Transfers::engine_enters(Engine& engine, CallId call) {
  const auto known = of_call_.find(call);
  if (known == of_call_.end()) return engine.end_transfer(call, Engine::Received::nothing, 0, "no such group");
  Collective& collective = collectives_.at(known->second);
  const bool member = process_in(collective.group, engine.url()) == engine.truth().incarnation;
  if (!member || groups_[collective.group].is_void)
    return engine.end_transfer(call, Engine::Received::nothing, 0, "no such group");
  enter(known->second, engine.url());
}

void Transfers::engine_died(const Engine& engine) {
  for (auto& [id, collective] : collectives_) {
    const auto part = collective.parts.find(engine.url());
    if (part != collective.parts.end() && part->second.in && !part->second.over) die(id, engine.url());
  }
}

void Transfers::enter(std::uint64_t id, const std::string& url) {
  Collective& collective = collectives_.at(id);
  collective.parts.at(url).in = true;
  trace_.line("{} is in the collective of {}", url, collective.group);
  scheduler_.after(groups_[collective.group].timeout.count() + random_.between(0, 200),
                   [=, this] { time_out(id, url); });
  settle(id);
}

void Transfers::settle(std::uint64_t id) {
  Collective& collective = collectives_.at(id);
  for (auto& [url, part] : collective.parts) {
    if (!part.in || part.ending) continue;
    part.ending = std::all_of(part.needs.begin(), part.needs.end(),
                              [&](const std::string& peer) { return collective.parts.at(peer).in; });
    if (!part.ending) continue;
    scheduler_.after(random_.between(200, 3'000), [this, id, url = url] { end_part(id, url); });
  }
}

void Transfers::time_out(std::uint64_t id, const std::string& url) {
  const Collective& collective = collectives_.at(id);
  const Part& part = collective.parts.at(url);
  if (!part.ending || has_lost(collective, part)) break_part(id, url, "the collective timed out");
}

bool Transfers::has_lost(const Collective& collective, const Part& part) {
  return std::any_of(part.needs.begin(), part.needs.end(),
                     [&](const std::string& peer) { return collective.parts.at(peer).dead; });
}

// All came: unless one of them ended meanwhile.
void Transfers::end_part(std::uint64_t id, const std::string& url) {
  Collective& collective = collectives_.at(id);
  Part& part = collective.parts.at(url);
  if (part.over) return;
  if (has_lost(collective, part)) {
    scheduler_.after(groups_[collective.group].timeout.count(),
                     [=, this] { break_part(id, url, "the collective timed out"); });
    return;
  }
  part.over = true;
  if (!part.is_trainer)
    return network_.find(url)->end_transfer(part.call, Engine::Received::all, collective.content, "");
  --ranks_[url].parts;
  const bool is_lost = faults_of(url).strikes(Fault::save_reset);
  tell_trainer(part.call, is_lost ? SaveOutcomeKind::unknown : SaveOutcomeKind::ok, is_lost ? "connection reset" : "",
               random_.between(1, 50));
}

void Transfers::break_part(std::uint64_t id, const std::string& url, const char* why) {
  Collective& collective = collectives_.at(id);
  Part& part = collective.parts.at(url);
  if (part.over) return;
  part.over = true;
  groups_[collective.group].is_void = true;
  if (part.is_trainer) {
    --ranks_[url].parts;
    return tell_trainer(part.call, SaveOutcomeKind::failed, why, random_.between(1, 50), true);
  }
  const bool some = std::any_of(part.needs.begin(), part.needs.end(),
                                [&](const std::string& peer) { return collective.parts.at(peer).in; });
  network_.find(url)->end_transfer(part.call, some ? Engine::Received::half : Engine::Received::nothing,
                                   collective.content, why, true);
}

// The process of a member ends. Some of the others see it at once, some by their time-out only.
void Transfers::die(std::uint64_t id, const std::string& url) {
  Collective& collective = collectives_.at(id);
  Part& part = collective.parts.at(url);
  if (part.over) return;
  trace_.line("{} ends in the collective of {}", url, collective.group);
  part.over = part.dead = true;
  groups_[collective.group].is_void = true;
  if (part.is_trainer) {
    --ranks_[url].parts;
    leave(url);
    tell_trainer(part.call, SaveOutcomeKind::unknown, "connection reset by peer", random_.between(1, 200));
  }
  for (const auto& [peer, other] : collective.parts) {
    if (!other.in || other.over || !other.needs.contains(url) || !random_.chance(400)) continue;
    scheduler_.after(random_.between(1, 1'000),
                     [this, id, peer = peer] { break_part(id, peer, "connection closed by peer"); });
  }
}

}  // namespace weighlock::sim
