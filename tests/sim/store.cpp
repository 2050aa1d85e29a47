#include "sim/store.hpp"

#include <fmt/format.h>
#include <utility>

namespace weighlock::sim {

Store::Store(Random& random, Faults& faults, Scheduler& scheduler, Post post)
    : random_(random), faults_(faults), scheduler_(scheduler), post_(std::move(post)) {
  Directory start;
  start.path = kStartPath;
  start.content = kStartContent;
  start.ours = false;
  start.sealed = true;
  directories_.emplace(start.path, start);
}

bool Store::strikes(Fault fault, const std::string& save_path) {
  return !settings_[save_path].calm && faults_.strikes(fault);
}

void Store::job(std::size_t gateway, std::int64_t after, std::function<void()> work) {
  scheduler_.after(after, [this, gateway, life = life_[gateway], work = std::move(work)] {
    if (life == life_[gateway]) work();
  });
}

std::int64_t Store::delay(const std::string& save_path) {
  if (strikes(Fault::slow_store, save_path)) return random_.between(5'000, 120'000);
  return random_.between(1, 400);
}

void Store::prepare(std::size_t gateway, const protocol::Prepare& effect) {
  if (std::exchange(fails_next_, false) || strikes(Fault::disk_full, effect.save_path)) {
    job(gateway, delay(effect.save_path), [this, gateway, update = effect.update] {
      post_(gateway, protocol::Prepared{update, Error{ErrorCode::storage_full, "no space for the version"}});
    });
    return;
  }
  job(gateway, delay(effect.save_path), [this, gateway, effect] {
    Directory made;
    made.path =
        fmt::format("{}/weight_update_v{}.L{}.a{}", effect.save_path, effect.version, effect.lineage, effect.attempt);
    made.save_path = effect.save_path;
    made.blind = settings_[effect.save_path].blind;
    made.vacuous = random_.chance(150);
    made.layout_changed = strikes(Fault::layout_change, effect.save_path);
    if (directories_.count(made.path) > 0)
      made.path += fmt::format(".n{}", directories_.size());  // a name is used once, ever
    const std::string path = made.path;
    directories_.emplace(path, std::move(made));
    post_(gateway, protocol::Prepared{effect.update, path});
  });
}

std::string Store::hand_over(const std::string& save_path) {
  Directory handed;
  handed.path = fmt::format("/external{}/{}", save_path, directories_.size());
  handed.content = next_content_++;
  handed.ours = false;
  handed.save_path = save_path;
  handed.blind = settings_[save_path].blind;
  const std::string path = handed.path;
  directories_.emplace(path, std::move(handed));
  return path;
}

void Store::rank_saved(const std::string& path, int ranks) {
  const auto it = directories_.find(path);
  if (it == directories_.end()) return;
  if (++it->second.saves_done == ranks) it->second.content = next_content_++;
}

void Store::seal(std::size_t gateway, const protocol::Seal& effect) {
  const bool bad = strikes(Fault::bad_checkpoint, effect.save_path);
  const bool full = std::exchange(fails_next_, false) || strikes(Fault::disk_full, effect.save_path);
  job(gateway, delay(effect.save_path), [this, gateway, effect, bad, full] {
    const auto it = directories_.find(effect.directory);
    if (full) {
      post_(gateway, protocol::Sealed{effect.update, Error{ErrorCode::storage_full, "no space for the manifest"}});
      return;
    }
    if (it == directories_.end() || it->second.discarded || bad || it->second.content < 0) {
      post_(gateway, protocol::Sealed{effect.update, Error{ErrorCode::checkpoint_invalid,
                                                           "not a whole checkpoint: " + effect.directory}});
      return;
    }
    Directory& made = it->second;
    const auto reference = directories_.find(effect.reference_directory);
    const StoreSettings settings = settings_[effect.save_path];
    const bool readable = !settings.blind && reference != directories_.end() && !reference->second.discarded &&
                          (effect.reference_directory != kStartPath || settings.start_readable);
    protocol::SealedVersion version;
    version.bytes = 1000;
    version.tensors = 10;
    version.blind = settings.blind;
    version.compared = readable;
    version.reference_clean = readable;
    if (!readable) version.reference_reason = "the reference can't be read here";
    version.layout_changed = readable && made.layout_changed;
    version.differs_from_reference = !readable || reference->second.content != made.content;
    if (effect.digest_now && !settings.blind) version.digest = fmt::format("{:032x}", made.content);
    if (version.layout_changed && !effect.allow_layout_change) {
      post_(gateway, protocol::Sealed{effect.update, Error{ErrorCode::checkpoint_layout_changed,
                                                           "shapes differ: " + effect.directory}});
      return;
    }
    made.sealed = true;
    post_(gateway, protocol::Sealed{effect.update, version});
  });
}

void Store::digest(std::size_t gateway, const protocol::ComputeDigest& effect) {
  const Directory* read = find(effect.directory);
  const std::string save_path = read == nullptr ? "" : read->save_path;
  const bool fails = std::exchange(fails_next_, false) || strikes(Fault::digest_fail, save_path);
  job(gateway, delay(save_path) * 3, [this, gateway, effect, fails] {
    const Directory* directory = find(effect.directory);
    if (fails || directory == nullptr || directory->discarded || directory->blind) {
      post_(gateway,
            protocol::DigestDone{effect.update, Error{ErrorCode::storage_failed, "can't read " + effect.directory}});
    } else {
      post_(gateway, protocol::DigestDone{effect.update, fmt::format("{:032x}", directory->content)});
    }
  });
}

void Store::discard(std::size_t gateway, const protocol::Discard& effect) {
  constexpr std::int64_t kTakes = 20;
  job(gateway, kTakes, [this, gateway, directory = effect.directory] {
    const auto it = directories_.find(directory);
    if (it != directories_.end() && it->second.ours) it->second.discarded = true;
    post_(gateway, protocol::Discarded{directory, std::nullopt});
  });
}

const Directory* Store::find(const std::string& path) const {
  const auto it = directories_.find(path);
  return it == directories_.end() ? nullptr : &it->second;
}

}  // namespace weighlock::sim
