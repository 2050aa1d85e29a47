// The body of the compatible POST /connect, as far as it can be judged on the spot. Pure.
#pragma once

#include <optional>
#include <string_view>

#include "weighlock/core/http.hpp"
#include "weighlock/gateway/confinement.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock {

// Checks body, key and values, in the Python gateway's order, and fills `out`; or the refusal, which is to be answered
// as it is. `defaults` are the settings of a pair that names none.
std::optional<HttpResponse> read_connect_request(const HttpRequest& request, std::string_view admin_api_key,
                                                 const Confinement& confinement, const protocol::Policy& defaults,
                                                 protocol::PairSpec& out);

}  // namespace weighlock
