// Invariant 19: at rest every superseded version that nobody holds is deleted (design/storage.md, "Leases and
// retention").
#include <algorithm>

#include "sim/invariants.hpp"
#include "weighlock/core/json.hpp"

namespace weighlock::sim {

using protocol::Pair;
using protocol::Record;
using protocol::RecordKind;

namespace {

std::string text_of(const Record& record, const char* member) {
  const json::value* found = record.body.if_contains(member);
  return found != nullptr && found->is_string() ? std::string(std::string_view(found->get_string())) : "";
}

bool loads(OperationKind kind) {
  return kind == OperationKind::load;
}

bool is_at(const std::optional<protocol::VersionRef>& version, const std::string& directory) {
  return version && version->directory == directory;
}

// Of adapters what a worker that left its pair may read is forgotten: nobody looks at it any more.
bool is_known(const Pair& pair, const std::string& directory) {
  return !pair.spec.lora || std::any_of(pair.stored.begin(), pair.stored.end(),
                                        [&](const auto& one) { return one.version.directory == directory; });
}

}  // namespace

// A directory that was discarded on record is the collector's from then on, should the process not come to do it.
void Invariants::note_stored(const Record& record) {
  const bool matters = record.kind == RecordKind::pair_removed || record.kind == RecordKind::discard ||
                       record.kind == RecordKind::commit || record.kind == RecordKind::sealed;
  if (!matters) return;
  if (record.kind == RecordKind::pair_removed) stored_.erase(record.pair);
  if (record.kind == RecordKind::discard)
    std::erase_if(stored_[record.pair],
                  [&](const Sealed& one) { return one.directory == text_of(record, "directory"); });
  std::vector<Sealed>& stored = stored_[record.pair];
  if (record.kind == RecordKind::commit) {
    for (Sealed& one : stored) one.committed = one.committed || one.update == record.update;
  }
  if (record.kind != RecordKind::sealed) return;
  const std::string path = text_of(record, "directory");
  const Directory* directory = w_.store.find(path);
  const bool known =
      std::any_of(stored.begin(), stored.end(), [&](const Sealed& one) { return one.directory == path; });
  if (directory != nullptr && directory->ours && !directory->blind && !known)
    stored.push_back(Sealed{path, record.update, false});
}

bool Invariants::is_leased(const Pair& pair, const std::string& directory) const {
  if (is_at(pair.committed, directory) || is_at(pair.last_good, directory) || is_at(pair.previous_good, directory))
    return true;
  for (const auto& [url, worker] : state().workers) {
    if (is_at(worker.version, directory)) return true;
    const bool may_load = std::any_of(worker.earlier.begin(), worker.earlier.end(),
                                      [](const protocol::EarlierCall& call) { return loads(call.kind); });
    if (may_load && worker.pair == pair.spec.name) return true;  // it is not known what it loads
  }
  if (!pair.spec.lora) return false;
  const std::vector<protocol::VersionRef> window = window_of(pair);
  if (std::any_of(window.begin(), window.end(), [&](const auto& one) { return one.directory == directory; }))
    return true;
  for (const auto& [url, known] : pair.adapters) {
    for (const auto& [name, adapter] : known.names) {
      if (adapter.directory == directory) return true;
    }
    for (const auto& [name, adapter] : truth(url).adapters) {
      if (adapter.directory == directory) return true;
    }
  }
  return !is_known(pair, directory);
}

std::string Invariants::unsettled_versions() const {
  if (skipped_checks.retention || records_lost_ || w_.scenario.has_rivals()) return "";
  for (const auto& [name, pair] : state().pairs) {
    const auto stored = stored_.find(name);
    if (stored == stored_.end()) continue;
    int newer = 0;
    for (auto one = stored->second.rbegin(); one != stored->second.rend(); ++one) {
      const bool superseded = one->committed ? newer >= std::max(1, pair.spec.policy.keep_versions) : newer > 0;
      if (one->committed && is_known(pair, one->directory)) ++newer;
      if (superseded && !is_leased(pair, one->directory))
        return fmt::format("'{}' is superseded, and nobody holds it, and it is still there", one->directory);
    }
  }
  return "";
}

}  // namespace weighlock::sim
