// The LoRA adapters in an engine's list of models. Both dialects list them alike: an entry with a parent, the base.
//
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/core/operation.hpp"

namespace weighlock {

// Of the answer to GET /v1/models, in its order; none if that isn't a list of models.
std::optional<std::vector<LoadedAdapter>> adapters_of(const json::value& models);

// The served model itself: the first entry without a parent; null if there is none.
const json::value* base_model_of(const json::value& models);

}  // namespace weighlock
