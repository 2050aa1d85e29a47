// Every request between the gateway and the engines: how it travels, what the caller sees, and what it can't know.
//
// The one assumption (protocol.md section 5): what was sent on a connection that was reset isn't delivered after a
// later connection was answered. So one barrier isn't enough (what was reset may slip in behind it while it waits):
// like a real dialect, a barrier here asks twice.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/engine.hpp"
#include "sim/plan.hpp"
#include "sim/scenario.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"

namespace weighlock::sim {

// Ids of calls are a gateway's own; the world tells by them whose call it is.
inline constexpr std::uint64_t kIdsPerGateway = 1'000'000'000;
inline std::size_t gateway_of(protocol::CallId call) {
  return static_cast<std::size_t>(call / kIdsPerGateway);
}

class Network {
 public:
  using Ended = std::function<void(protocol::CallId, Outcome)>;
  Network(const Scenario& scenario, Random& random, Faults& faults, Faults& no_faults, Scheduler& scheduler,
          Store& store, const Trace& trace, Ended ended);

  void start(const protocol::Call& call, Mishap mishap = Mishap::none);
  void cancel(protocol::CallId call);
  // All its connections are reset; what they carried may go on.
  void gateway_died(std::size_t gateway);
  // After each request that an engine has done.
  void when_done(const Engine::Done& done) {
    for (Engine& engine : engines_) engine.when_done(done);
  }
  // The gateway was away for long, and comes back without its memory: what travelled has arrived, or never will, and a
  // pause is anybody's.
  void time_passes();
  // Faults stop: frozen engines thaw, the network is whole.
  void heal();
  // Nothing of ours travels, waits in an engine or runs there.
  bool quiet() const;
  // A load of this adapter has arrived and has not ended.
  bool adapter_pending(const std::string& url, const std::string& directory) const;
  // A load that is on its way to this engine or in it, and may still change its weights.
  bool load_pending(const std::string& url, std::size_t gateway) const;  // of its own: one of a former owner is late

  // Its process is there, on a route, and not in a collective.
  bool reachable(const std::string& url) const;

  Engine* find(const std::string& url);
  const Engine* find(const std::string& url) const;
  std::deque<Engine>& engines() { return engines_; }

 private:
  struct Flight {
    protocol::CallId call = 0;
    std::size_t engine = 0;
    int life = 0;
    std::uint64_t number = 0;  // order of the connections
    Operation operation;
    std::optional<DialectKind> dialect;
    Faults* faults = nullptr;  // that may strike it on its way
    int rounds = 1;            // requests that the operation still needs
    bool hung_up = false;      // the caller has gone, or saw a reset
    bool loses_answer = false;
    bool over = false;  // it won't arrive any more, or the engine is done with it
  };
  void arrive(protocol::CallId call);
  void deliver_again(const Flight& flight, const Outcome& outcome);
  void answered(protocol::CallId call, Outcome outcome);
  void broken(protocol::CallId call);
  void tell(protocol::CallId call, Outcome outcome, std::int64_t after);
  // The caller sees the connection end; the request may still be on its way or in the engine.
  void reset(protocol::CallId call, std::int64_t after);
  void fail(protocol::CallId call, OutcomeKind kind, const char* text, std::int64_t after);
  // Calls of a LoRA pair may suffer also where the engines are another, calm pair's.
  bool may_suffer(const Operation& operation) const;
  std::int64_t past_cut(std::size_t engine, std::int64_t delay) const;

  Random& random_;
  const Scenario& scenario_;
  Faults& all_faults_;
  std::vector<Faults*> faults_;  // per engine
  Scheduler& scheduler_;
  const Trace& trace_;
  Ended ended_;
  std::deque<Engine> engines_;
  std::unordered_map<std::string, std::size_t> by_url_;
  std::unordered_map<protocol::CallId, Flight> flights_;  // never iterated in a way that decides anything
  std::vector<std::uint64_t> last_answered_;  // per engine: number of the latest connection that was answered
  std::vector<Instant> cut_until_;            // per engine: no route
  std::uint64_t next_number_ = 1;
  std::size_t telling_ = 0;  // answers on their way, but to who only reads
};

}  // namespace weighlock::sim
