// The two lists as workers read them: GET /weight_meta/{pair}/training_params_meta and .../infer_params_meta.
//
// Each is the finished answer {"value":[...]}, compact, to be stored once and sent to every worker. Members come in the
// package's order, "shards" is [] (the planner reads only `replicas`), and all that a worker reported beside is there
// again. Every worker asks for the same key without saying who it is, so nothing can be left out for one of them.
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "weighlock/awex/repair.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::awex {

struct Served {
  std::string train;
  std::string infer;
};
// Both together. Error: too_large when they would have more than `bytes_max`, with the model's size and a remedy.
Result<Served> serialise(const Repaired& repaired, std::size_t bytes_max);

}  // namespace weighlock::awex
