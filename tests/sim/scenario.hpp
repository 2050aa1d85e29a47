// What one seed stands for: the pairs, the engines, the faults that may strike, and what the clients do when.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/fault.hpp"
#include "sim/store.hpp"
#include "weighlock/protocol/machine.hpp"

namespace weighlock::sim {

enum class ClientActionKind {
  connect,
  reconnect,
  request,
  request_same_key,
  request_same_version,
  request_again,  // the same once more, without a key
  request_lower,
  request_path,
  roll_back,
  change_worker,
  collect,
  cancel,
  remove,
  steal_worker,
  pause_first,
  continue_all,
  shutdown,
};

struct ClientAction {
  Instant at;
  ClientActionKind kind = ClientActionKind::request;
  std::size_t pair = 0;
  std::size_t gateway = 0;  // whose clients
  bool is_last = false;     // after the faults, to see whether an update succeeds
};

// A gateway's process stands still.
struct Stop {
  std::size_t gateway = 0;
  Instant from;
  Instant until;
};

struct EngineSpec {
  std::string url;
  DialectKind kind = DialectKind::sglang;
  std::size_t adapter_places = 0;  // 0: all that are loaded stay
};

struct Scenario {
  std::uint64_t seed = 0;
  // Per pair: no fault strikes what belongs to it, and its clients don't change their minds. Everything must succeed
  // there, whatever happens to the other pairs.
  std::vector<bool> calm;
  std::vector<EngineSpec> engines;
  std::vector<protocol::PairSpec> pairs;
  std::vector<StoreSettings> stores;  // one per pair
  std::vector<ClientAction> actions;
  protocol::Dialects dialects;
  Instant faults_end;
  // By pair: whether it is connected with no storage (an AWEX pair), and the time-out of its transfer groups.
  std::vector<bool> no_storage;
  std::vector<Milliseconds> group_timeouts;
  Instant last_at{-1};  // of the last action, where there is one after the faults
  bool shuts_down = false;
  bool planned = false;
  std::size_t gateways = 1;
  bool keeps_epochs = false;
  std::vector<Stop> stops;

  // The pair whose engine, trainer, directory or save_path this is.
  std::size_t pair_of(std::string_view name) const;
  bool has_rivals() const { return gateways > 1; }
  bool is_calm(std::string_view name) const { return calm[pair_of(name)]; }
};

// For a plan (plan.hpp): one pair, no dice but for delays. Version 1 is served, version 2 is asked for at
// `kPlannedFrom`, and at `kPlannedUntil`, when nothing fails any more, version 3, which must succeed everywhere. The
// seed chooses the workers.
inline constexpr Instant kPlannedFrom{100'000};
inline constexpr Instant kPlannedUntil{490'000};
inline constexpr std::uint64_t kPlannedScenarios = 6;
Scenario planned_scenario(std::uint64_t seed, Random& random);

// Of the runs without calm pairs, how many have two gateways; of the others, how many keep epochs: `sim --rivals N` and
// `--epochs N` ask for them (README.md).
inline unsigned chosen_rivals_permille = 0;
inline unsigned chosen_epochs_permille = 0;

// scenario_awex.cpp: in a share of the runs pairs transfer from rank to rank, with dice of their own.
void draw_awex(Random& dice, Scenario& scenario, Faults& faults);
// ... and the pair of a planned run, with version 1 on a storage or transferred, too.
void plan_awex(Scenario& scenario, bool on_storage);

// Also sets the rates of `faults`.
Scenario draw_scenario(std::uint64_t seed, Random& random, Faults& faults);

}  // namespace weighlock::sim
