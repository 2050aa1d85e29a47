// Preloaded into the gateway: while the file named by WEIGHLOCK_DISK_FAULT holds a number above 0, each fsync and
// fdatasync of a file of the journal fails with EIO and takes one off. For tests/crash only.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

using Sync = int (*)(int);

bool is_journal(int file) {
  char link[64];
  char path[512] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  return readlink(link, path, sizeof path - 1) > 0 && std::strstr(path, "/journal.db") != nullptr;
}

bool fails() {
  static const char* const control = std::getenv("WEIGHLOCK_DISK_FAULT");
  const int file = control ? open(control, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return false;
  char text[16] = {};
  int left = pread(file, text, sizeof text - 1, 0) > 0 ? std::atoi(text) : 0;
  const bool failing = left > 0;
  if (failing) {
    const int size = std::snprintf(text, sizeof text, "%-8d", --left);
    if (pwrite(file, text, static_cast<std::size_t>(size), 0) != size) std::abort();
  }
  close(file);
  return failing;
}

int sync_by(const char* name, int file) {
  const Sync real = reinterpret_cast<Sync>(dlsym(RTLD_NEXT, name));
  if (is_journal(file) && fails()) {
    errno = EIO;
    return -1;
  }
  return real(file);
}

}  // namespace

extern "C" int fsync(int file) {
  return sync_by("fsync", file);
}
extern "C" int fdatasync(int file) {
  return sync_by("fdatasync", file);
}
