#include "weighlock/io/access.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

namespace weighlock {
namespace {

struct Found {
  std::string path;
  struct stat status = {};
  bool own_mount = false;  // lies on another file system than "/"
};

std::string who_looks() {
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) != 0) std::strcpy(host.data(), "unknown");
  return fmt::format("host {}, uid {}, gid {}", host.data(), ::geteuid(), ::getegid());
}

std::string describe(const Found& found) {
  return fmt::format("'{}' (mode {:04o}, owner {}:{}, on {})", found.path, found.status.st_mode & 07777,
                     found.status.st_uid, found.status.st_gid,
                     found.own_mount ? "a mount apart from '/'" : "the same file system as '/'");
}

// Nothing of the name is in `last`. A directory that holds other things is no empty mount point.
std::string why_missing(FileSystem& files, const Found& last, bool is_whole_path) {
  const int opened = files.open_at(AT_FDCWD, last.path.c_str(), O_RDONLY | O_DIRECTORY, 0);
  std::vector<std::string> names;
  const int listed = opened < 0 ? opened : files.list(opened, 1, names);
  if (opened >= 0) files.close(opened);
  const bool holds_others = listed == -E2BIG || !names.empty();
  if (is_whole_path && holds_others && last.path != "/")
    return "; that holds others: is the name right, and has it been written yet?";
  return last.own_mount ? "" : "; likely cause: the storage isn't shared with this host or isn't mounted here";
}

int status_of(FileSystem& files, const std::string& path, struct stat& into) {
  const int opened = files.open_at(AT_FDCWD, path.c_str(), O_PATH, 0);
  if (opened < 0) return opened;
  const int done = files.status(opened, into);
  files.close(opened);
  return done;
}

// Whether it can be read (a file) or listed (a directory): by opening, since mode bits don't tell on every file system.
int try_read(FileSystem& files, const std::string& path) {
  const int opened = files.open_at(AT_FDCWD, path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
  if (opened >= 0) files.close(opened);
  return opened;
}

}  // namespace

std::string describe_access(FileSystem& files, const std::string& path) {
  std::string text = who_looks() + ": ";
  struct stat root = {};
  if (const int done = status_of(files, "/", root); done < 0) {
    return text + fmt::format("'/' can't be read: {}", ::strerrordesc_np(-done));
  }
  Found last{"/", root, false};
  std::size_t end = 0;
  while (end < path.size()) {
    end = std::min(path.find('/', end + 1), path.size());
    const std::string part = path.substr(0, end);
    if (part == "/" || part.empty()) continue;
    struct stat found = {};
    const int done = status_of(files, part, found);
    if (done == -ENOENT || done == -ENOTDIR) {
      return text + fmt::format("'{}' doesn't exist; the last parent that does is {}{}", part, describe(last),
                                why_missing(files, last, part == path));
    }
    if (done == -EACCES) {
      return text +
             fmt::format("'{}' can't be reached: its parent {} gives us no search permission", part, describe(last));
    }
    if (done < 0) return text + fmt::format("'{}': {} ({})", part, ::strerrordesc_np(-done), ::strerrorname_np(-done));
    last = Found{part, found, found.st_dev != root.st_dev};
  }
  const int read = try_read(files, path);
  if (read >= 0) return text + describe(last) + " is readable";
  text += fmt::format("{} can't be read: {} ({})", describe(last), ::strerrordesc_np(-read), ::strerrorname_np(-read));
  if (read == -EACCES) text += "; likely cause: written by another user with a mode that shuts us out";
  if (read == -ESTALE) text += "; likely cause: the file server replaced it";
  return text;
}

namespace {

std::string user_name(uid_t uid) {
  std::array<char, 4096> room = {};
  passwd entry = {};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, room.data(), room.size(), &found) != 0 || !found) return "";
  return found->pw_name;
}

std::string user_text(uid_t uid) {
  const std::string name = user_name(uid);
  return name.empty() ? fmt::format("uid {}", uid) : fmt::format("user {} (uid {})", name, uid);
}

}  // namespace

Status check_openable(FileSystem& files, const std::string& path, bool write) {
  const int opened =
      files.open_at(AT_FDCWD, path.c_str(), (write ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0);
  if (opened >= 0) files.close(opened);
  if (opened == -ENOENT || opened == -ENOTDIR)
    return Error{ErrorCode::not_found, fmt::format("'{}' doesn't exist", path)};
  if (opened != -EACCES && opened != -EPERM) return {};
  // The nearest part that can be looked at is the one that shuts us out.
  std::string part = path;
  struct stat closed = {};
  while (status_of(files, part, closed) < 0 && part.size() > 1)
    part.resize(std::max<std::size_t>(part.find_last_of('/') == std::string::npos ? 1 : part.find_last_of('/'), 1));
  const std::string owner = user_name(closed.st_uid);
  return Error{
      ErrorCode::permission_denied,
      fmt::format("{} may not {} '{}': '{}' belongs to {}, mode {:04o}; run this as its owner: sudo -u {}",
                  user_text(::geteuid()), write ? "read and write" : "read", path, part, user_text(closed.st_uid),
                  closed.st_mode & 07777, owner.empty() ? fmt::format("'#{}'", closed.st_uid) : owner)};
}

}  // namespace weighlock
