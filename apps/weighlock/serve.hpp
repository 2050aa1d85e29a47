// `weighlock serve`: the process around the gateway.
#pragma once

#include "weighlock/config/options.hpp"

namespace weighlock {

// Blocks until the gateway has ended; the process's exit code. `options.host` is an address.
int run_serve(const config::ServeOptions& options);

}  // namespace weighlock
