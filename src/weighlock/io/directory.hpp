// An open directory, and what may be done to the names in it.
//
// Everything is relative to the open descriptor, so that a path that is exchanged meanwhile leads nowhere new. Owns the
// descriptor; the FileSystem must outlive it. One user at a time. `name` is always one component; `relative` may be
// several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/io/file.hpp"
#include "weighlock/io/file_system.hpp"

namespace weighlock {

inline constexpr mode_t kFileMode = 0664;        // readable by every engine: savers that write 0600 are a known fault
inline constexpr mode_t kDirectoryMode = 02775;  // writable by the trainers' group, which new files inherit
inline constexpr std::size_t kDirectoryEntriesMax = 100'000;  // a version of a large model has a few hundred

enum class EntryKind { absent, regular, directory, link, other };

struct Entry {
  EntryKind kind = EntryKind::absent;
  std::uint64_t size = 0;
};

// What of a change has reached the disk when the call returns. Less than `name` is for what may be lost with the power:
// a process that dies loses nothing of it.
enum class Durable {
  nothing,
  content,  // that of the file: should its name be found after a power failure, then with this content
  name,     // that, and the directory
};

// Whether `name` can be one component of a path: not empty, not "." or "..", without '/' and NUL, at most 255 bytes.
bool is_plain_name(std::string_view name);

class Directory {
 public:
  // `path` is the caller's word and links in it are followed.
  static Result<Directory> open(FileSystem& files, const std::string& path);

  const std::string& path() const { return handle_.path(); }
  std::string path_of(std::string_view relative) const { return path() + "/" + std::string(relative); }

  // For reading; never blocks on a FIFO or a device, but doesn't look at the kind either: File::size does.
  Result<File> open_file(const std::string& relative, Follow follow) const;
  Result<Directory> open_directory(const std::string& relative, Follow follow) const;
  Result<Entry> look(const std::string& name) const;  // at a link itself; absent isn't an error
  Result<std::vector<std::string>> list() const;      // sorted

  // A new directory with kDirectoryMode whatever the umask; `conflict` when the name is taken. Its name is durable with
  // Durable::name only.
  Result<Directory> make_directory(const std::string& name, Durable durable = Durable::name);
  // The directory, made if it isn't there.
  Result<Directory> ensure_directory(const std::string& name);

  // A new file with kFileMode whatever the umask, written whole and closed, and durable as asked; `conflict` when the
  // name is taken. After a failure later than that the file is removed again as far as the system lets us.
  Status create_file(const std::string& name, std::string_view content, Durable durable = Durable::name);
  // The same under a temporary name that no loader globs, then renamed over `name`: a reader sees the old content or
  // the new. After a failure the name has its old content or, if only the directory's sync failed, the new.
  Status replace_file(const std::string& name, std::string_view content, Durable durable = Durable::name);
  // As replace_file, but `conflict` when the name is taken: of several that try, one gets it, and nobody ever sees a part of
  // its content. After a failure the name may be there, whole, if only what follows the link failed.
  Status publish_file(const std::string& name, std::string_view content);
  Status sync_file(const std::string& name);  // what lies there, whoever wrote it

  // `conflict` when it is taken.
  Status rename(const std::string& name, Directory& to, const std::string& new_name, Durable durable = Durable::name);
  Status remove_file(const std::string& name);
  // The directory `name` and all in it; links are removed, not followed, and other mounts aren't entered.
  Status remove_tree(const std::string& name);
  Status sync() { return handle_.sync(); }
  Result<std::uint64_t> free_bytes() const;  // for us, without root's reserve
  Result<struct stat> status() const { return handle_.status(); }

 private:
  Directory(FileSystem& files, File handle) : files_(&files), handle_(std::move(handle)) {}
  Status write_new_file(const std::string& name, std::string_view content, Durable durable);
  Status sync_if(Durable durable) { return durable == Durable::name ? sync() : Status{}; }
  Status empty_tree(std::size_t depth, dev_t device);

  FileSystem* files_;
  File handle_;
};

}  // namespace weighlock
