#include "weighlock/io/directory.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "weighlock/core/check.hpp"
#include "weighlock/io/beneath.hpp"
#include "weighlock/io/os_error.hpp"

namespace weighlock {
namespace {

constexpr std::size_t kTreeDepthMax = 64;  // a discarded version nests two or three deep

int open_relative(FileSystem& files, int directory, const std::string& relative, int flags, Follow follow) {
  if (follow == Follow::anywhere) return files.open_at(directory, relative.c_str(), flags, 0);
  return open_beneath(files, directory, relative, flags, follow == Follow::beneath);
}

// Some file systems have no modes, or don't let us change them; then what they do by themselves must serve.
Status set_mode(FileSystem& files, int descriptor, mode_t mode, const std::string& path) {
  const int done = files.change_mode(descriptor, mode);
  if (done >= 0 || done == -EPERM || done == -ENOTSUP || done == -ENOSYS) return {};
  return os_error(fmt::format("set the mode of '{}' to {:04o}", path, mode), done);
}

std::string temporary_name() {
  std::random_device random;
  return fmt::format(".weighlock-{:08x}{:08x}.tmp", random(), random());
}

}  // namespace

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

Result<Directory> Directory::open(FileSystem& files, const std::string& path) {
  const int opened = files.open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_DIRECTORY, 0);
  if (opened < 0) return os_error(fmt::format("open the directory '{}'", path), opened);
  return Directory(files, File(files, opened, path));
}

Result<File> Directory::open_file(const std::string& relative, Follow follow) const {
  // O_NONBLOCK: a FIFO without a writer would hold us for ever. It means nothing for regular files.
  const int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
  const int opened = open_relative(*files_, handle_.descriptor(), relative, flags, follow);
  if (opened < 0) return os_error(fmt::format("open '{}'", path_of(relative)), opened);
  return File(*files_, opened, path_of(relative));
}

Result<Directory> Directory::open_directory(const std::string& relative, Follow follow) const {
  const int opened = open_relative(*files_, handle_.descriptor(), relative, O_RDONLY | O_DIRECTORY, follow);
  if (opened < 0) return os_error(fmt::format("open the directory '{}'", path_of(relative)), opened);
  return Directory(*files_, File(*files_, opened, path_of(relative)));
}

Result<Entry> Directory::look(const std::string& name) const {
  WEIGHLOCK_CHECK(is_plain_name(name), "a name is one component");
  struct stat found = {};
  const int looked = files_->status_at(handle_.descriptor(), name.c_str(), found);
  if (looked == -ENOENT) return Entry{};
  if (looked < 0) return os_error(fmt::format("stat '{}'", path_of(name)), looked);
  Entry entry{EntryKind::other, static_cast<std::uint64_t>(found.st_size)};
  if (S_ISREG(found.st_mode)) entry.kind = EntryKind::regular;
  if (S_ISDIR(found.st_mode)) entry.kind = EntryKind::directory;
  if (S_ISLNK(found.st_mode)) entry.kind = EntryKind::link;
  return entry;
}

Result<std::vector<std::string>> Directory::list() const {
  std::vector<std::string> names;
  const int listed = files_->list(handle_.descriptor(), kDirectoryEntriesMax, names);
  if (listed == -E2BIG) {
    return Error{ErrorCode::too_large, fmt::format("'{}' has more than {} entries", path(), kDirectoryEntriesMax)};
  }
  if (listed < 0) return os_error(fmt::format("list '{}'", path()), listed);
  std::sort(names.begin(), names.end());
  return names;
}

Result<Directory> Directory::make_directory(const std::string& name, Durable durable) {
  WEIGHLOCK_CHECK(is_plain_name(name), "a name is one component");
  const int made = files_->make_directory(handle_.descriptor(), name.c_str(), kDirectoryMode);
  if (made < 0) return os_error(fmt::format("make the directory '{}'", path_of(name)), made);
  Result<Directory> directory = open_directory(name, Follow::no);
  if (!directory) return directory;
  if (Status set = set_mode(*files_, directory->handle_.descriptor(), kDirectoryMode, path_of(name)); !set) {
    return std::move(set).error();
  }
  if (Status synced = sync_if(durable); !synced) return std::move(synced).error();
  return directory;
}

Result<Directory> Directory::ensure_directory(const std::string& name) {
  Result<Directory> opened = open_directory(name, Follow::no);
  if (opened || opened.error().code != ErrorCode::not_found) return opened;
  Result<Directory> made = make_directory(name);
  if (!made && made.error().code == ErrorCode::conflict) return open_directory(name, Follow::no);
  return made;
}

Status Directory::write_new_file(const std::string& name, std::string_view content, Durable durable) {
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
  const int opened = files_->open_at(handle_.descriptor(), name.c_str(), flags, kFileMode);
  if (opened < 0) return os_error(fmt::format("create '{}'", path_of(name)), opened);
  File file(*files_, opened, path_of(name));
  Status done = set_mode(*files_, opened, kFileMode, path_of(name));
  if (done) done = file.write_all(0, content);
  if (done && durable != Durable::nothing) done = file.sync();
  if (done) done = file.close();
  if (!done) files_->remove(handle_.descriptor(), name.c_str(), false);
  return done;
}

