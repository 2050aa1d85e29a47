#include "weighlock/io/file_system.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string_view>

namespace weighlock {
namespace {

template <typename T>
T or_errno(T result) {
  return result < 0 ? static_cast<T>(-errno) : result;
}

}  // namespace

int RealFileSystem::open_at(int directory, const char* path, int flags, mode_t mode) {
  return or_errno(::openat(directory, path, flags | O_CLOEXEC, mode));
}

int RealFileSystem::open_beneath(int directory, const char* path, int flags, bool links) {
  struct open_how how = {};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  if (!links) how.resolve |= RESOLVE_NO_SYMLINKS;
  return static_cast<int>(or_errno(::syscall(SYS_openat2, directory, path, &how, sizeof how)));
}

int RealFileSystem::close(int descriptor) {
  return or_errno(::close(descriptor));
}

ssize_t RealFileSystem::read_at(int descriptor, void* into, std::size_t bytes, std::uint64_t offset) {
  return or_errno(::pread(descriptor, into, bytes, static_cast<off_t>(offset)));
}

ssize_t RealFileSystem::write_at(int descriptor, const void* from, std::size_t bytes, std::uint64_t offset) {
  return or_errno(::pwrite(descriptor, from, bytes, static_cast<off_t>(offset)));
}

int RealFileSystem::sync(int descriptor) {
  return or_errno(::fsync(descriptor));
}

int RealFileSystem::change_mode(int descriptor, mode_t mode) {
  return or_errno(::fchmod(descriptor, mode));
}

int RealFileSystem::status(int descriptor, struct stat& into) {
  return or_errno(::fstat(descriptor, &into));
}

int RealFileSystem::status_at(int directory, const char* name, struct stat& into) {
  return or_errno(::fstatat(directory, name, &into, AT_SYMLINK_NOFOLLOW));
}

int RealFileSystem::space(int descriptor, struct statvfs& into) {
  return or_errno(::fstatvfs(descriptor, &into));
}

int RealFileSystem::make_directory(int directory, const char* name, mode_t mode) {
  return or_errno(::mkdirat(directory, name, mode));
}

int RealFileSystem::rename(int from, const char* old_name, int to, const char* new_name, bool replace) {
  if (replace) return or_errno(::renameat(from, old_name, to, new_name));
  const int renamed = or_errno(::renameat2(from, old_name, to, new_name, RENAME_NOREPLACE));
  if (renamed != -EINVAL && renamed != -ENOSYS) return renamed;
  // NFS and others can't refuse in one step: look first. Each directory that we rename into has one writer.
  struct stat found = {};
  const int looked = status_at(to, new_name, found);
  if (looked == 0) return -EEXIST;
  if (looked != -ENOENT) return looked;
  return or_errno(::renameat(from, old_name, to, new_name));
}

int RealFileSystem::link(int directory, const char* old_name, const char* new_name) {
  return or_errno(::linkat(directory, old_name, directory, new_name, 0));
}

int RealFileSystem::remove(int directory, const char* name, bool is_directory) {
  return or_errno(::unlinkat(directory, name, is_directory ? AT_REMOVEDIR : 0));
}

int RealFileSystem::read_link(int directory, const char* name, std::string& into) {
  std::string target(4096, '\0');  // PATH_MAX: no longer link can be made
  const ssize_t length = or_errno(::readlinkat(directory, name, target.data(), target.size()));
  if (length < 0) return static_cast<int>(length);
  if (static_cast<std::size_t>(length) == target.size()) return -ENAMETOOLONG;
  target.resize(static_cast<std::size_t>(length));
  into = std::move(target);
  return 0;
}

int RealFileSystem::list(int directory, std::size_t names_max, std::vector<std::string>& into) {
  const int again = or_errno(::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));  // a position of its own
  if (again < 0) return again;
  const auto close_stream = [](DIR* open) { ::closedir(open); };
  const std::unique_ptr<DIR, decltype(close_stream)> stream(::fdopendir(again), close_stream);
  if (!stream) {
    const int failure = -errno;
    ::close(again);
    return failure;
  }
  into.clear();
  for (;;) {
    errno = 0;
    const struct dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) return -errno;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (into.size() == names_max) return -E2BIG;
    into.emplace_back(name);
  }
}

}  // namespace weighlock
