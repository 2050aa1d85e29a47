// An errno as an Error: the code by which a caller decides, and a text that names the call's object.
#pragma once

#include <string>

#include "weighlock/core/result.hpp"

namespace weighlock {

// `failure` is an errno or -errno. "cannot open '/shared/w': permission denied (EACCES)". Codes:
//   ENOENT, ENOTDIR -> not_found           EACCES, EPERM, EROFS -> permission_denied
//   EEXIST, ENOTEMPTY -> conflict          ENOSPC, EDQUOT -> storage_full
//   ESTALE -> storage_not_visible (a handle that the file server no longer knows: look again by opening)
//   ELOOP, EXDEV -> invalid_argument (a link that may not be followed)
//   all others (EIO, ...) -> storage_failed
Error os_error(std::string what, int failure);

}  // namespace weighlock
