// An open file: whole reads, whole writes, sync, a checked close.
//
// Owns its descriptor; the FileSystem must outlive it. One user at a time, though reads from several threads are safe.
// Errors name the path as it was opened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weighlock/core/result.hpp"
#include "weighlock/io/file_system.hpp"

namespace weighlock {

class File {
 public:
  File(FileSystem& files, int descriptor, std::string path)
      : files_(&files), descriptor_(descriptor), path_(std::move(path)) {}
  ~File();  // closes; what a writer must know is in `close`
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }

  Result<struct stat> status() const;
  // Fails unless it is a regular file.
  Result<std::uint64_t> size() const;

  // Fills `into` from `offset`; an end of file before that is an error that says what was wanted and what was there.
  Status read_exactly(std::uint64_t offset, std::span<std::byte> into) const;
  // The whole file as text; `too_large` when it has more than `bytes_max`.
  Result<std::string> read_text(std::size_t bytes_max) const;
  // Writes all of `bytes` at `offset`, however often the system writes less.
  Status write_all(std::uint64_t offset, std::string_view bytes);
  // fsync, once: after a failure the data may be gone although a second call succeeds, so it must not be repeated.
  // Where the file system has no such call (EINVAL, ENOTSUP, ENOSYS) this is a success: there is nothing more that
  // could be done.
  Status sync();
  // Some file systems report a failed write only here.
  Status close();

 private:
  FileSystem* files_;
  int descriptor_;
  std::string path_;
};

}  // namespace weighlock
