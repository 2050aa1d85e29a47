#include "weighlock/gateway/version_storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/runtime/log.hpp"
#include "weighlock/store/adapter.hpp"

namespace weighlock {
namespace {

SealInfo info_of(const protocol::Seal& seal, const std::string& owner) {
  SealInfo info;
  info.pair = seal.pair;
  info.lineage = seal.lineage;
  info.version = seal.version;
  info.attempt = seal.attempt;
  info.writer = owner;
  info.foreign = seal.foreign;
  info.save_path = seal.save_path;
  return info;
}

std::string parent_of(const std::string& directory) {
  return directory.substr(0, directory.rfind('/'));
}

}  // namespace

void VersionStorage::forget_order(const std::string& directory) {
  const auto order = order_.find(parent_of(directory));
  if (order == order_.end()) return;
  std::erase(order->second, directory);
  if (order->second.empty()) order_.erase(order);
}

std::shared_ptr<VersionStorage::Known> VersionStorage::find(const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  const auto it = known_.find(directory);
  return it == known_.end() ? nullptr : it->second;
}

void VersionStorage::remember(const std::string& directory, std::shared_ptr<Known> known) {
  const std::lock_guard lock(mutex_);
  std::deque<std::string>& order = order_[parent_of(directory)];
  std::erase(order, directory);
  order.push_back(directory);
  known_.insert_or_assign(directory, std::move(known));
  for (; order.size() > kRememberedMax; order.pop_front()) known_.erase(order.front());
}

std::shared_ptr<const Expectations> VersionStorage::expectations_of(const std::string& directory) const {
  const std::shared_ptr<Known> known = find(directory);
  if (!known) return nullptr;
  const std::lock_guard lock(mutex_);
  return known->expectations;
}

bool VersionStorage::is_blind(const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  return blind_.contains(directory);
}

// A place that isn't there or can't be read is no way out; whoever uses it says what is wrong with it.
Status VersionStorage::confine(const std::string& path) const {
  const Result<std::string> inside = store_.confine(path, roots_);
  if (inside) return {};
  const ErrorCode code = inside.error().code;
  if (code != ErrorCode::permission_denied && code != ErrorCode::invalid_argument) return {};
  return wrap("storage_roots", inside.error());
}

Result<std::string> VersionStorage::prepare_blind(const protocol::Prepare& prepare, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (seen_.contains(prepare.save_path))
    return Error{ErrorCode::storage_not_visible,
                 fmt::format("save_path '{}' was visible from here and isn't any more: {}", prepare.save_path, why)};
  std::string directory = fmt::format("{}/weight_update_v{}", prepare.save_path, prepare.version);
  // No record can be kept there, so the plain name is for the first attempt of this process only.
  if (blind_.contains(directory)) directory += fmt::format(".L{}.a{}", prepare.lineage, prepare.attempt);
  blind_.insert(directory);
  log_warn(
      "storage is blind: '{}' can't be used from here ({}); versions are neither inspected nor digested, and there is "
      "no last good",
      prepare.save_path, why);
  return directory;
}

Result<std::string> VersionStorage::prepare(const protocol::Prepare& prepare) {
  if (Status inside = confine(prepare.save_path); !inside) return std::move(inside).error();
  PrepareRequest request;
  request.save_path = prepare.save_path;
  request.version = prepare.version;
  request.lineage = prepare.lineage;
  request.attempt = prepare.attempt;
  request.owner = owner_;
  request.bytes_needed = prepare.bytes_needed;
  Result<PreparedAttempt> made = store_.prepare(request);
  if (!made) {
    if (made.error().code == ErrorCode::storage_full) return std::move(made).error();
    const Storage seen = store_.probe_save_path(prepare.save_path);
    if (seen.visible) return std::move(made).error();
    return prepare_blind(prepare, seen.reason);
  }
  const std::lock_guard lock(mutex_);
  seen_.insert(prepare.save_path);
  return made->directory;
}

std::shared_ptr<VersionStorage::Known> VersionStorage::reference(const std::string& directory, std::string& reason) {
  if (directory.empty()) {
    reason = "no version was committed before, and the engines' start model is not known";
    return nullptr;
  }
  if (std::shared_ptr<Known> known = find(directory)) return known;
  InspectOptions options;
  options.reach.follow = Follow::anywhere;  // hub caches are made of links
  options.wait_visible = Milliseconds(0);
  Result<Inspection> found = store_.inspect(directory, options);
  if (!found) {
    reason = found.error().text();
    return nullptr;
  }
  auto known = std::make_shared<Known>();
  known->inspection = *std::move(found);
  if (Result<Expectations> expected = store_.expectations(directory, known->inspection))
    known->expectations = std::make_shared<const Expectations>(*std::move(expected));
  remember(directory, known);
  return known;
}

Result<std::shared_ptr<VersionStorage::Known>> VersionStorage::seal_inspected(const protocol::Seal& seal,
                                                                              Inspection found) {
  Result<Manifest> manifest = store_.seal(seal.directory, found, info_of(seal, owner_));
  if (!manifest) return std::move(manifest).error();
  auto known = std::make_shared<Known>();
  known->inspection = std::move(found);
  known->manifest = *std::move(manifest);
  known->sealed = true;
  for (const std::string& warning : known->inspection.warnings) log_warn("{}: {}", seal.directory, warning);
  return known;
}

Result<protocol::SealedVersion> VersionStorage::seal(const protocol::Seal& seal) {
  protocol::SealedVersion out;
  if (is_blind(seal.directory)) {
    out.blind = true;
    out.reference_reason = "storage is blind";
    return out;
  }
  for (const std::string& path : {seal.save_path, seal.directory}) {
    if (seal.foreign && path.empty()) continue;  // a pair of handed directories may have no place of its own
    if (Status inside = confine(path); !inside) return std::move(inside).error();
  }
  if (seal.is_adapter) return seal_adapter(seal);
  if (seal.stored) return check_stored(seal);
  if (const Result<std::string> empty = store_.ensure_empty_checkpoint(seal.save_path); !empty)
    log_warn("no empty checkpoint in '{}', which a vLLM may need to be healed: {}", seal.save_path,
             empty.error().text());
  const std::shared_ptr<Known> before = reference(seal.reference_directory, out.reference_reason);
  InspectOptions options;
  options.allow_layout_change = seal.allow_layout_change;
  if (before) options.reference = before->inspection.layout;
  Result<Inspection> found = store_.inspect(seal.directory, options);
  if (!found) return std::move(found).error();
  Result<std::shared_ptr<Known>> sealed = seal_inspected(seal, *std::move(found));
  if (!sealed) return std::move(sealed).error();
  const std::shared_ptr<Known> known = *std::move(sealed);
  std::vector<std::string> notes;
  std::optional<PreviousVersion> previous;
  if (before) previous = PreviousVersion{seal.reference_directory, before->inspection};
  Result<Expectations> expected =
      store_.expectations(seal.directory, known->inspection, previous ? &*previous : nullptr, &notes);
  if (!expected) return std::move(expected).error();
  known->expectations = std::make_shared<const Expectations>(*std::move(expected));
  for (const std::string& note : notes) log_debug("{}: {}", seal.directory, note);
  out.bytes = known->inspection.file_bytes;
  out.tensors = known->inspection.layout.size();
  out.compared = before != nullptr;
  out.reference_clean = before != nullptr;
  out.layout_changed =
      before && !compare_layouts(before->inspection.layout, known->inspection.layout, known->inspection.tied).empty();
  remember(seal.directory, known);
  if (seal.digest_now) {
    Result<std::string> digested = digest(seal.directory);
    if (!digested) return std::move(digested).error();
    out.digest = *digested;
    out.differs_from_reference = !before || before->manifest.digest != out.digest;
  }
  return out;
}

// A directory that others made may be written anew, for another version; one of ours may be damaged. Looked at as it is
// now, not as it is remembered.
Result<std::shared_ptr<VersionStorage::Known>> VersionStorage::look_at_stored(const protocol::Seal& seal) {
  const bool has_manifest = !seal.foreign || !seal.save_path.empty();
  InspectOptions options;
  options.allow_layout_change = true;
  options.is_lora = seal.is_adapter;
  options.wait_visible = Milliseconds(0);  // nobody is writing it
  auto known = std::make_shared<Known>();
  if (has_manifest) {
    Result<Manifest> manifest = seal.foreign ? store_.load_foreign_manifest(seal.save_path, seal.directory)
                                             : store_.load_manifest(seal.directory);
    if (!manifest) return std::move(manifest).error();
    if (manifest->version != seal.version || manifest->lineage != seal.lineage)
      return Error{ErrorCode::conflict,
                   fmt::format("'{}' holds version {} of lineage {} now, not {} of {}", seal.directory,
                               manifest->version, manifest->lineage, seal.version, seal.lineage)};
    if (Status same = store_.verify_against(*manifest, seal.directory, options.reach); !same)
      return std::move(same).error();
    known->manifest = *std::move(manifest);
    known->sealed = true;
  }
  Result<Inspection> found = store_.inspect(seal.directory, options);
  if (!found) return std::move(found).error();
  known->inspection = *std::move(found);
  return known;
}

// Empty: nothing is known to compare with.
Result<std::string> VersionStorage::digest_of_stored(const protocol::Seal& seal, const Known& known) {
  const std::string wanted = seal.digest.empty() ? known.manifest.digest : seal.digest;
  if (wanted.empty() || !seal.digest_now) return wanted;
  DigestControl control;
  control.cancel = &stopping_;
  Result<Digest> read = store_.digest(seal.directory, known.inspection, control);
  if (!read) return std::move(read).error();
  if (known.sealed) {
    if (Status same = compare_digest(known.manifest, *read); !same) return wrap(seal.directory, same.error());
  }
  if (read->version != wanted)
    return Error{ErrorCode::conflict,
                 fmt::format("'{}': its bytes have the digest {}, and {} was recorded when it was committed",
                             seal.directory, read->version, wanted)};
  return wanted;
}

Result<std::string> VersionStorage::verify(const protocol::Seal& seal) {
  for (const std::string& path : {seal.save_path, seal.directory}) {
    if (seal.foreign && path.empty()) continue;  // a pair of handed directories may have no place of its own
    if (Status inside = confine(path); !inside) return std::move(inside).error();
  }
  Result<std::shared_ptr<Known>> looked = look_at_stored(seal);
  if (!looked) return std::move(looked).error();
  return digest_of_stored(seal, **looked);
}

Result<protocol::SealedVersion> VersionStorage::check_stored(const protocol::Seal& seal) {
  Result<std::shared_ptr<Known>> looked = look_at_stored(seal);
  if (!looked) return wrap("the stored version can't be used", std::move(looked).error());
  const std::shared_ptr<Known> known = *std::move(looked);
  protocol::SealedVersion out;
  Result<std::string> digested = digest_of_stored(seal, *known);
  if (!digested) return wrap("the stored version can't be used", std::move(digested).error());
  out.digest = *std::move(digested);
  if (!known->sealed && out.digest.empty())
    return Error{
        ErrorCode::checkpoint_missing,
        fmt::format("'{}': there is neither a manifest nor a digest that says what was committed; hand it over "
                    "as a new version",
                    seal.directory)};
  const std::shared_ptr<Known> before = reference(seal.reference_directory, out.reference_reason);
  std::optional<PreviousVersion> previous;
  if (before) previous = PreviousVersion{seal.reference_directory, before->inspection};
  // Made anew: what tells it from the version that is served now may be other tensors than when it was made.
  Result<Expectations> expected =
      store_.expectations(seal.directory, known->inspection, previous ? &*previous : nullptr);
  if (!expected) return std::move(expected).error();
  known->expectations = std::make_shared<const Expectations>(*std::move(expected));
  out.bytes = known->inspection.file_bytes;
  out.tensors = known->inspection.layout.size();
  out.compared = before != nullptr;
  out.layout_changed =
      before && !compare_layouts(before->inspection.layout, known->inspection.layout, known->inspection.tied).empty();
  remember(seal.directory, known);
  return out;
}

void VersionStorage::recall(const std::string& directory) {
  std::string reason;
  const std::shared_ptr<Known> known = reference(directory, reason);
  if (!known) return log_warn("{}: what its engines should show isn't known: {}", directory, reason);
  {
    const std::lock_guard lock(mutex_);
    if (known->sealed) return;
  }
  Result<Manifest> manifest = store_.load_manifest(directory);
  if (!manifest) return;  // a start model, or a directory that others made: it has its expectations
  const std::lock_guard lock(mutex_);
  known->manifest = *std::move(manifest);
  known->sealed = true;
}

std::shared_ptr<const Layout> VersionStorage::base_layout(const std::string& directory, std::string& reason) {
  if (directory.empty()) return nullptr;  // the machine said why
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = known_.find(directory); known != known_.end())
      return std::make_shared<const Layout>(known->second->inspection.layout);
    if (const auto base = bases_.find(directory); base != bases_.end()) return base->second;
  }
  InspectOptions options;
  options.reach.follow = Follow::anywhere;
  options.wait_visible = Milliseconds(0);
  Result<Inspection> found = store_.inspect(directory, options);
  if (!found) {
    reason = found.error().text();
    return nullptr;
  }
  auto layout = std::make_shared<const Layout>(std::move(found->layout));
  const std::lock_guard lock(mutex_);
  if (bases_.size() >= kBasesMax) bases_.clear();  // read again when asked for: milliseconds
  bases_[directory] = layout;
  return layout;
}

