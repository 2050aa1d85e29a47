// GET /openapi.json: what the server takes and answers, from one table.
//
// The table and the router must agree: `undocumented` is asked when the gateway is made, and a difference ends it.
#pragma once

#include <string>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/gateway/api/router.hpp"

namespace weighlock {

json::object openapi_document();

// Routes without a row and rows without a route, as "METHOD /path"; empty when both are the same.
std::vector<std::string> undocumented(const Router& router);

// After all other routes were added.
void add_openapi_route(Router& router);

}  // namespace weighlock
