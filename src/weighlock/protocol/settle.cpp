// What a pair's storage is owed by a process that died: LATEST behind the commit, and removals that are on record.
//
// A removal is recorded before it is asked for, and once more when it is done. What lies between is `Pair::doomed`: the
// next process asks again, as soon as it knows that the pair is still its own. A lease may have ended in the last
// moment of the process before, too.
#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/lora.hpp"
#include "weighlock/protocol/ownership.hpp"
#include "weighlock/protocol/phases.hpp"
#include "weighlock/protocol/replay.hpp"
#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {
namespace {

// When the removal was recorded nobody needed it, and names are used once, so nobody does again. This is a second lock
// before what the pair stands on. Of engines a process that starts knows less than the one that recorded it.
bool stands_on(const Pair& pair, const std::string& directory) {
  for (const std::optional<VersionRef>* version : {&pair.committed, &pair.last_good, &pair.previous_good}) {
    if (*version && (*version)->directory == directory) return true;
  }
  return pair.spec.lora && is_in_window(pair, directory);
}

// A version that was never seen from here, or lies on no storage, isn't among what is stored.
void mark_latest(Context& context, const Pair& pair) {
  if (!pair.committed) return;
  const std::string& directory = pair.committed->directory;
  const bool seen = std::any_of(pair.stored.begin(), pair.stored.end(), [&](const StoredVersion& stored) {
    return stored.committed && stored.version.directory == directory;
  });
  if (seen) context.emit(MarkLatest{pair.spec.save_path, directory});
}

}  // namespace

void note_doomed(Pair& pair, DoomedDirectory doomed) {
  note_discarded(pair, doomed.directory);
  pair.doomed.push_back(std::move(doomed));
  if (pair.doomed.size() > limits::kUpdatesRememberedMax) pair.doomed.pop_front();
}

void note_discarded(Pair& pair, const std::string& directory) {
  std::erase_if(pair.doomed, [&](const DoomedDirectory& doomed) { return doomed.directory == directory; });
}

void discard_directory(Context& context, const std::string& pair, DoomedDirectory doomed, json::object about) {
  about["directory"] = doomed.directory;
  about["save_path"] = doomed.save_path;
  context.record(RecordKind::discard, pair, doomed.update, "", std::move(about));
  context.emit(Discard{doomed.update, doomed.save_path, doomed.directory});
  note_doomed(context.state().pairs.at(pair), std::move(doomed));
}

void on_discarded(Context& context, const Discarded& event) {
  if (event.error) return;  // the log has it; the next start tries again
  for (auto& [name, pair] : context.state().pairs) {
    const auto doomed = std::find_if(pair.doomed.begin(), pair.doomed.end(),
                                     [&](const DoomedDirectory& one) { return one.directory == event.directory; });
    if (doomed == pair.doomed.end()) continue;
    context.record(RecordKind::discard, name, doomed->update, "", {{"directory", event.directory}, {"done", true}});
    pair.doomed.erase(doomed);
  }
}

void settle_storage(Context& context, const std::string& name) {
  Pair& pair = context.state().pairs.at(name);
  if (!std::exchange(pair.storage_waits, false) || is_superseded(pair)) return;
  mark_latest(context, pair);
  for (const DoomedDirectory& doomed : pair.doomed) {
    if (!stands_on(pair, doomed.directory)) context.emit(Discard{doomed.update, doomed.save_path, doomed.directory});
  }
  collect_unleased(context, name);
}

void Replay::discard(const Record& record) {
  Pair* pair = pair_of(record);
  const json::object& body = record.body;
  const std::string_view directory = text_of(body, "directory");
  if (!pair) return;
  if (flag_of(body, "done")) return note_discarded(*pair, std::string(directory));
  std::erase_if(pair->stored, [&](const StoredVersion& stored) { return stored.version.directory == directory; });
  const std::string_view save_path = text_of(body, "save_path");
  if (!save_path.empty()) note_doomed(*pair, {std::string(directory), std::string(save_path), record.update});
  forget_in_window(*pair, std::string(directory));
}

}  // namespace weighlock::protocol
