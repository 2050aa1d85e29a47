// Opening a path without leaving the directory that it starts from.
#pragma once

#include <string>

#include "weighlock/io/file_system.hpp"

namespace weighlock {

// A descriptor or -errno: -EXDEV for a path or a link that leads out of `directory` (absolute links do), -ELOOP for a
// link where none may be followed or for too many. By openat2 where the kernel has it, otherwise component by
// component.
int open_beneath(FileSystem& files, int directory, const std::string& relative, int flags, bool links);

}  // namespace weighlock
