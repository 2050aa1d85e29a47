// What each engine does with a checkpoint, as measured: which files it takes, which it takes wrongly, and what is left
// of the served weights after a failure (contracts: SGLang 1.1, vLLM 6).
//
// Thread rule: pure functions over values plus file reads; run on a pool.
#pragma once

#include <memory>
#include <string>

#include "tinyengine/model/checkpoint.hpp"
#include "tinyengine/model/llama.hpp"

namespace weighlock::tiny {

// What a failed reload has left inside a vLLM worker.
struct Dirt {
  bool torn = false;            // kernel tensors are away: the first request kills the engine
  bool copies_readable = true;  // false: /weight_checker answers 500, too. true proves nothing
  bool loaders_lost = false;    // after an unknown tensor: only a load without tensors brings them back
  bool shape_lost = false;      // after a wrong shape: every later load fails the same way, until a restart
};

struct LoadRequest {
  std::string directory;
  std::string source;    // recorded in each tensor that comes from it
  bool partial = false;  // an injected fault: half of the tensors are applied, and nobody says so
};

struct LoadReport {
  std::shared_ptr<const Llama> model;  // what is served now; never null
  bool ok = false;
  bool fatal = false;  // SGLang: the scheduler is dead
  std::string text;    // the engine's words when not ok
  Dirt dirt;           // vLLM: the worker's state afterwards
};

LoadReport load_as_sglang(const Llama& served, const LoadRequest& request);
LoadReport load_as_vllm(const Llama& served, const Dirt& dirt, const LoadRequest& request);

// The first load of a life: strict, because an engine that can't start says so.
Result<std::shared_ptr<const Llama>> load_at_start(const std::string& directory, const std::string& source);

}  // namespace weighlock::tiny
