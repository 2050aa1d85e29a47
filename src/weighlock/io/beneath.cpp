#include "weighlock/io/beneath.hpp"

#include <fcntl.h>

#include <cerrno>
#include <deque>
#include <string_view>
#include <vector>

namespace weighlock {
namespace {

constexpr int kLinksMax = 40;  // as the kernel's

// Puts the components of `path` before `rest`.
void prepend(std::string_view path, std::deque<std::string>& rest) {
  std::vector<std::string> parts;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    if (end > 0 && path.substr(0, end) != ".") parts.emplace_back(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  rest.insert(rest.begin(), parts.begin(), parts.end());
}

// The way down from the root, so that ".." can go up without asking the file system.
class Descent {
 public:
  Descent(FileSystem& files, int root) : files_(files), root_(root) {}
  ~Descent() {
    while (!below_.empty()) up();
  }
  Descent(const Descent&) = delete;
  Descent& operator=(const Descent&) = delete;

  int here() const { return below_.empty() ? root_ : below_.back(); }
  bool at_root() const { return below_.empty(); }
  void up() {
    files_.close(below_.back());
    below_.pop_back();
  }
  int down(const std::string& name) {
    const int opened = files_.open_at(here(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW, 0);
    if (opened >= 0) below_.push_back(opened);
    return opened;
  }

 private:
  FileSystem& files_;
  int root_;
  std::vector<int> below_;
};

int open_by_component(FileSystem& files, int directory, const std::string& relative, int flags, bool links) {
  if (relative.starts_with('/')) return -EXDEV;
  Descent descent(files, directory);
  std::deque<std::string> rest;
  prepend(relative, rest);
  int links_followed = 0;
  while (!rest.empty()) {
    const std::string name = rest.front();
    rest.pop_front();
    if (name == "..") {
      if (descent.at_root()) return -EXDEV;
      descent.up();
      continue;
    }
    struct stat found = {};
    if (const int looked = files.status_at(descent.here(), name.c_str(), found); looked < 0) return looked;
    if (S_ISLNK(found.st_mode)) {
      if (!links || ++links_followed > kLinksMax) return -ELOOP;
      std::string target;
      if (const int read = files.read_link(descent.here(), name.c_str(), target); read < 0) return read;
      if (target.starts_with('/')) return -EXDEV;
      prepend(target, rest);
      continue;
    }
    if (rest.empty()) return files.open_at(descent.here(), name.c_str(), flags | O_NOFOLLOW, 0);
    if (const int went = descent.down(name); went < 0) return went;
  }
  return files.open_at(descent.here(), ".", flags, 0);
}

}  // namespace

int open_beneath(FileSystem& files, int directory, const std::string& relative, int flags, bool links) {
  const int opened = files.open_beneath(directory, relative.c_str(), flags, links);
  // EPERM is how older container sandboxes refuse a call that they don't know; EAGAIN is a rename seen while ".." was
  // resolved.
  if (opened != -ENOSYS && opened != -EPERM && opened != -EAGAIN) return opened;
  return open_by_component(files, directory, relative, flags, links);
}

}  // namespace weighlock
