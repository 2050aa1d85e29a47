// Why a path can't be reached from here, in words for the person who runs the storage.
#pragma once

#include <string>

#include "weighlock/core/result.hpp"
#include "weighlock/io/file_system.hpp"

namespace weighlock {

// One line: host, uid and gid that look; the first part of the path that is missing or closed to us; mode bits and
// owner of what was found; whether it is a mount of its own; the likely cause. Never fails. `path` should be absolute.
std::string describe_access(FileSystem& files, const std::string& path);

// Whether this process may open the file: `not_found` if it isn't there; `permission_denied` if it, or a directory on
// the way to it, is another user's, with who we are, whose it is and what to do. Whatever else the opening says is left
// to who opens it next. Nothing is changed.
Status check_openable(FileSystem& files, const std::string& path, bool write);

}  // namespace weighlock
