// Paths as text: no file is touched.
#pragma once

#include <string>
#include <string_view>

#include "weighlock/core/result.hpp"

namespace weighlock {

// Absolute, without "..", empty and "." parts and a slash at the end: "/shared/w".
Result<std::string> normal_path(std::string_view path);
// Of normalised paths: whether `path` is `root` or lies below it.
bool is_beneath(std::string_view path, std::string_view root);
// Of normalised paths, `path` beneath `root`: the way down, "." for the root itself.
std::string relative_to(std::string_view path, std::string_view root);
// Of normalised paths: "/a/b" -> "/a" and "b".
std::string parent_of(std::string_view path);
std::string name_of(std::string_view path);

}  // namespace weighlock
