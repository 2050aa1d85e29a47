// What a pair's policy takes away from what every update promises, in words for its status and answers
// (design: protocol.md section 7).
#pragma once

#include "weighlock/core/json.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock {

// Empty for the default policy. One sentence each, beginning with the setting.
json::array not_promised(const protocol::Policy& policy);

}  // namespace weighlock
