// What rank 0 of a trainer of LoRA adapters writes: PEFT's two files, and what can be wrong with them.
//
// Blocks: call from a pool. The values follow from the seed and the step alone.
#pragma once

#include <cstdint>
#include <string>

#include "tinyengine/model/adapter.hpp"
#include "tinytrainer/rank_fault.hpp"

namespace weighlock::tiny {

Status write_trained_adapter(const std::string& directory, const ModelShape& shape, AdapterConfig config,
                             std::uint64_t seed, std::uint64_t step, RankFaultKind fault);

}  // namespace weighlock::tiny
