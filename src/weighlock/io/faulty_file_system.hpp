// A file system for tests: passes every call on, counts it, and makes the chosen one fail.
//
//   FaultyFileSystem files(real);
//   files.fail_at(7, ENOSPC);                   // the 8th call from now fails, the others work
//   files.fail_from(7, ESTALE);                 // that one and all after it
//   files.on_call = [](const char* call, const std::string& name) { return 0; };  // or an errno to fail with
//
// Included by tests only. Not for several threads.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "weighlock/io/file_system.hpp"

namespace weighlock {

class FaultyFileSystem final : public FileSystem {
 public:
  explicit FaultyFileSystem(FileSystem& real) : real_(real) {}

  void fail_at(std::size_t call, int failure) { arm(call, call + 1, failure); }
  void fail_from(std::size_t call, int failure) { arm(call, std::numeric_limits<std::size_t>::max(), failure); }
  bool fired() const { return fired_; }
  std::size_t calls() const { return calls_; }
  std::vector<std::string> log;                                           // "write_at", ... in order
  std::size_t write_bytes_max = std::numeric_limits<std::size_t>::max();  // a call writes no more than this
  std::size_t read_bytes_max = std::numeric_limits<std::size_t>::max();
  bool openat2_missing = false;
  bool sync_is_free = false;  // counted and failed as asked, but not passed on: tests don't cut the power
  std::function<int(const char* call, const std::string& name)> on_call;

  int open_at(int directory, const char* path, int flags, mode_t mode) override {
    if (const int failure = next("open_at", path)) return failure;
    return real_.open_at(directory, path, flags, mode);
  }
  int open_beneath(int directory, const char* path, int flags, bool links) override {
    if (openat2_missing) return -ENOSYS;
    if (const int failure = next("open_beneath", path)) return failure;
    return real_.open_beneath(directory, path, flags, links);
  }
  int close(int descriptor) override {
    const int failure = next("close", "");
    const int closed = real_.close(descriptor);  // as Linux does, even when it reports an error
    return failure != 0 ? failure : closed;
  }
  ssize_t read_at(int descriptor, void* into, std::size_t bytes, std::uint64_t offset) override {
    if (const int failure = next("read_at", "")) return failure;
    return real_.read_at(descriptor, into, std::min(bytes, read_bytes_max), offset);
  }
  ssize_t write_at(int descriptor, const void* from, std::size_t bytes, std::uint64_t offset) override {
    if (const int failure = next("write_at", "")) return failure;
    return real_.write_at(descriptor, from, std::min(bytes, write_bytes_max), offset);
  }
  int sync(int descriptor) override {
    if (const int failure = next("sync", "")) return failure;
    return sync_is_free ? 0 : real_.sync(descriptor);
  }
  int change_mode(int descriptor, mode_t mode) override {
    if (const int failure = next("change_mode", "")) return failure;
    return real_.change_mode(descriptor, mode);
  }
  int status(int descriptor, struct stat& into) override {
    if (const int failure = next("status", "")) return failure;
    return real_.status(descriptor, into);
  }
  int status_at(int directory, const char* name, struct stat& into) override {
    if (const int failure = next("status_at", name)) return failure;
    return real_.status_at(directory, name, into);
  }
  int space(int descriptor, struct statvfs& into) override {
    if (const int failure = next("space", "")) return failure;
    const int done = real_.space(descriptor, into);
    if (free_blocks) into.f_bavail = *free_blocks;
    return done;
  }
  int make_directory(int directory, const char* name, mode_t mode) override {
    if (const int failure = next("make_directory", name)) return failure;
    return real_.make_directory(directory, name, mode);
  }
  int rename(int from, const char* old_name, int to, const char* new_name, bool replace) override {
    if (const int failure = next("rename", new_name)) return failure;
    return real_.rename(from, old_name, to, new_name, replace);
  }
  int link(int directory, const char* old_name, const char* new_name) override {
    if (const int failure = next("link", new_name)) return failure;
    return real_.link(directory, old_name, new_name);
  }
  int remove(int directory, const char* name, bool is_directory) override {
    if (const int failure = next("remove", name)) return failure;
    return real_.remove(directory, name, is_directory);
  }
  int read_link(int directory, const char* name, std::string& into) override {
    if (const int failure = next("read_link", name)) return failure;
    return real_.read_link(directory, name, into);
  }
  int list(int directory, std::size_t names_max, std::vector<std::string>& into) override {
    if (const int failure = next("list", "")) return failure;
    return real_.list(directory, names_max, into);
  }

  const std::uint64_t* free_blocks = nullptr;  // what `space` should say

 private:
  void arm(std::size_t first, std::size_t end, int failure) {
    first_ = calls_ + first;
    end_ = end == std::numeric_limits<std::size_t>::max() ? end : calls_ + end;
    failure_ = failure;
    fired_ = false;
  }
  // 0, or the -errno that this call must give.
  int next(const char* call, const std::string& name) {
    log.emplace_back(call);
    const std::size_t number = calls_++;
    if (on_call) {
      if (const int failure = on_call(call, name)) return -failure;
    }
    if (number < first_ || number >= end_) return 0;
    fired_ = true;
    return -failure_;
  }

  FileSystem& real_;
  std::size_t calls_ = 0;
  std::size_t first_ = std::numeric_limits<std::size_t>::max();
  std::size_t end_ = std::numeric_limits<std::size_t>::max();
  int failure_ = 0;
  bool fired_ = false;
};

}  // namespace weighlock
