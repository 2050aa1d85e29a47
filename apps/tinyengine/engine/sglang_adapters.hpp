// SGLang's LoRA adapters as they were measured: a registry of names in the HTTP process, a table in the scheduler, and
// one lock around every load and unload.
//
// An unload takes the name away at once and then waits, holding the lock, for the requests that use the adapter. A
// request that names an adapter that was unloaded or evicted loads it again from where it came from. Thread rule: loop
// thread only. Held by shared_ptr, because answers come later; `core` outlives it or drops its work.
#pragma once

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tinyengine/engine/core.hpp"
#include "tinyengine/engine/settings.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::tiny {

class SglangAdapters : public std::enable_shared_from_this<SglangAdapters> {
 public:
  struct Outcome {
    std::string error;             // "" = success
    json::value loaded = nullptr;  // what the scheduler has; null where it wasn't asked
  };
  struct Change {
    std::string name;
    std::string directory;  // load
    Milliseconds delay{0};
    bool partial = false;      // an injected fault: half of the modules are loaded
    bool half_unload = false;  // an injected fault: the scheduler's part of the unload fails
    std::function<void(const Outcome&)> then;
    std::function<void()> dropped;  // the scheduler died first; may be empty
  };
  using Acquired = std::function<void(Result<std::shared_ptr<const ServedAdapter>>)>;

  SglangAdapters(Loop& loop, std::shared_ptr<Core> core, AdapterSettings settings);

  // Before the engine serves. Fails as the engine's start does.
  Status load_at_start();
  // At the end of the engine's life: drops what waits, and with it the answers that hold this.
  void close();
  void load(Change change);
  void unload(Change change);
  // For one request, which says `release` when it has ended.
  void acquire(const std::string& name, Acquired then);
  void release(const std::shared_ptr<const ServedAdapter>& adapter);
  // The registry, least recently used first.
  const std::list<std::shared_ptr<const ServedAdapter>>& registered() const { return registry_; }

 private:
  void lock(std::function<void()> job);
  void unlock();
  void end(const Change& change, Outcome outcome);  // and unlocks
  void loaded(const Change& change, const AdapterContent& content);
  std::string refusal(const Change& change, const AdapterContent& content) const;
  void evict(const std::function<void()>& then);
  void unload_locked(const Change& change, std::function<void(Outcome)> then);
  void remove_from_scheduler(const Change& change, const std::function<void(Outcome)>& then);
  std::shared_ptr<const ServedAdapter> find(const std::string& name) const;
  json::object in_scheduler() const;

  Loop& loop_;
  std::shared_ptr<Core> core_;
  AdapterSettings settings_;
  std::list<std::shared_ptr<const ServedAdapter>> registry_;
  std::vector<std::shared_ptr<const ServedAdapter>> scheduler_;
  std::map<std::string, std::shared_ptr<const ServedAdapter>> half_unloaded_;
  std::map<std::string, std::string> ever_loaded_;  // name to directory
  std::map<std::shared_ptr<const ServedAdapter>, std::size_t> users_;
  // The unload that waits for the users of its adapter; one at most, for it holds the lock.
  std::shared_ptr<const ServedAdapter> awaited_;
  std::function<void()> when_unused_;
  std::deque<std::function<void()>> waiting_;  // for the lock
  bool locked_ = false;
};

}  // namespace weighlock::tiny
