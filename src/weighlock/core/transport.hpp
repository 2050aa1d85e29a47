// What the end of a call without an answer means as an error: one map for engines and trainers.
#pragma once

#include "weighlock/core/error.hpp"
#include "weighlock/core/http.hpp"

namespace weighlock {

ErrorCode code_of(TransportError::Kind kind);

}  // namespace weighlock
