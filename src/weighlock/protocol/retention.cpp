// Retention: which committed versions stay on storage (storage.md, "Leases and retention"; invariants 12 and 19).
//
// The newest `keep_versions` of a pair stay, and beside them whatever is leased: what is committed, what workers are
// healed with, what a worker holds, what a rollback goes to. Directories that were handed over are never ours to
// delete, and are forgotten instead; those of attempts that failed before their seal went when the attempt ended; a
// version that was rolled back stays for whoever wants to know why, until the next commit or until an operator
// collects. Leases end with updates, and between them: with an engine's process, with a call that was in doubt, with an
// adapter that was unloaded.
#include <fmt/format.h>

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
    const bool loads = worker.in_flight && is_load(*worker.in_flight);  // a join's, beside the update that ended
    return worker.pair == pair && (loads || std::any_of(worker.earlier.begin(), worker.earlier.end(), is_load));
  });
}

// The target of a rollback that runs or waits.
const Update* goes_back_to(const State& state, const Pair& pair, const std::string& directory) {
  std::vector<UpdateId> ids(pair.queue.begin(), pair.queue.end());
  ids.push_back(pair.active);
  for (const UpdateId& id : ids) {
    const auto it = state.updates.find(id);
    if (it != state.updates.end() && it->second.rollback && it->second.version.directory == directory)
      return &it->second;
  }
  return nullptr;
}

bool is_leased(const State& state, const Pair& pair, const std::string& directory) {
  if (is_at(pair.committed, directory) || is_at(pair.last_good, directory) || is_at(pair.previous_good, directory))
    return true;
  if (goes_back_to(state, pair, directory)) return true;
  // Engines read an adapter again from its path when they need it.
  if (pair.spec.lora) return is_in_window(pair, directory) || may_read(pair, directory);
  const auto& workers = state.workers;
  return std::any_of(workers.begin(), workers.end(),
                     [&](const auto& entry) { return is_at(entry.second.version, directory); });
}

// What of `stored` goes by its age alone. An operator who collects has seen why it was rolled back.
std::vector<bool> superseded(const std::deque<StoredVersion>& stored, std::size_t keep, bool operator_asks) {
  std::vector<bool> out(stored.size());
  std::size_t newer = 0;  // committed ones
  for (std::size_t i = stored.size(); i-- > 0;) {
    out[i] = stored[i].committed ? newer >= keep : operator_asks || newer > 0;
    if (stored[i].committed) ++newer;
  }
  return out;
}

// Deletes what may go, in the name of `update` ("": between updates). What was handed over is only forgotten.
std::vector<StoredVersion> collect(Context& context, const std::string& name, const UpdateId& update,
                                   bool operator_asks = false) {
  Pair& pair = context.state().pairs.at(name);
  std::vector<StoredVersion> going = removable_versions(context.state(), pair, operator_asks);
  for (const StoredVersion& one : going) {
    const VersionRef& version = one.version;
    if (one.handed) {
      context.record(RecordKind::discard, name, update, "",
                     {{"directory", version.directory}, {"version", version.version}, {"handed", true}});
    } else {
      discard_directory(context, name, {version.directory, pair.spec.save_path, update},
                        {{"version", version.version}});
    }
    std::erase_if(pair.stored, [&](const StoredVersion& s) { return s.version.directory == version.directory; });
    forget_in_window(pair, version.directory);
  }
  return going;
}

}  // namespace

void note_stored(Pair& pair, const Update& update, bool committed) {
  const bool made_it = update.kind == UpdateKind::update && !update.rollback && update.sealed && !update.sealed->blind;
  const bool handed = !update.path.empty();
  if (!made_it || (handed && (!committed || pair.spec.lora))) return;
  // Handed over again with other bytes: what it held before is gone.
  if (handed) {
    std::erase_if(pair.stored, [&](const StoredVersion& s) { return s.version.directory == update.version.directory; });
  }
  pair.stored.push_back(StoredVersion{update.version, committed, handed, false, update.sealed->bytes});
}

void note_digest(Pair& pair, const VersionRef& version) {
  for (auto* known : {&pair.committed, &pair.last_good}) {
    if (*known && (*known)->same_version(version)) (*known)->digest = version.digest;
  }
  for (StoredVersion& stored : pair.stored) {
    if (stored.version.directory == version.directory) stored.version.digest = version.digest;
  }
}

std::vector<StoredVersion> removable_versions(const State& state, const Pair& pair, bool operator_asks) {
  const std::vector<bool> old =
      superseded(pair.stored, static_cast<std::size_t>(std::max(1, pair.spec.policy.keep_versions)), operator_asks);
  if (std::find(old.begin(), old.end(), true) == old.end() || load_may_run(state, pair.spec.name)) return {};
  std::vector<StoredVersion> out;
  for (std::size_t i = 0; i < pair.stored.size(); ++i) {
    if (old[i] && !is_leased(state, pair, pair.stored[i].version.directory)) out.push_back(pair.stored[i]);
  }
  return out;
}

std::vector<std::string> leases_of(const State& state, const Pair& pair, const VersionRef& version) {
  std::vector<std::string> out;
  const std::string& directory = version.directory;
  if (is_at(pair.committed, directory)) out.emplace_back("committed");
  if (is_at(pair.last_good, directory)) out.emplace_back("last good");
  if (is_at(pair.previous_good, directory)) out.emplace_back("good before that");
  if (const Update* update = goes_back_to(state, pair, directory)) out.push_back("update " + update->id);
  if (pair.spec.lora) {
    if (is_in_window(pair, directory)) out.emplace_back("window");
    if (may_read(pair, directory)) out.emplace_back("an engine may read it again");
    return out;
  }
  for (const auto& [url, worker] : state.workers) {
    if (is_at(worker.version, directory)) out.push_back(url);
  }
  return out;
}

void release_versions(Context& context, const Update& update) {
  Pair& pair = context.pair_of(update);
  if (update.state >= UpdateState::rolled_back && update.committed == false) note_stored(pair, update, false);
  if (!is_superseded(pair)) collect(context, update.pair, update.id);
}

void collect_unleased(Context& context, const std::string& pair) {
  const auto it = context.state().pairs.find(pair);
  if (it == context.state().pairs.end() || !it->second.active.empty() || is_superseded(it->second)) return;
  collect(context, pair, "");
}

void on_collect(Context& context, const CollectVersions& event) {
  const auto answer = [&](std::optional<Error> error, std::vector<std::string> directories) {
    if (event.token != 0) context.emit(Reply{event.token, std::move(error), {}, {}, std::move(directories)});
  };
  const State& state = context.state();
  const auto it = state.pairs.find(event.pair);
  if (it == state.pairs.end())
    return answer(Error{ErrorCode::not_found, fmt::format("pair '{}' not found", event.pair), nullptr}, {});
  if (state.stopping) return answer(Error{ErrorCode::shutting_down, "the gateway is shutting down", nullptr}, {});
  if (is_superseded(it->second)) return answer(superseded_error(event.pair, *it->second.ownership.superseded_by), {});
  if (!it->second.active.empty() && !event.dry_run)
    return answer(Error{ErrorCode::conflict,
                        fmt::format("pair '{}': update {} runs; what it supersedes is deleted at its end", event.pair,
                                    it->second.active),
                        nullptr},
                  {});
  std::vector<std::string> directories;
  const std::vector<StoredVersion> going =
      event.dry_run ? removable_versions(state, it->second, true) : collect(context, event.pair, "", true);
  for (const StoredVersion& one : going) directories.push_back(one.version.directory);
  answer(std::nullopt, std::move(directories));
}

}  // namespace weighlock::protocol
