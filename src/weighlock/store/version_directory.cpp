#include "weighlock/store/version_directory.hpp"

#include <fmt/format.h>

#include <utility>

#include "weighlock/io/access.hpp"
#include "weighlock/store/paths.hpp"
#include "weighlock/tensor/quote.hpp"

namespace weighlock {
namespace {

// What isn't there or is closed to us needs more words than an errno: who looked, and what the storage says.
Error out_of_sight(FileSystem& files, const std::string& path, Error error) {
  if (error.code == ErrorCode::invalid_argument) {
    return wrap(ErrorCode::permission_denied, fmt::format("'{}' is reached by a link that leads out", path),
                std::move(error));
  }
  if (error.code != ErrorCode::not_found && error.code != ErrorCode::permission_denied) return error;
  return wrap(ErrorCode::storage_not_visible, describe_access(files, path), std::move(error));
}

}  // namespace

Result<VersionDirectory> VersionDirectory::open(FileSystem& files, const std::string& directory, const Reach& reach) {
  if (reach.root.empty() || reach.root == directory) {
    Result<Directory> opened = Directory::open(files, directory);
    if (!opened) return out_of_sight(files, directory, std::move(opened).error());
    return VersionDirectory(files, std::move(opened).value(), std::nullopt, "", reach.follow);
  }
  const Result<std::string> path = normal_path(directory);
  if (!path) return path.error();
  const Result<std::string> root = normal_path(reach.root);
  if (!root) return root.error();
  if (!is_beneath(*path, *root)) {
    return Error{ErrorCode::permission_denied, fmt::format("'{}' doesn't lie in '{}'", *path, *root)};
  }
  Result<Directory> opened_root = Directory::open(files, *root);
  if (!opened_root) return out_of_sight(files, *root, std::move(opened_root).error());
  const std::string relative = relative_to(*path, *root);
  Result<Directory> opened = opened_root->open_directory(relative, reach.follow);
  if (!opened) return out_of_sight(files, *path, std::move(opened).error());
  return VersionDirectory(files, std::move(opened).value(), std::move(opened_root).value(), relative + "/",
                          reach.follow);
}

Result<File> VersionDirectory::open_file(const std::string& name) const {
  Result<File> file = root_ ? root_->open_file(prefix_ + name, follow_) : directory_.open_file(name, follow_);
  if (!file && file.error().code == ErrorCode::invalid_argument) {
    return wrap(ErrorCode::checkpoint_invalid,
                fmt::format("'{}': {} is a symbolic link that leads out of '{}' or in a circle, and isn't followed",
                            path(), quote_name(name), root_ ? root_->path() : path()),
                std::move(file).error());
  }
  if (!file && file.error().code == ErrorCode::permission_denied) {
    return out_of_sight(*files_, directory_.path_of(name), std::move(file).error());
  }
  return file;
}

Result<File> VersionDirectory::open_file(const std::string& name, std::uint64_t expected) const {
  Result<File> file = open_file(name);
  if (!file) return file;
  const Result<std::uint64_t> size = file->size();
  if (!size) return size.error();
  if (*size != expected) {
    return Error{ErrorCode::checkpoint_invalid,
                 fmt::format("'{}' has {} bytes, expected {}", file->path(), *size, expected)};
  }
  return file;
}

}  // namespace weighlock
