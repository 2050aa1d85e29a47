// Preloaded into the gateway: one line for each fsync and fdatasync, "BEGIN_NS END_NS PATH", in the file named by
// WEIGHLOCK_FSYNC_LOG. Times are CLOCK_MONOTONIC, as the fleet's. Not for anything but benchmarks.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

using Sync = int (*)(int);

long long now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

int logged(const char* name, int file) {
  static const char* const log = std::getenv("WEIGHLOCK_FSYNC_LOG");
  const Sync real = reinterpret_cast<Sync>(dlsym(RTLD_NEXT, name));
  const long long began = now_ns();
  const int result = real(file);
  if (log == nullptr) return result;
  char link[64];
  char path[512] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) < 0) path[0] = '?';
  char line[640];
  const int size = std::snprintf(line, sizeof line, "%lld %lld %s\n", began, now_ns(), path);
  const int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (out < 0) return result;
  if (write(out, line, static_cast<std::size_t>(size)) != size) std::abort();
  close(out);
  return result;
}

}  // namespace

extern "C" int fsync(int file) {
  return logged("fsync", file);
}
extern "C" int fdatasync(int file) {
  return logged("fdatasync", file);
}