// Nothing is compared inside an engine, so no expectations are made.
Result<protocol::SealedVersion> VersionStorage::seal_adapter(const protocol::Seal& seal) {
  protocol::SealedVersion out;
  out.adapter_base_reason = seal.adapter_base_reason;
  const std::shared_ptr<const Layout> base = base_layout(seal.adapter_base, out.adapter_base_reason);
  if (base) out.adapter_base_reason.clear();
  const std::shared_ptr<Known> before = find(seal.reference_directory);
  InspectOptions options;
  options.is_lora = true;
  options.allow_layout_change = seal.allow_layout_change;
  if (base) options.lora_base = *base;
  if (before) options.reference = before->inspection.layout;
  Result<Inspection> found = store_.inspect(seal.directory, options);
  if (!found) return std::move(found).error();
  Result<std::shared_ptr<Known>> sealed = seal_inspected(seal, *std::move(found));
  if (!sealed) return std::move(sealed).error();
  const std::shared_ptr<Known> known = *std::move(sealed);
  if (!base)
    log_warn("{}: the adapter's names were not compared with a base model: {}", seal.directory,
             out.adapter_base_reason);
  out.bytes = known->inspection.file_bytes;
  out.tensors = known->inspection.layout.size();
  out.compared = before != nullptr;
  out.layout_changed = before && !compare_layouts(before->inspection.layout, known->inspection.layout).empty();
  out.adapter_rank = adapter_rank(known->inspection.layout);
  remember(seal.directory, known);
  if (seal.digest_now) {
    Result<std::string> digested = digest(seal.directory);
    if (!digested) return std::move(digested).error();
    out.digest = *digested;
    out.differs_from_reference = !before || before->manifest.digest != out.digest;
  }
  return out;
}

