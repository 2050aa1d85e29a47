// The demo's client: generates on every engine all the while, as a reinforcement-learning run does, and counts.
//
// It asks the gateway which workers are ready, as a router would, and sends nothing to the others. Thread rule: made,
// read and destroyed by one thread; it works on one of its own for each engine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weighlock/core/http.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::cli {

struct DemoEngine {
  Url url;
  std::string dialect;  // "sglang" or "vllm"
  Url readiness;        // the gateway, with the path of the worker's readiness
};

// The greedy continuation of a fixed prompt by one engine: the same weights give the same text.
Result<std::string> greedy_text(const DemoEngine& engine, Milliseconds deadline);

struct RolloutCounts {
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;     // neither completed nor ended by the pause
  std::uint64_t cut_short = 0;  // ended by a pause with the tokens so far
  std::int64_t slowest_ms = 0;
  std::string last_failure;
};

class Rollouts {
 public:
  explicit Rollouts(const std::vector<DemoEngine>& engines);
  ~Rollouts();
  RolloutCounts counts() const;

 private:
  void generate(const DemoEngine& engine);
  mutable std::mutex mutex_;
  RolloutCounts counts_;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
};

}  // namespace weighlock::cli
