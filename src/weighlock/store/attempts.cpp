// Names of attempts, their records, and their removal.
#include <fmt/format.h>

#include <utility>

#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/io/access.hpp"
#include "weighlock/io/directory.hpp"
#include "weighlock/store/paths.hpp"
#include "weighlock/store/save_path.hpp"
#include "weighlock/store/version_store.hpp"
#include "weighlock/tensor/quote.hpp"
#include "weighlock/tensor/safetensors.hpp"

namespace weighlock {
namespace {

constexpr int kNamesTriedMax = 100;     // taken names of one attempt: each is a crash between record and journal
constexpr int kTrashNamesMax = 10'000;  // discards of one name whose removal failed
constexpr std::size_t kRecordBytesMax = 64 * 1024;
constexpr const char* kMadeSuffix = ".made";
constexpr const char* kEmptyCheckpoint = "empty";

std::string name_number(const PrepareRequest& request, int number) {
  if (number == 0) return fmt::format("weight_update_v{}", request.version);
  std::string name = fmt::format("weight_update_v{}.L{}.a{}", request.version, request.lineage, request.attempt);
  if (number > 1) name += fmt::format(".x{}", number);
  return name;
}

std::string record_text(const PrepareRequest& request, const std::string& name) {
  return json::serialize(json::object{{"name", name},
                                      {"version", request.version},
                                      {"lineage", request.lineage},
                                      {"attempt", request.attempt},
                                      {"owner", request.owner},
                                      {"maker", request.trainers_make_it ? "trainers" : "gateway"}}) +
         "\n";
}

Error not_visible(FileSystem& files, const std::string& path, Error error) {
  const bool refused = error.code == ErrorCode::storage_full || error.code == ErrorCode::conflict;
  if (refused) return error;
  return wrap(ErrorCode::storage_not_visible, describe_access(files, path), std::move(error));
}

Status check_space(const Directory& directory, std::uint64_t bytes_needed) {
  const Result<std::uint64_t> free = directory.free_bytes();
  if (!free) return free.error();
  std::uint64_t needed = 0;
  if (__builtin_add_overflow(bytes_needed, bytes_needed / 10, &needed)) needed = ~std::uint64_t{0};
  if (*free >= needed) return {};
  return Error{ErrorCode::storage_full,
               fmt::format("'{}' has {} bytes free, and the next version needs {} (the last one's {} and a tenth more)",
                           directory.path(), *free, needed, bytes_needed)};
}

// Nobody is told the name before this. What a power failure leaves of it earlier may be any part: a name that is seen
// again is taken, a directory without a whole record is left alone, and it is empty.
Status make_durable(Directory& parent, Directory& attempts, const std::string& name) {
  if (Status synced = attempts.sync_file(name); !synced) return synced;
  if (Status synced = attempts.sync(); !synced) return synced;
  return parent.sync();
}

// True: the name is ours now, with its directory. False: it is taken.
Result<bool> claim(Directory& parent, Directory& attempts, const PrepareRequest& request, const std::string& name) {
  const Result<Entry> present = parent.look(name);
  if (!present) return present.error();
  if (present->kind != EntryKind::absent) return false;
  if (Status recorded = attempts.create_file(name, record_text(request, name), Durable::nothing); !recorded) {
    if (recorded.error().code == ErrorCode::conflict) return false;
    return std::move(recorded).error();
  }
  const auto done = [&]() -> Result<bool> {
    if (Status durable = make_durable(parent, attempts, name); !durable) return std::move(durable).error();
    return true;
  };
  if (request.trainers_make_it) return done();
  const Result<Directory> made = parent.make_directory(name, Durable::nothing);
  if (!made) {
    // Made by another since we looked. The record stays, so that the name is never used; without the second one it
    // isn't ours.
    if (made.error().code == ErrorCode::conflict) return false;
    return made.error();
  }
  if (Status marked = attempts.create_file(name + kMadeSuffix, "", Durable::nothing); !marked)
    return std::move(marked).error();
  return done();
}

// Whether the records say that the directory was made for us.
Status check_ours(const Directory& attempts, const std::string& name) {
  const auto refuse = [&](std::string_view why) {
    return Error{ErrorCode::permission_denied,
                 fmt::format("{} is left alone: {} in '{}'", quote_name(name), why, attempts.path())};
  };
  const Result<File> file = attempts.open_file(name, Follow::no);
  if (!file) return file.error().code == ErrorCode::not_found ? refuse("it has no record of ours") : file.error();
  const Result<std::string> text = file->read_text(kRecordBytesMax);
  if (!text) return text.error();
  const Result<json::value> record = parse_json(*text, file->path());
  if (!record || find_string(*record, "name") != name) return refuse("its record can't be read");
  if (find_string(*record, "maker") == "trainers") return {};
  const Result<Entry> made = attempts.look(name + kMadeSuffix);
  if (!made) return made.error();
  return made->kind == EntryKind::regular ? Status{}
                                          : Status(refuse("it wasn't made by us, there is no second record"));
}

// The name of `directory` if it is a child of `save_path`.
Result<std::string> child_of(const std::string& save_path, const std::string& directory) {
  const Result<std::string> parent = normal_path(save_path);
  if (!parent) return parent.error();
  const Result<std::string> child = normal_path(directory);
  if (!child) return child.error();
  if (parent_of(*child) != *parent || !is_plain_name(name_of(*child)) || name_of(*child).starts_with('.')) {
    return Error{ErrorCode::permission_denied,
                 fmt::format("'{}' isn't a version's directory in '{}'", *child, *parent)};
  }
  return name_of(*child);
}

Status move_to_trash(Directory& parent, Directory& trash, const std::string& name) {
  for (int number = 0; number < kTrashNamesMax; ++number) {
    const std::string there = fmt::format("{}.{}", name, number);
    Status moved = parent.rename(name, trash, there, Durable::nothing);
    if (!moved && moved.error().code == ErrorCode::conflict) continue;
    if (!moved) return moved;
    Status removed = trash.remove_tree(there);
    if (!removed)
      return wrap(fmt::format("'{}' is out of sight, but not all of it could be removed", trash.path_of(there)),
                  std::move(removed).error());
    return {};
  }
  return Error{ErrorCode::storage_failed, fmt::format("'{}' holds {} discards of {}: remove them", trash.path(),
                                                      kTrashNamesMax, quote_name(name))};
}

}  // namespace

Result<Directory> open_save_path(FileSystem& files, const std::string& save_path) {
  Result<Directory> opened = Directory::open(files, save_path);
  if (opened || opened.error().code != ErrorCode::not_found || parent_of(save_path) == "/") return opened;
  Result<Directory> parent = Directory::open(files, parent_of(save_path));
  if (!parent) return opened;
  return parent->ensure_directory(name_of(save_path));
}

Result<Directory> open_own_folder(FileSystem& files, const std::string& save_path, const std::string& name) {
  Result<Directory> parent = Directory::open(files, save_path);
  if (!parent) return parent;
  Result<Directory> own = parent->ensure_directory(kOwnFolder);
  if (!own) return own;
  return own->ensure_directory(name);
}

Storage VersionStore::probe_save_path(const std::string& save_path) const {
  const Result<std::string> path = normal_path(save_path);
  if (!path) return {false, path.error().text()};
  Result<Directory> directory = Directory::open(*files_, *path);
  if (!directory) {
    const bool makeable = directory.error().code == ErrorCode::not_found && parent_of(*path) != "/" &&
                          Directory::open(*files_, parent_of(*path));
    if (makeable) return {true, fmt::format("'{}' isn't there yet, its parent is", *path)};
    return {false, describe_access(*files_, *path)};
  }
  const Result<Directory> own = directory->ensure_directory(kOwnFolder);
  if (!own)
    return {false, fmt::format("not writable from here: {} ({})", own.error().text(), describe_access(*files_, *path))};
  return {true, ""};
}

Result<PreparedAttempt> VersionStore::prepare(const PrepareRequest& request) const {
  const Result<std::string> path = normal_path(request.save_path);
  if (!path) return path.error();
  Result<Directory> parent = open_save_path(*files_, *path);
  if (!parent) return not_visible(*files_, *path, std::move(parent).error());
  if (Status fits = check_space(*parent, request.bytes_needed); !fits) return std::move(fits).error();
  Result<Directory> attempts = open_own_folder(*files_, *path, "attempts");
  if (!attempts) return not_visible(*files_, *path, std::move(attempts).error());
  for (int number = 0; number < kNamesTriedMax; ++number) {
    const std::string name = name_number(request, number);
    const Result<bool> claimed = claim(*parent, *attempts, request, name);
    if (!claimed)
      return wrap(fmt::format("attempt {} of version {}", request.attempt, request.version), claimed.error());
    if (*claimed) return PreparedAttempt{name, parent->path_of(name)};
  }
  return Error{ErrorCode::conflict,
               fmt::format("{} names of version {} are taken in '{}'", kNamesTriedMax, request.version, *path)};
}

Status VersionStore::discard(const std::string& save_path, const std::string& directory, bool sealed_too) const {
  const Result<std::string> name = child_of(save_path, directory);
  if (!name) return name.error();
  Result<Directory> parent = Directory::open(*files_, save_path);
  if (!parent) return std::move(parent).error();
  const Result<Directory> attempts = open_own_folder(*files_, save_path, "attempts");
  if (!attempts) return attempts.error();
  if (Status ours = check_ours(*attempts, *name); !ours) return ours;
  const Result<std::string> newest = latest(save_path);
  if (!newest && newest.error().code != ErrorCode::not_found) return newest.error();
  if (newest && *newest == *name) {
    return Error{ErrorCode::permission_denied,
                 fmt::format("'{}' is the newest committed version and stays", directory)};
  }
  const Result<Directory> doomed = parent->open_directory(*name, Follow::no);
  if (!doomed) return doomed.error().code == ErrorCode::not_found ? Status{} : doomed.error();
  const Result<Entry> manifest = doomed->look(std::string(kManifestName));
  if (!manifest) return manifest.error();
  if (manifest->kind != EntryKind::absent && !sealed_too) {
    return Error{ErrorCode::permission_denied,
                 fmt::format("'{}' is sealed, and only an attempt was to be discarded", directory)};
  }
  Result<Directory> trash = open_own_folder(*files_, save_path, "trash");
  if (!trash) return std::move(trash).error();
  return move_to_trash(*parent, *trash, *name);
}

Status VersionStore::mark_latest(const std::string& save_path, const std::string& directory) const {
  const Result<std::string> path = normal_path(directory);
  if (!path) return path.error();
  const Result<std::string> name = child_of(save_path, directory);
  Result<Directory> parent = Directory::open(*files_, save_path);
  if (!parent) return std::move(parent).error();
  Result<Directory> own = parent->ensure_directory(kOwnFolder);
  if (!own) return std::move(own).error();
  return own->replace_file("LATEST", (name ? *name : *path) + "\n", Durable::nothing);
}

Result<std::string> VersionStore::latest(const std::string& save_path) const {
  const Result<Directory> own = Directory::open(*files_, save_path + "/" + kOwnFolder);
  if (!own) return own.error();
  const Result<File> file = own->open_file("LATEST", Follow::no);
  if (!file) return file.error();
  Result<std::string> text = file->read_text(kRecordBytesMax);
  if (text && text->ends_with('\n')) text->pop_back();
  if (text && text->find_first_not_of('\0') == std::string::npos)  // what a power failure may leave of it
    return Error{ErrorCode::not_found, fmt::format("'{}' is empty", file->path())};
  return text;
}

Result<std::string> VersionStore::confine(const std::string& path, const std::vector<std::string>& roots) const {
  Result<std::string> normal = normal_path(path);
  if (!normal || roots.empty()) return normal;
  for (const std::string& given : roots) {
    const Result<std::string> root = normal_path(given);
    if (!root || !is_beneath(*normal, *root)) continue;
    const Result<Directory> opened = Directory::open(*files_, *root);
    if (!opened) return not_visible(*files_, *root, opened.error());
    // The longest part of the way that exists mustn't leave the root; what doesn't exist yet can't lead anywhere.
    for (std::string part = *normal;; part = parent_of(part)) {
      const Result<File> reached = opened->open_file(relative_to(part, *root), Follow::beneath);
      if (reached) return normal;
      if (reached.error().code == ErrorCode::invalid_argument) {
        return wrap(ErrorCode::permission_denied,
                    fmt::format("'{}' leads out of the storage root '{}'", *normal, *root), reached.error());
      }
      if (reached.error().code != ErrorCode::not_found || part == *root)
        return not_visible(*files_, part, reached.error());
    }
  }
  return Error{ErrorCode::permission_denied, fmt::format("'{}' lies in none of the storage roots", *normal)};
}

std::string VersionStore::empty_checkpoint_of(const std::string& save_path) {
  return fmt::format("{}/{}/{}", save_path, kOwnFolder, kEmptyCheckpoint);
}

Result<std::string> VersionStore::ensure_empty_checkpoint(const std::string& save_path) const {
  Result<Directory> folder = open_own_folder(*files_, save_path, kEmptyCheckpoint);
  if (!folder) return std::move(folder).error();
  const std::string file = "model.safetensors";
  const Result<Entry> there = folder->look(file);
  if (!there) return there.error();
  if (there->kind == EntryKind::absent) {
    const Result<WrittenHeader> written = write_safetensors_header({});
    if (!written) return written.error();
    if (Status status = folder->replace_file(file, written->bytes); !status) return status.error();
  }
  return empty_checkpoint_of(save_path);
}

}  // namespace weighlock
