// Random ids from the kernel.
#pragma once

#include <cstddef>
#include <string>

namespace weighlock {

// `bytes` random bytes (at most 256) as lower-case hex, two digits each. Safe from any thread.
std::string random_hex(std::size_t bytes);

}  // namespace weighlock