Status Directory::create_file(const std::string& name, std::string_view content, Durable durable) {
  WEIGHLOCK_CHECK(is_plain_name(name), "a name is one component");
  if (Status written = write_new_file(name, content, durable); !written) return written;
  Status synced = sync_if(durable);
  if (!synced) files_->remove(handle_.descriptor(), name.c_str(), false);
  return synced;
}

Status Directory::replace_file(const std::string& name, std::string_view content, Durable durable) {
  WEIGHLOCK_CHECK(is_plain_name(name), "a name is one component");
  const std::string temporary = temporary_name();
  if (Status written = write_new_file(temporary, content, durable); !written) return written;
  const int descriptor = handle_.descriptor();
  if (const int renamed = files_->rename(descriptor, temporary.c_str(), descriptor, name.c_str(), true); renamed < 0) {
    files_->remove(descriptor, temporary.c_str(), false);
    return os_error(fmt::format("rename '{}' to '{}'", path_of(temporary), name), renamed);
  }
  return sync_if(durable);
}

Status Directory::publish_file(const std::string& name, std::string_view content) {
  WEIGHLOCK_CHECK(is_plain_name(name), "a name is one component");
  const std::string temporary = temporary_name();
  if (Status written = write_new_file(temporary, content, Durable::name); !written) return written;
  const int descriptor = handle_.descriptor();
  const int linked = files_->link(descriptor, temporary.c_str(), name.c_str());
  files_->remove(descriptor, temporary.c_str(), false);
  if (linked < 0) return os_error(fmt::format("link '{}' to '{}'", path_of(temporary), name), linked);
  return sync();
}

Status Directory::sync_file(const std::string& name) {
  Result<File> file = open_file(name, Follow::no);
  if (!file) return std::move(file).error();
  Status done = file->sync();
  return done ? file->close() : done;
}

Status Directory::rename(const std::string& name, Directory& to, const std::string& new_name, Durable durable) {
  WEIGHLOCK_CHECK(is_plain_name(name) && is_plain_name(new_name), "a name is one component");
  const int renamed =
      files_->rename(handle_.descriptor(), name.c_str(), to.handle_.descriptor(), new_name.c_str(), false);
  if (renamed < 0) return os_error(fmt::format("rename '{}' to '{}'", path_of(name), to.path_of(new_name)), renamed);
  if (Status synced = sync_if(durable); !synced) return synced;
  return to.sync_if(durable);
}

Status Directory::remove_file(const std::string& name) {
  WEIGHLOCK_CHECK(is_plain_name(name), "a name is one component");
  const int removed = files_->remove(handle_.descriptor(), name.c_str(), false);
  if (removed < 0) return os_error(fmt::format("remove '{}'", path_of(name)), removed);
  return {};
}

Status Directory::remove_tree(const std::string& name) {
  WEIGHLOCK_CHECK(is_plain_name(name), "a name is one component");
  Result<Directory> tree = open_directory(name, Follow::no);
  if (!tree) return std::move(tree).error();
  const Result<struct stat> ours = status();
  if (!ours) return ours.error();
  if (Status emptied = tree->empty_tree(0, ours->st_dev); !emptied) return emptied;
  const int removed = files_->remove(handle_.descriptor(), name.c_str(), true);
  if (removed < 0) return os_error(fmt::format("remove the directory '{}'", path_of(name)), removed);
  return {};
}

// Opening a directory counts towards the limit of descriptors: the depth is bounded, and so are they.
Status Directory::empty_tree(std::size_t depth, dev_t device) {
  const Result<struct stat> found = status();
  if (!found) return found.error();
  if (found->st_dev != device || depth > kTreeDepthMax) {
    return Error{ErrorCode::storage_failed,
                 fmt::format("'{}' is {} and isn't removed", path(),
                             found->st_dev != device ? "another mount" : fmt::format("over {} deep", kTreeDepthMax))};
  }
  const Result<std::vector<std::string>> names = list();
  if (!names) return names.error();
  for (const std::string& name : *names) {
    const Result<Entry> entry = look(name);
    if (!entry) return entry.error();
    const bool is_directory = entry->kind == EntryKind::directory;
    if (is_directory) {
      Result<Directory> below = open_directory(name, Follow::no);
      if (!below) return std::move(below).error();
      if (Status emptied = below->empty_tree(depth + 1, device); !emptied) return emptied;
    }
    const int removed = files_->remove(handle_.descriptor(), name.c_str(), is_directory);
    if (removed < 0 && removed != -ENOENT) return os_error(fmt::format("remove '{}'", path_of(name)), removed);
  }
  return {};
}

Result<std::uint64_t> Directory::free_bytes() const {
  struct statvfs found = {};
  if (const int done = files_->space(handle_.descriptor(), found); done < 0) {
    return os_error(fmt::format("ask for the free space of '{}'", path()), done);
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(std::uint64_t{found.f_bavail}, std::uint64_t{found.f_frsize}, &bytes))
    bytes = ~std::uint64_t{0};
  return bytes;
}

}  // namespace weighlock
