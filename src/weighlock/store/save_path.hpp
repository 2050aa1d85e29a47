// Our own folder `.weighlock` under a save path.
#pragma once

#include <string>

#include "weighlock/core/result.hpp"
#include "weighlock/io/directory.hpp"

namespace weighlock {

inline constexpr const char* kOwnFolder = ".weighlock";

// The save path, made if only its last part is missing. Not below "/": what is missing there is a mount, not a folder.
Result<Directory> open_save_path(FileSystem& files, const std::string& save_path);
// `save_path`/.weighlock/`name`, made if need be; `save_path` must be there. Links in it aren't followed.
Result<Directory> open_own_folder(FileSystem& files, const std::string& save_path, const std::string& name);

}  // namespace weighlock
