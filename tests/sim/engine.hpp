// A simulated inference engine: what it really holds, and what it does with the requests that reach it.
//
// Two kinds, by the measured contracts. SGLang-like: the HTTP process answers read_state, pause and resume by itself,
// all else goes through the scheduler's queue; a failed load is harmless, fatal or torn. vLLM-like: one queue for
// everything, a failed load leaves an engine that dies at the first token it generates. A request that has arrived goes
// on even when its caller hangs up. Nothing here knows what the gateway believes.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "sim/store.hpp"
#include "sim/trace.hpp"
#include "weighlock/core/operation.hpp"
#include "weighlock/protocol/machine.hpp"

namespace weighlock::sim {

// One LoRA adapter that it serves.
struct AdapterTruth {
  std::string directory;
  std::int64_t content = 0;
};

// The truth.
struct EngineTruth {
  bool alive = true;
  int life = 0;             // one more with each process
  std::string incarnation;  // what it prints of its start time
  std::int64_t content = kStartContent;
  bool torn = false;                     // a mix, or half read
  bool poisoned = false;                 // it dies at the next token
  bool needs_empty = false;              // only load_empty makes the next load possible
  bool stuck = false;                    // no load helps before a new process
  Evidence visible_at = Evidence::spot;  // the weakest comparison that shows what is wrong, when torn
  bool undetected = false;  // a verify answered ok though the weights are others: beyond the evidence asked
  bool foreign = false;     // somebody else wrote its label in this life
  std::string label;
  std::string old_label;  // the one before
  bool paused = false;
  bool foreign_paused = false;  // the pause is somebody else's
  std::map<std::string, AdapterTruth> adapters;
  std::set<std::string> half_unloaded;    // names that must be unloaded before they can be loaded
  std::vector<std::string> loaded_order;  // of `adapters`, oldest first
  std::set<std::string> dropped;          // names that it dropped by itself and that were not loaded since
  std::int64_t cached = kStartContent;    // whose prefixes are cached; -1: none
  bool stale = false;                     // it ran with caches of other weights
  bool lied_of_caches = false;            // ... though a load that drops them answered ok
  std::set<std::string> released;         // tags of its memory that trainers on its devices have
};

bool only_reads(OperationKind kind);

class Engine {
 public:
  struct Request {
    protocol::CallId call = 0;
    Operation operation;
    protocol::CallId sent_as = 0;  // a copy has no call of its own
    Instant arrived = {};
    std::optional<DialectKind> dialect = std::nullopt;  // by whose routes it is asked; none: by some that both have
  };
  // How an answer leaves the engine; `broken` tells that the process ended with the request in it.
  using Answer = std::function<void(protocol::CallId call, Outcome outcome)>;
  using Broken = std::function<void(protocol::CallId call)>;
  using Done = std::function<void(const Engine& engine, const Request& request)>;

  // `places`: so many adapters stay loaded, and a load beyond drops the one that was loaded first; 0: all.
  Engine(std::string url, DialectKind kind, std::size_t places, const protocol::Dialects& dialects, Random& random,
         Faults& faults, Scheduler& scheduler, Store& store, const Trace& trace, Answer answer, Broken broken);

  // What came of a part in a collective.
  enum class Received { nothing, half, all };
  using Enter = std::function<void(Engine& engine, protocol::CallId call)>;
  using Died = std::function<void(const Engine& engine)>;

  void deliver(Request request);
  // Its turn in a collective has come: whoever is told ends it by `end_transfer`. And: its process has ended.
  void when_in_collectives(Enter enter, Died died) {
    enter_ = std::move(enter);
    died_ = std::move(died);
  }
  // `blames_a_peer`: the error tells of another member.
  void end_transfer(protocol::CallId call, Received received, std::int64_t content, const std::string& error,
                    bool blames_a_peer = false);
  bool in_transfer() const { return in_transfer_; }
  // Somebody hands its memory to a trainer. And: gives it back, without us.
  void release_memory() { truth_.released = {"weights", "kv_cache"}; }
  void take_memory_back() { truth_.released.clear(); }
  void when_done(Done done) { done_ = std::move(done); }
  // Somebody else's hand.
  void foreign_pause();
  void foreign_resume();
  void foreign_label();
  // Whoever paused it, nobody knows it any more.
  void pause_is_forgotten();
  void die(const char* why);
  void freeze_for(std::int64_t ms);
  void thaw();
  // Requests of this kind run in the order of their arrival.
  bool takes_turns(OperationKind kind) const { return queued(kind); }
  // Nothing that changes it waits or runs in it.
  bool idle() const;
  // A load, or what may become one, is in the queue.
  bool has_queued(OperationKind kind, const std::function<bool(protocol::CallId sent_as)>& counts) const;
  bool has(protocol::CallId call) const;
  bool has_queued_adapter(const std::string& directory) const;

  const EngineTruth& truth() const { return truth_; }
  const std::string& url() const { return url_; }
  DialectKind kind() const { return kind_; }
  std::size_t places() const { return places_; }

 private:
  const DialectTraits& traits() const { return dialects_.of(kind_); }
  // Asked by routes that only the other engine has: its HTTP process says so.
  bool has_no_route(const Request& request) const;
  bool queued(OperationKind kind) const;
  std::int64_t duration(OperationKind kind);
  void pump();
  void finish(int life);
  void begin_transfer(int life);
  Outcome resume_memory(const std::string& tag);
  void boot();
  void run_or_die();
  void set_weights(std::int64_t content, bool torn);
  StateReading reading();
  void set_label(const std::string& label);
  Outcome perform(const Request& request);
  Outcome perform(const Operation& operation);
  Outcome load(const Operation& operation);
  Outcome load_goes_wrong(const Operation& operation, bool& handled);
  Outcome load_empty();
  Outcome verify(const Operation& operation);
  // What it runs, or holds over a pause in mode keep, holds its caches.
  bool is_busy() const;
  Outcome flush();
  Outcome probe();
  Outcome pause(const Operation& operation);
  Outcome resume(const Operation& operation);
  void forget_adapter(const std::string& name);
  Outcome load_adapter(const Operation& operation);
  Outcome unload_adapter(const Operation& operation);
  Outcome list_adapters();

  std::string url_;
  DialectKind kind_;
  std::size_t places_;
  const protocol::Dialects& dialects_;
  Random& random_;
  Faults& faults_;
  Scheduler& scheduler_;
  Store& store_;
  const Trace& trace_;
  Answer answer_;
  Broken broken_;
  Done done_;
  Enter enter_;
  Died died_;
  EngineTruth truth_;
  std::deque<Request> queue_;
  bool busy_ = false;
  bool in_transfer_ = false;
  Instant frozen_until_;
  bool keeps_requests_ = false;  // the last pause was in mode keep: what ran goes on when it is continued
  Instant busy_until_;           // so long some of it runs
  Milliseconds held_for_{0};     // what it keeps while it is paused runs so long afterwards
  Instant forgotten_until_{-1};  // who sent what arrived until then, nobody knows any more
};

}  // namespace weighlock::sim
