// The serial heart of one engine life: SGLang's scheduler, vLLM's engine core.
//
// It does one thing at a time: an operation (load, flush, ...) in the order of arrival, or one step of all running
// requests. Operations go before steps. A caller that gives up takes nothing out of the queue.
//
// Thread rule: loop thread only; steps run on the pool while the core is busy. Ownership: held by a shared_ptr, so that
// work on the pool outlives a death. After `die` every queued operation is dropped and every request ends with
// Finish::died.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tinyengine/engine/generation.hpp"
#include "tinyengine/engine/loader.hpp"
#include "weighlock/runtime/loop.hpp"
#include "weighlock/runtime/pool.hpp"

namespace weighlock::tiny {

// What may run: everything; only what runs already (new requests wait); nothing.
enum class Hold { none, fresh, all };

class Core : public std::enable_shared_from_this<Core> {
 public:
  struct Settings {
    std::size_t prefix_block = 1;
    Milliseconds step_least{0};  // a step takes at least so long: for tests that need a request to be running
  };

  Core(Loop& loop, Pool& pool, Settings settings, std::shared_ptr<const Llama> model, std::string directory);

  using Done = std::function<void()>;
  // Queues `work`; the next operation starts when it has called its argument. `dropped` runs instead if the core dies
  // first.
  void submit(std::function<void(Done)> work, std::function<void()> dropped = {});
  // An operation that takes no time.
  void submit_quick(std::function<void()> work, std::function<void()> dropped = {});

  void generate(std::shared_ptr<Generation> generation);

  // The following belong inside operations, where no step is under way.
  std::size_t abort(const std::function<bool(const Generation&)>& which);
  // Those that had come when `arrivals()` was `count`: an abort ends nothing that is sent after it.
  std::size_t abort_arrived(std::uint64_t count);
  void retract_all();
  void set_hold(Hold hold);
  void clear_prefixes() { prefixes_.clear(); }
  // Runs `then` when nothing runs; at once if so now. Never, if the core dies first.
  void when_drained(std::function<void()> then);

  using Loader = std::function<LoadReport(const Llama&, const Dirt&)>;
  // Inside an operation: runs `loader` on the pool after `delay`, serves its model, then `then`.
  void load(Milliseconds delay, std::string directory, Loader loader, std::function<void(const LoadReport&)> then);
  // Inside an operation: `job` on the pool after `delay`, then `then`, on the loop, unless the core died.
  void run(Milliseconds delay, std::function<void()> job, std::function<void()> then);
  // Replaces the model outside of any directory (an engine's own "reset").
  void replace_model(std::shared_ptr<const Llama> model) { model_ = std::move(model); }

  // Frozen, nothing starts and nothing that is under way ends, as when the process got SIGSTOP.
  void freeze() { frozen_ = true; }
  void thaw();
  void when_thawed(std::function<void()> then);  // at once unless frozen
  void die();

  bool dead() const { return dead_; }
  bool frozen() const { return frozen_; }
  Hold hold() const { return hold_; }
  std::uint64_t arrivals() const { return arrivals_; }
  std::size_t running() const { return running_.size(); }
  std::size_t waiting() const { return waiting_.size(); }
  std::size_t cached_prefixes() const { return prefixes_.entries(); }
  const std::shared_ptr<const Llama>& model() const { return model_; }
  const Dirt& dirt() const { return dirt_; }
  const std::string& directory() const { return directory_; }  // of the last load that changed anything
  const std::string& label() const { return label_; }
  void set_label(std::string label) { label_ = std::move(label); }
  void doom() { doomed_ = true; }  // the first request kills it
  bool doomed() const { return doomed_ || dirt_.torn; }

 private:
  struct Operation {
    std::function<void(Done)> work;
    std::function<void()> dropped;
  };

  // An adapter in a base, merged when it is first needed: a new base has its adapters anew.
  struct Merged {
    std::shared_ptr<const Llama> base;
    std::weak_ptr<const ServedAdapter> adapter;
    std::shared_ptr<const Llama> model;
  };

  void wake();  // goes on, from a fresh stack
  void go_on();
  void start_operation();
  void admit();
  void start_step();
  void end_step();
  // The base that is served now with the adapter in it.
  std::shared_ptr<const Llama> model_for(const std::shared_ptr<const ServedAdapter>& adapter);
  void end(const std::shared_ptr<Generation>& generation, Finish finish);

  Loop& loop_;
  Pool& pool_;
  Settings settings_;
  std::shared_ptr<const Llama> model_;
  std::string directory_;
  std::string label_ = "default";
  Dirt dirt_;
  PrefixCache prefixes_;
  std::vector<Merged> merged_;
  std::deque<Operation> operations_;
  std::deque<std::shared_ptr<Generation>> waiting_;
  std::vector<std::shared_ptr<Generation>> running_;
  std::vector<std::function<void()>> drained_;
  std::vector<std::function<void()>> thawed_;
  std::function<void()> current_dropped_;  // of the operation under way
  Hold hold_ = Hold::none;
  std::uint64_t arrivals_ = 0;
  bool busy_ = false;
  bool wake_posted_ = false;
  bool frozen_ = false;
  bool doomed_ = false;
  bool dead_ = false;
};

}  // namespace weighlock::tiny
