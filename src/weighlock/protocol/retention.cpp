// Retention: which committed versions stay on storage (storage.md, "Leases and retention"; invariants 12 and 19).
//
// The newest `keep_versions` of a pair stay, and beside them whatever is leased: what is committed, what workers are
// healed with, what a worker holds. Directories that were handed over are never ours to delete; those of attempts that
// failed before their seal went when the attempt ended; a version that was rolled back stays for whoever wants to know
// why, until the next commit.
#include <algorithm>

#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

bool is_at(const std::optional<VersionRef>& version, const std::string& directory) {
  return version && version->directory == directory;
}

bool is_load(const EarlierCall& call) {
  return call.kind == OperationKind::load;
}

// An abandoned call is known by what it does, not by its directory: while one may still load, nothing goes.
bool load_may_run(const State& state, const std::string& pair) {
  const auto& workers = state.workers;
  return std::any_of(workers.begin(), workers.end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.pair == pair && std::any_of(worker.earlier.begin(), worker.earlier.end(), is_load);
  });
}

bool is_leased(const State& state, const Pair& pair, const std::string& directory) {
  if (is_at(pair.committed, directory) || is_at(pair.last_good, directory) || is_at(pair.previous_good, directory))
    return true;
  // Engines read an adapter again from its path when they need it.
  if (pair.spec.lora) return is_in_window(pair, directory) || may_read(pair, directory);
  const auto& workers = state.workers;
  return std::any_of(workers.begin(), workers.end(),
                     [&](const auto& entry) { return is_at(entry.second.version, directory); });
}

bool is_ours(const Update& update) {
  return update.kind == UpdateKind::update && update.path.empty() && update.sealed && !update.sealed->blind;
}

// What of `stored` goes by its age alone.
std::vector<bool> superseded(const std::deque<StoredVersion>& stored, std::size_t keep) {
  std::vector<bool> out(stored.size());
  std::size_t newer = 0;  // committed ones
  for (std::size_t i = stored.size(); i-- > 0;) {
    out[i] = stored[i].committed ? newer >= keep : newer > 0;
    if (stored[i].committed) ++newer;
  }
  return out;
}

}  // namespace

void note_stored(Pair& pair, const Update& update, bool committed) {
  if (is_ours(update)) pair.stored.push_back(StoredVersion{update.version, committed});
}

void release_versions(Context& context, const Update& update) {
  Pair& pair = context.pair_of(update);
  if (update.state >= UpdateState::rolled_back && update.committed == false) note_stored(pair, update, false);
  if (is_superseded(pair) || load_may_run(context.state(), update.pair)) return;
  const std::vector<bool> old =
      superseded(pair.stored, static_cast<std::size_t>(std::max(1, pair.spec.policy.keep_versions)));
  std::deque<StoredVersion> left;
  for (std::size_t i = 0; i < pair.stored.size(); ++i) {
    const VersionRef& version = pair.stored[i].version;
    if (!old[i] || is_leased(context.state(), pair, version.directory)) {
      left.push_back(pair.stored[i]);
      continue;
    }
    context.record(RecordKind::discard, update, "", {{"directory", version.directory}, {"version", version.version}});
    context.emit(Discard{update.id, pair.spec.save_path, version.directory});
  }
  pair.stored = std::move(left);
}

}  // namespace weighlock::protocol
