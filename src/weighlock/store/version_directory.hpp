// A version's directory opened as its Reach allows: one place that decides which links are followed.
#pragma once

#include <optional>
#include <string>

#include "weighlock/core/result.hpp"
#include "weighlock/io/directory.hpp"
#include "weighlock/store/inspection.hpp"

namespace weighlock {

class VersionDirectory {
 public:
  // `storage_not_visible`, with the diagnosis of access, when it isn't there or closed to us.
  static Result<VersionDirectory> open(FileSystem& files, const std::string& directory, const Reach& reach);

  Directory& directory() { return directory_; }
  const Directory& directory() const { return directory_; }
  const std::string& path() const { return directory_.path(); }
  // A link that may not be followed is `checkpoint_invalid`; a file closed to us is `storage_not_visible` and says why.
  Result<File> open_file(const std::string& name) const;
  // The same, and its size must be `expected`.
  Result<File> open_file(const std::string& name, std::uint64_t expected) const;

 private:
  VersionDirectory(FileSystem& files, Directory directory, std::optional<Directory> root, std::string prefix,
                   Follow follow)
      : files_(&files),
        directory_(std::move(directory)),
        root_(std::move(root)),
        prefix_(std::move(prefix)),
        follow_(follow) {}

  FileSystem* files_;
  Directory directory_;
  std::optional<Directory> root_;  // when it isn't the directory itself
  std::string prefix_;             // from the root to the directory, with a slash at the end
  Follow follow_;
};

}  // namespace weighlock
