// A LoRA adapter as PEFT writes it: do its config and its tensors agree, with each other and with the base model.
#pragma once

#include <cstdint>
#include <string_view>

#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/store/inspection.hpp"

namespace weighlock {

inline constexpr std::string_view kAdapterConfigName = "adapter_config.json";
inline constexpr std::string_view kAdapterWeightsName = "adapter_model.safetensors";

// `config` is an object. Refused: no tensor; a rank that is missing, not positive, above `lora_rank_max` or not the
// tensors'; an A without its B; names that the base doesn't have; what engines would leave out silently
// (`modules_to_save`, DoRA's magnitudes, biases) or refuse.
Status check_adapter(const json::value& config, const Layout& layout, const InspectOptions& options);

// The greatest rank of the adapter's modules, by their tensors: what an engine's limit must hold. 0 = no modules.
std::int64_t adapter_rank(const Layout& layout);

}  // namespace weighlock
