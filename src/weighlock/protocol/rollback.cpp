// Going back to a version that was committed before (protocol.md section 6): an update without a save and a seal, whose
// commit record says that it lowers the pointer. What it goes to is fixed when it is asked for, and leased from then
// on.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

using Place = std::deque<StoredVersion>::const_iterator;

// Where the committed version stands in `stored`; its end where it isn't kept there.
Place place_of(const Pair& pair, const VersionRef& version) {
  return std::find_if(pair.stored.begin(), pair.stored.end(), [&](const StoredVersion& stored) {
    return stored.committed && stored.version.same_version(version) && stored.version.directory == version.directory;
  });
}

// The newest before `place` that was committed and not gone back from.
const StoredVersion* committed_before(const Pair& pair, Place place) {
  while (place != pair.stored.begin()) {
    --place;
    if (place->committed && !place->withdrawn) return &*place;
  }
  return nullptr;
}

const StoredVersion* named(const Pair& pair, std::int64_t version, std::optional<std::int64_t> lineage) {
  const auto it = std::find_if(pair.stored.rbegin(), pair.stored.rend(), [&](const StoredVersion& stored) {
    return stored.committed && stored.version.version == version && (!lineage || stored.version.lineage == *lineage);
  });
  return it == pair.stored.rend() ? nullptr : &*it;
}

std::string names_of_stored(const Pair& pair) {
  std::string names;
  for (const StoredVersion& stored : pair.stored) {
    if (stored.committed) names += fmt::format("{}v{}", names.empty() ? "" : ", ", stored.version.version);
  }
  return names.empty() ? "nothing" : names;
}

Error refusal(const Pair& pair, ErrorCode code, std::string_view why) {
  return Error{code, fmt::format("pair '{}': rollback: {}", pair.spec.name, why), nullptr};
}

// The version before the present one, as an operator who names none means it: not one that engines died of.
const StoredVersion* implied(const Pair& pair) {
  const StoredVersion* before = committed_before(pair, place_of(pair, *pair.committed));
  while (before && is_suspect(pair, before->version)) before = committed_before(pair, place_of(pair, before->version));
  return before;
}

Error suspected(const Pair& pair, const VersionRef& version) {
  return refusal(pair, ErrorCode::conflict,
                 why_suspect(pair, version) + "; name another one, or publish its weights as a new version");
}

Error nothing_before(const Pair& pair) {
  if (const StoredVersion* before = committed_before(pair, place_of(pair, *pair.committed)))
    return suspected(pair, before->version);
  return refusal(pair, ErrorCode::conflict,
                 fmt::format("nothing that was committed before v{} is stored any more (stored: {}; keep_versions is "
                             "{}); publish the wanted weights as a new version",
                             pair.committed->version, names_of_stored(pair), pair.spec.policy.keep_versions));
}

std::string named(std::int64_t version, const std::string& path) {
  return path.empty() ? fmt::format("v{}", version) : fmt::format("v{} from '{}'", version, path);
}

}  // namespace

bool is_repetition(const Update& update, const RequestUpdate& event) {
  if (update.rollback != event.rollback || (!event.rollback && update.path != event.path)) return false;
  return update.version.version ==
         (event.rollback ? event.rollback_to.value_or(update.version.version) : event.version);
}

std::string wanted_by(const RequestUpdate& event) {
  if (!event.rollback) return named(event.version, event.path);
  return event.rollback_to ? fmt::format("a rollback to v{}", *event.rollback_to) : "a rollback";
}

std::optional<UpdateId> running_rollback(Context& context, const Pair& pair) {
  const auto is_one = [&](const UpdateId& id) {
    const Update* update = context.find_update(id);
    return update && update->rollback;
  };
  if (is_one(pair.active)) return pair.active;
  const auto queued = std::find_if(pair.queue.begin(), pair.queue.end(), is_one);
  return queued == pair.queue.end() ? std::nullopt : std::optional(*queued);
}

Result<StoredVersion> rollback_target(const Pair& pair, const RequestUpdate& event) {
  if (pair.spec.lora)
    return refusal(pair, ErrorCode::not_supported,
                   "its versions are adapters, each loaded under its own name: ask the engines for the name of an "
                   "earlier version that is still loaded, or publish its weights as a new version");
  if (!pair.committed) return refusal(pair, ErrorCode::conflict, "no version is committed yet");
  if (!event.rollback_to) {
    if (!pair.active.empty() || !pair.queue.empty())
      return refusal(pair, ErrorCode::conflict,
                     fmt::format("update {} is not at its end, so which version is the one before isn't decided; name "
                                 "it (\"to\", `--to`), cancel the update, or wait for it",
                                 pair.active.empty() ? pair.queue.front() : pair.active));
    const StoredVersion* before = implied(pair);
    if (!before) return nothing_before(pair);
    return *before;
  }
  const StoredVersion* found = named(pair, *event.rollback_to, event.lineage);
  const std::string lineage = event.lineage ? fmt::format(" of lineage {}", *event.lineage) : "";
  if (!found)
    return refusal(pair, ErrorCode::not_found,
                   fmt::format("v{}{} is not stored, or was never committed; stored and committed: {}",
                               *event.rollback_to, lineage, names_of_stored(pair)));
  if (pair.committed->same_version(found->version))
    return refusal(
        pair, ErrorCode::conflict,
        fmt::format("v{} is the committed version; name another one of {}", *event.rollback_to, names_of_stored(pair)));
  if (is_suspect(pair, found->version)) return suspected(pair, found->version);
  return *found;
}

// What ran before it may have committed the version, or another one of the same name may have taken its place.
std::optional<Error> refuse_rollback_now(const Pair& pair, const Update& update) {
  if (pair.committed && pair.committed->same_version(update.version))
    return refusal(pair, ErrorCode::conflict,
                   fmt::format("v{} was committed by the update before", update.version.version));
  if (place_of(pair, update.version) == pair.stored.end())
    return refusal(pair, ErrorCode::not_found,
                   fmt::format("v{} is not stored any more; stored and committed: {}", update.version.version,
                               names_of_stored(pair)));
  if (is_suspect(pair, update.version)) return suspected(pair, update.version);
  return std::nullopt;
}

void describe_stored(const Pair& pair, const Update& update, Seal& seal) {
  seal.stored = true;
  seal.digest = update.version.digest;
  seal.digest_now = update.policy.digest != DigestPolicy::off;
  seal.allow_layout_change = true;  // its engines served it before
  if (pair.committed) seal.reference_directory = pair.committed->directory;
}

void note_committed(Pair& pair, const Update& update) {
  pair.committed = update.version;
  pair.distrusted = false;
  if (!update.rollback) {
    pair.previous_good = std::exchange(pair.last_good, update.version);
    const bool raised = !pair.highest || pair.highest->lineage != update.version.lineage ||
                        pair.highest->version < update.version.version;
    if (raised) pair.highest = update.version;
    return;
  }
  // The versions after it were gone back from: none of them is what a worker should be healed with.
  pair.last_good = update.version;
  const auto place = pair.stored.begin() + (place_of(pair, update.version) - pair.stored.cbegin());
  const StoredVersion* before = committed_before(pair, place);
  pair.previous_good = before ? std::optional(before->version) : std::nullopt;
  if (place == pair.stored.end()) return;
  place->withdrawn = false;
  for (auto after = place + 1; after != pair.stored.end(); ++after) after->withdrawn = after->committed;
}

}  // namespace weighlock::protocol
