// Retention: which committed versions stay on storage (storage.md, "Leases and retention"; invariants 12 and 19).
//
// The newest `keep_versions` of a pair stay, and beside them whatever is leased: what is committed, what workers are
// healed with, what a worker holds. Directories that were handed over are never ours to delete; those of attempts that
// failed went when the attempt ended.
#include <algorithm>

#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

bool is_at(const std::optional<VersionRef>& version, const std::string& directory) {
  return version && version->directory == directory;
}

bool may_read(const EarlierCall& call) {
  return call.kind == OperationKind::load || call.kind == OperationKind::load_adapter;
}

// An abandoned call is known by what it does, not by its directory: while one may still load, nothing goes.
bool load_may_run(const State& state, const std::string& pair) {
  const auto& workers = state.workers;
  return std::any_of(workers.begin(), workers.end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.pair == pair && std::any_of(worker.earlier.begin(), worker.earlier.end(), may_read);
  });
}

bool is_leased(const State& state, const Pair& pair, const std::string& directory) {
  if (is_at(pair.committed, directory) || is_at(pair.last_good, directory) || is_at(pair.previous_good, directory))
    return true;
  const auto& workers = state.workers;
  return std::any_of(workers.begin(), workers.end(),
                     [&](const auto& entry) { return is_at(entry.second.version, directory); });
}

}  // namespace

void note_stored(Pair& pair, const Update& update) {
  const bool ours = update.path.empty() && update.sealed && !update.sealed->blind;
  if (ours) pair.stored.push_back(update.version);
}

void release_versions(Context& context, const Update& update) {
  Pair& pair = context.pair_of(update);
  const auto keep = static_cast<std::size_t>(std::max(1, pair.spec.policy.keep_versions));
  if (pair.stored.size() <= keep || load_may_run(context.state(), update.pair)) return;
  const auto newest = pair.stored.end() - static_cast<std::ptrdiff_t>(keep);
  std::deque<VersionRef> left;
  for (auto it = pair.stored.begin(); it != pair.stored.end(); ++it) {
    if (it >= newest || is_leased(context.state(), pair, it->directory)) {
      left.push_back(*it);
      continue;
    }
    context.record(RecordKind::discard, update, "", {{"directory", it->directory}, {"version", it->version}});
    context.emit(Discard{update.id, pair.spec.save_path, it->directory});
  }
  pair.stored = std::move(left);
}

}  // namespace weighlock::protocol