Result<std::string> VersionStorage::digest(const std::string& directory) {
  const auto is_sealed = [&](const std::shared_ptr<Known>& known) {
    const std::lock_guard lock(mutex_);
    return known && known->sealed;
  };
  if (!is_sealed(find(directory))) recall(directory);
  const std::shared_ptr<Known> known = find(directory);
  if (!is_sealed(known))
    return Error{ErrorCode::storage_failed, fmt::format("'{}' has no manifest that can be read", directory)};
  DigestControl control;
  control.cancel = &stopping_;
  Result<Digest> made = store_.digest(directory, known->inspection, control);
  if (!made) return std::move(made).error();
  for (const std::string& warning : made->warnings) log_warn("{}: {}", directory, warning);
  Manifest manifest;
  {
    const std::lock_guard lock(mutex_);
    manifest = known->manifest;
  }
  Result<Manifest> complete = store_.complete_manifest(std::move(manifest), *made);
  if (!complete) return std::move(complete).error();
  const std::lock_guard lock(mutex_);
  known->manifest = *std::move(complete);
  return made->version;
}

Status VersionStorage::discard(const std::string& save_path, const std::string& directory) {
  if (is_blind(directory)) return {};
  {
    const std::lock_guard lock(mutex_);
    known_.erase(directory);
    forget_order(directory);
  }
  if (Status inside = confine(directory); !inside) return inside;
  // The machine discards only what was never committed: sealed or not, nobody was told to keep it.
  return store_.discard(save_path, directory, true);
}

Status VersionStorage::mark_latest(const std::string& save_path, const std::string& directory) {
  if (is_blind(directory)) return {};
  if (Status inside = confine(save_path); !inside) return inside;
  return store_.mark_latest(save_path, directory);
}

}  // namespace weighlock
