// What `weighlock --version` prints; the number is the project's in CMakeLists.txt.
#pragma once

#include <string_view>

namespace weighlock::cli {

inline constexpr std::string_view kVersionLine = "weighlock " WEIGHLOCK_VERSION;

}  // namespace weighlock::cli
