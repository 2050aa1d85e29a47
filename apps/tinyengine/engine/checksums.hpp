// An engine's own parameters, which aren't a checkpoint's: query, key and value projections are one tensor, gate and up
// another.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tinyengine/model/llama.hpp"

namespace weighlock::tiny {

// Names and raw bytes, in the order of the layers.
std::vector<std::pair<std::string, std::string>> fused_parameters(const Llama& model);

// Whether vLLM packs the parameter away on a CPU, so that its own copy is empty: every linear layer but lm_head.
bool is_packed_linear(const std::string& fused_name);

}  // namespace weighlock::tiny
