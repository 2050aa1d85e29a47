// Where the ranks of an AWEX pair are told to meet must be one place for all of them.
//
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weighlock/gateway/settings.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock {

// Refuses the first worker's host as the meeting place if it is a loopback one and any worker or trainer is given by
// another: each host would be led to itself. What the client gives as `nccl_master_addr` is its own word (all may be on
// one host). Colocated pairs don't meet there.
std::optional<FieldError> check_meeting(const protocol::PairSpec& spec, const std::vector<std::string>& workers);

}  // namespace weighlock
