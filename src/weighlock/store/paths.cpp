#include "weighlock/store/paths.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weighlock/tensor/quote.hpp"

namespace weighlock {

Result<std::string> normal_path(std::string_view path) {
  if (!path.starts_with('/')) {
    return Error{
        ErrorCode::invalid_argument,
        fmt::format("the path {} must be absolute: each process has a working directory of its own", quote_name(path))};
  }
  if (path.find('\0') != std::string_view::npos) {
    return Error{ErrorCode::invalid_argument, fmt::format("the path {} holds a NUL", quote_name(path))};
  }
  std::string normal;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (part == "..") return Error{ErrorCode::invalid_argument, "a path mustn't hold '..'"};
    if (part.empty() || part == ".") continue;
    normal += '/';
    normal += part;
  }
  return normal.empty() ? std::string("/") : normal;
}

bool is_beneath(std::string_view path, std::string_view root) {
  if (root == "/" || path == root) return true;
  return path.starts_with(root) && path.substr(root.size()).starts_with('/');
}

std::string relative_to(std::string_view path, std::string_view root) {
  if (path == root) return ".";
  return std::string(path.substr(root == "/" ? 1 : root.size() + 1));
}

std::string parent_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string name_of(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

}  // namespace weighlock
