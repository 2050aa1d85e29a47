// The numbered files by which gateways know of each other (store/epoch), as the machine sees them: who took a pair
// last, and since when. A file is whole or absent, and a name is taken by one owner only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "sim/fault.hpp"
#include "sim/scenario.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"

namespace weighlock::sim {

std::string owner_id(std::size_t gateway);

class Epochs {
 public:
  // Tells the gateway, if its process is still the one that asked.
  using Answer = std::function<void(protocol::EventBody)>;
  // Another gateway than before has the pair from now on.
  using Taken = std::function<void(const std::string& pair, std::size_t gateway)>;
  Epochs(const Scenario& scenario, Faults& faults, Scheduler& scheduler, const Trace& trace, Taken taken);

  void claim(std::size_t gateway, const protocol::ClaimEpoch& effect, Answer answer);
  void look(std::size_t gateway, const protocol::LookEpoch& effect, Answer answer);
  // Nobody is told of these any more.
  void gateway_died(std::size_t gateway);

  // Whose the pair is by the highest file; none: nobody's.
  std::optional<std::size_t> owner(const std::string& pair) const;
  Instant taken_at(const std::string& pair) const;
  // By when the storage had last failed to answer a look of this gateway well and at once.
  Instant trouble(std::size_t gateway) const;
  // A look has had no answer for as long as a gateway waits for one.
  bool overdue(std::size_t gateway, const std::string& pair) const;
  // The answer is in the process's hands.
  void told(std::size_t gateway, std::uint64_t ask);

 private:
  struct Files {
    std::map<std::int64_t, protocol::Epoch> by_number;
    std::optional<std::size_t> owner;
    Instant taken_at;
  };
  struct Look {
    std::string pair;
    Instant began;
  };
  Result<protocol::ClaimedEpoch> claim_now(std::size_t gateway, const protocol::ClaimEpoch& effect);
  std::optional<Error> fails(const std::string& pair, bool writes);
  std::int64_t delay(std::size_t gateway, const std::string& pair);

  const Scenario& scenario_;
  Random random_;  // of its own: a run without epochs is what it was before there were any
  Faults& faults_;
  Scheduler& scheduler_;
  const Trace& trace_;
  Taken taken_;
  std::map<std::string, Files> files_;  // by pair
  std::map<std::size_t, int> deaths_;
  std::map<std::size_t, Instant> trouble_;
  std::map<std::pair<std::size_t, std::uint64_t>, Look> looks_;  // without an answer
};

}  // namespace weighlock::sim
