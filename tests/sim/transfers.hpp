// Transfer groups and the collectives that run on them: who is really in which group, what each member does in a
// collective, and what it leaves behind.
//
// A collective is many sends and receives, so no member waits for all others. A receiver is whole when every trainer
// that it needs came into the collective, a trainer is done when everybody whom it sends to did (or at once, where its
// sends are buffered); whoever lacks one of them hangs until the group's time-out and fails: torn, if some of it came.
// The group is void then: whoever enters it again fails at once. An engine may be in several groups and never leaves
// one but by its end; a trainer is in the one that it joined last, and a teardown ends that one, whichever was meant.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/network.hpp"
#include "sim/plan.hpp"
#include "sim/scenario.hpp"

namespace weighlock::sim {

class Transfers {
 public:
  using Post = std::function<void(std::size_t gateway, protocol::EventBody)>;
  Transfers(const Scenario& scenario, Random& random, Faults& faults, Faults& no_faults, Scheduler& scheduler,
            Network& network, Store& store, const Trace& trace, Post post);

  // What a gateway asks for.
  void build(std::size_t gateway, const protocol::BuildGroup& order, Mishap mishap);
  void drop(std::size_t gateway, const protocol::DropGroup& order, Mishap mishap);
  // The trainers are asked here; the workers' requests go by the network, as `calls` of it.
  // `asks`: whether the next one is.
  void run(const protocol::RunTransfer& order, const protocol::VersionRef& version, Mishap mishap,
           const std::function<bool()>& asks);
  // A step around it, likewise.
  void hand_over(const protocol::RunTransfer& order, Mishap mishap, const std::function<bool()>& asks);
  void gateway_died(std::size_t gateway);
  // Faults stop: trainers that are stuck go on.
  void heal();

  // The bytes of a version that was transferred: of its last collective. -2 if there was none.
  std::int64_t content_of(const std::string& pair, const protocol::VersionRef& version) const;
  // The process of the worker that joined the group; "" if none did.
  std::string process_in(const std::string& group, const std::string& worker) const;

 private:
  struct Group {
    std::string pair;
    std::map<std::string, std::string> processes;  // workers' incarnations
    Milliseconds timeout{0};
    bool is_void = false;
  };
  struct Part {  // one member's
    protocol::CallId call = 0;
    bool is_trainer = false;
    std::set<std::string> needs;  // other members, by URL
    bool in = false;
    bool ending = false;  // all that it needs are in
    bool over = false;
    bool dead = false;  // its process ended in the collective
  };
  struct Collective {
    std::string group;
    std::int64_t content = 0;
    std::map<std::string, Part> parts;
  };
  struct Rank {  // a trainer
    std::string group;
    Instant stuck_until;
    int parts = 0;  // of collectives, under way
  };
  struct Edge {  // of one gateway's process
    int life = 0;
    std::multiset<std::string> leaving;         // trainers whose teardown hasn't been answered
    std::map<std::string, std::string> joined;  // trainer -> group
    std::set<std::string> building;             // trainers in a build
    std::map<std::uint64_t, protocol::BuildGroup> builds;
  };

  Faults& faults_of(const std::string& name) { return scenario_.is_calm(name) ? no_faults_ : faults_; }
  bool is_free(std::size_t gateway, const std::vector<std::string>& trainers) const;
  bool in_peace(const std::string& trainer) const;
  void begin_build(std::size_t gateway, int life, const protocol::BuildGroup& order, Mishap mishap);
  void end_build(std::size_t gateway, int life, const protocol::BuildGroup& order, std::string error, bool joined,
                 const std::string& refused);
  void join(const protocol::BuildGroup& order);
  void leave(const std::string& trainer);
  void teardown(std::size_t gateway, const std::string& trainer, Mishap mishap);
  void try_teardown(std::size_t gateway, int life, const std::string& trainer, Instant until);
  void left(std::size_t gateway, int life, const std::string& trainer);

  void ask_trainer(std::uint64_t id, const std::string& url, Mishap mishap);
  void trainer_enters(std::uint64_t id, const std::string& url);
  void engine_enters(Engine& engine, protocol::CallId call);
  void engine_died(const Engine& engine);
  void enter(std::uint64_t id, const std::string& url);
  void settle(std::uint64_t id);
  static bool has_lost(const Collective& collective, const Part& part);
  void time_out(std::uint64_t id, const std::string& url);
  void end_part(std::uint64_t id, const std::string& url);
  // By another member's failure.
  void break_part(std::uint64_t id, const std::string& url, const char* why);
  void die(std::uint64_t id, const std::string& url);
  void tell_trainer(protocol::CallId call, protocol::SaveOutcomeKind kind, std::string text, std::int64_t after,
                    bool blames_a_peer = false);

  const Scenario& scenario_;
  Random& random_;
  Faults& faults_;
  Faults& no_faults_;
  Scheduler& scheduler_;
  Network& network_;
  Store& store_;
  const Trace& trace_;
  Post post_;
  std::map<std::size_t, Edge> edges_;
  std::map<std::string, Group> groups_;
  std::map<std::string, Rank> ranks_;  // by URL
  std::map<std::uint64_t, Collective> collectives_;
  std::map<protocol::CallId, std::uint64_t> of_call_;
  std::map<std::string, std::int64_t> contents_;         // by pair, lineage and version
  std::optional<std::pair<std::string, int>> stranger_;  // an address and a port that somebody else has
  std::uint64_t next_ = 1;
};

}  // namespace weighlock::sim
