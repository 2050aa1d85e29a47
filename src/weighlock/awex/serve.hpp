// The two lists as workers read them: GET /weight_meta/{pair}/training_params_meta and .../infer_params_meta.
//
// Each is the finished answer {"value":[...]}, compact, to be stored once and sent to every worker. Members come in the
// package's order, "shards" is [] (the planner reads only `replicas`), and all that a worker reported beside is there
// again. Every worker asks for the same key without saying who it is, so nothing can be left out for one of them.
//
// Pure; any thread.
#pragma once

#include <string>

#include "weighlock/awex/repair.hpp"

namespace weighlock::awex {

struct Served {
  std::string train;
  std::string infer;
};
Served serialise(const Repaired& repaired);

}  // namespace weighlock::awex
