#include "weighlock/store/version_store.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace weighlock {

Patience Patience::real() {
  const auto now = [] {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return Instant{std::chrono::duration_cast<Milliseconds>(since).count()};
  };
  return {now, [](Milliseconds pause) { std::this_thread::sleep_for(pause); }};
}

VersionStore::VersionStore(FileSystem& files, Patience patience) : files_(&files), patience_(std::move(patience)) {}

}  // namespace weighlock
