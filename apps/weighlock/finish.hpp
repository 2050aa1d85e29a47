// `weighlock finish`: ends what a gateway left undone.
#pragma once

#include "terminal.hpp"

namespace weighlock {

// Blocks until it is done; gives the process's exit code: 0 when no worker is left paused by us, 4 when some are (each
// is named with its cause), else that of the error.
int run_finish(const cli::FinishArguments& arguments, cli::Terminal& terminal);

}  // namespace weighlock
