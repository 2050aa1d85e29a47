#include "weighlock/io/file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "weighlock/core/check.hpp"
#include "weighlock/io/os_error.hpp"

namespace weighlock {

File::~File() {
  if (descriptor_ >= 0) files_->close(descriptor_);
}

File::File(File&& other) noexcept
    : files_(other.files_), descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(files_, other.files_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

Result<struct stat> File::status() const {
  struct stat found = {};
  if (const int done = files_->status(descriptor_, found); done < 0) {
    return os_error(fmt::format("stat '{}'", path_), done);
  }
  return found;
}

Result<std::uint64_t> File::size() const {
  const Result<struct stat> found = status();
  if (!found) return found.error();
  if (!S_ISREG(found->st_mode))
    return Error{ErrorCode::checkpoint_invalid, fmt::format("'{}' is not a regular file", path_)};
  return static_cast<std::uint64_t>(found->st_size);
}

Status File::read_exactly(std::uint64_t offset, std::span<std::byte> into) const {
  std::size_t got = 0;
  while (got < into.size()) {
    const ssize_t step = files_->read_at(descriptor_, into.data() + got, into.size() - got, offset + got);
    if (step == -EINTR) continue;
    if (step < 0) return os_error(fmt::format("read '{}' at byte {}", path_, offset + got), static_cast<int>(step));
    if (step == 0) {
      return Error{ErrorCode::checkpoint_invalid, fmt::format("'{}' is cut short: wanted {} bytes at byte {}, got {}",
                                                              path_, into.size(), offset, got)};
    }
    got += static_cast<std::size_t>(step);
  }
  return {};
}

Result<std::string> File::read_text(std::size_t bytes_max) const {
  const Result<std::uint64_t> bytes = size();
  if (!bytes) return bytes.error();
  if (*bytes > bytes_max) {
    return Error{ErrorCode::too_large, fmt::format("'{}' has {} bytes, and the limit is {}", path_, *bytes, bytes_max)};
  }
  std::string text(*bytes, '\0');
  if (Status read = read_exactly(0, std::as_writable_bytes(std::span(text))); !read) return std::move(read).error();
  return text;
}

Status File::write_all(std::uint64_t offset, std::string_view bytes) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t step =
        files_->write_at(descriptor_, bytes.data() + written, bytes.size() - written, offset + written);
    if (step == -EINTR) continue;
    if (step < 0)
      return os_error(fmt::format("write '{}' at byte {}", path_, offset + written), static_cast<int>(step));
    if (step == 0) return os_error(fmt::format("write '{}' at byte {}", path_, offset + written), EIO);
    written += static_cast<std::size_t>(step);
  }
  return {};
}

Status File::sync() {
  const int done = files_->sync(descriptor_);
  if (done >= 0 || done == -EINVAL || done == -ENOTSUP || done == -ENOSYS) return {};
  return os_error(fmt::format("fsync '{}'", path_), done);
}

Status File::close() {
  WEIGHLOCK_CHECK(descriptor_ >= 0, "a file is closed once");
  const int done = files_->close(std::exchange(descriptor_, -1));
  if (done < 0 && done != -EINTR) return os_error(fmt::format("close '{}'", path_), done);
  return {};
}

}  // namespace weighlock
