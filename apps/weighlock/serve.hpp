// `weighlock serve`: the gateway's life as a process.
#pragma once

#include "weighlock/config/options.hpp"
#include "weighlock/gateway/gateway.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {

LogLevel level_of(config::LogLevel level);
GatewaySettings gateway_settings(const config::ServeOptions& options);

// Runs until SIGTERM or SIGINT, and leaves within 5 s of the first; a second one ends it at once. Gives the process's
// exit code: 0 when everything was brought to a safe state, 1 when work is left for `weighlock finish`, else that of
// the error that kept it from starting. A gateway that crashes is started again (keeper.hpp), unless the options say
// that somebody else does. The calling thread is the process's only one.
int run_serve(const config::ServeOptions& options);

}  // namespace weighlock
