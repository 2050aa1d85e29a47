// The operating system's file calls, one virtual function each.
//
// Contract: a result of 0 or above is the call's own, below 0 it is -errno. Names are single components relative to an
// open directory unless a comment says otherwise. No policy is in here: retries, whole lengths and messages are in
// file.hpp and directory.hpp. Implementations may be called from several threads at once. Errors are never thrown.
#pragma once

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace weighlock {

// Whether a symbolic link is followed while a path is opened: not at all, only beneath the directory that it starts
// from, or to wherever it points.
enum class Follow { no, beneath, anywhere };

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // openat(2); `path` may have several components and links are followed unless `flags` holds O_NOFOLLOW. AT_FDCWD is
  // allowed.
  virtual int open_at(int directory, const char* path, int flags, mode_t mode) = 0;
  // openat2(2) that never leaves `directory`; `links` says whether links inside are followed. -ENOSYS where the kernel
  // hasn't it.
  virtual int open_beneath(int directory, const char* path, int flags, bool links) = 0;
  virtual int close(int descriptor) = 0;
  virtual ssize_t read_at(int descriptor, void* into, std::size_t bytes, std::uint64_t offset) = 0;
  virtual ssize_t write_at(int descriptor, const void* from, std::size_t bytes, std::uint64_t offset) = 0;
  virtual int sync(int descriptor) = 0;
  virtual int change_mode(int descriptor, mode_t mode) = 0;
  virtual int status(int descriptor, struct stat& into) = 0;
  virtual int status_at(int directory, const char* name, struct stat& into) = 0;  // of a link itself
  virtual int space(int descriptor, struct statvfs& into) = 0;
  virtual int make_directory(int directory, const char* name, mode_t mode) = 0;
  // Without `replace`, -EEXIST when the new name is taken.
  virtual int rename(int from, const char* old_name, int to, const char* new_name, bool replace) = 0;
  // A second name for a file of the same directory; -EEXIST when it is taken.
  virtual int link(int directory, const char* old_name, const char* new_name) = 0;
  virtual int remove(int directory, const char* name, bool is_directory) = 0;
  // The link's target, whole.
  virtual int read_link(int directory, const char* name, std::string& into) = 0;
  // All names but "." and "..", at most `names_max`: one more is -E2BIG.
  virtual int list(int directory, std::size_t names_max, std::vector<std::string>& into) = 0;
};

// The calls themselves.
class RealFileSystem final : public FileSystem {
 public:
  int open_at(int directory, const char* path, int flags, mode_t mode) override;
  int open_beneath(int directory, const char* path, int flags, bool links) override;
  int close(int descriptor) override;
  ssize_t read_at(int descriptor, void* into, std::size_t bytes, std::uint64_t offset) override;
  ssize_t write_at(int descriptor, const void* from, std::size_t bytes, std::uint64_t offset) override;
  int sync(int descriptor) override;
  int change_mode(int descriptor, mode_t mode) override;
  int status(int descriptor, struct stat& into) override;
  int status_at(int directory, const char* name, struct stat& into) override;
  int space(int descriptor, struct statvfs& into) override;
  int make_directory(int directory, const char* name, mode_t mode) override;
  int rename(int from, const char* old_name, int to, const char* new_name, bool replace) override;
  int link(int directory, const char* old_name, const char* new_name) override;
  int remove(int directory, const char* name, bool is_directory) override;
  int read_link(int directory, const char* name, std::string& into) override;
  int list(int directory, std::size_t names_max, std::vector<std::string>& into) override;
};

}  // namespace weighlock
