// The program but for the process around it: parse, run, and the exit code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "terminal.hpp"

namespace weighlock::cli {

// `serve` runs the gateway until it ends and gives the process's exit code; main hands it in.
using Serve = std::function<int(const config::ServeOptions&)>;

// `finish` likewise ends what a gateway left undone.
using Finish = std::function<int(const FinishArguments&, Terminal&)>;

int run(
    const std::vector<std::string>& arguments, const Surroundings& surroundings, Terminal& terminal, const Serve& serve,
    const Finish& finish = [](const FinishArguments&, Terminal&) { return 0; });

}  // namespace weighlock::cli
