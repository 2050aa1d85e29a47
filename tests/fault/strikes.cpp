#include "strikes.hpp"

#include <utility>

namespace weighlock::fault {

void Strikes::arm(std::size_t nth, Way way, std::function<void()> died) {
  const std::lock_guard lock(mutex_);
  count_ = 0;
  nth_ = nth;
  way_ = way;
  fired_ = false;
  what_.clear();
  died_ = std::move(died);
}

void Strikes::disarm() {
  const std::lock_guard lock(mutex_);
  nth_ = 0;
}

void Strikes::bring_back() {
  const std::lock_guard lock(mutex_);
  dead_ = false;
}

bool Strikes::dead() const {
  const std::lock_guard lock(mutex_);
  return dead_;
}

bool Strikes::fired() const {
  const std::lock_guard lock(mutex_);
  return fired_;
}

std::size_t Strikes::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

std::string Strikes::what() const {
  const std::lock_guard lock(mutex_);
  return what_;
}

Strikes::Fate Strikes::next(const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (dead_) return Fate::nothing;
  if (++count_ != nth_) return Fate::work;
  fired_ = true;
  what_ = what;
  if (way_ == Way::error) return Fate::fail;
  dead_ = true;
  if (died_) died_();
  return way_ == Way::crash_after ? Fate::last : Fate::nothing;
}

void Strikes::die() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(dead_, true)) return;
  if (died_) died_();
}

test::RequestFate request_fate(Strikes& strikes, const std::string& peer) {
  switch (strikes.next("a request to " + peer)) {
    case Strikes::Fate::work:
      return test::RequestFate::handled;
    case Strikes::Fate::fail:
      return test::RequestFate::refused;
    case Strikes::Fate::last:
      return test::RequestFate::answer_lost;
    case Strikes::Fate::nothing:
      return test::RequestFate::lost;
  }
  return test::RequestFate::handled;
}

template <typename Call>
auto StruckFiles::done(const char* what, Call call) -> decltype(call()) {
  const Strikes::Fate fate = strikes_.next(what);
  if (fate == Strikes::Fate::fail || fate == Strikes::Fate::nothing) return -EIO;
  return call();
}

int StruckFiles::open_at(int directory, const char* path, int flags, mode_t mode) {
  return done("open", [&] { return real_.open_at(directory, path, flags, mode); });
}
int StruckFiles::open_beneath(int directory, const char* path, int flags, bool links) {
  return done("open_beneath", [&] { return real_.open_beneath(directory, path, flags, links); });
}
ssize_t StruckFiles::read_at(int descriptor, void* into, std::size_t bytes, std::uint64_t offset) {
  return done("read", [&] { return real_.read_at(descriptor, into, bytes, offset); });
}
ssize_t StruckFiles::write_at(int descriptor, const void* from, std::size_t bytes, std::uint64_t offset) {
  return done("write", [&] { return real_.write_at(descriptor, from, bytes, offset); });
}
// Nobody cuts the power here, so the disk needn't really be waited for.
int StruckFiles::sync(int) {
  return done("sync", [] { return 0; });
}
int StruckFiles::change_mode(int descriptor, mode_t mode) {
  return done("change_mode", [&] { return real_.change_mode(descriptor, mode); });
}
int StruckFiles::status(int descriptor, struct stat& into) {
  return done("status", [&] { return real_.status(descriptor, into); });
}
int StruckFiles::status_at(int directory, const char* name, struct stat& into) {
  return done("status_at", [&] { return real_.status_at(directory, name, into); });
}
int StruckFiles::space(int descriptor, struct statvfs& into) {
  return done("space", [&] { return real_.space(descriptor, into); });
}
int StruckFiles::make_directory(int directory, const char* name, mode_t mode) {
  return done("make_directory", [&] { return real_.make_directory(directory, name, mode); });
}
int StruckFiles::rename(int from, const char* old_name, int to, const char* new_name, bool replace) {
  return done("rename", [&] { return real_.rename(from, old_name, to, new_name, replace); });
}
int StruckFiles::link(int directory, const char* old_name, const char* new_name) {
  return done("link", [&] { return real_.link(directory, old_name, new_name); });
}
int StruckFiles::remove(int directory, const char* name, bool is_directory) {
  return done("remove", [&] { return real_.remove(directory, name, is_directory); });
}
int StruckFiles::read_link(int directory, const char* name, std::string& into) {
  return done("read_link", [&] { return real_.read_link(directory, name, into); });
}
int StruckFiles::list(int directory, std::size_t names_max, std::vector<std::string>& into) {
  return done("list", [&] { return real_.list(directory, names_max, into); });
}

Status StruckJournal::append(std::vector<protocol::Record> group, std::int64_t wall_ms) {
  const Strikes::Fate fate = strikes_.next("a group of records");
  if (fate == Strikes::Fate::fail || fate == Strikes::Fate::nothing)
    return Error{ErrorCode::journal_failed, "the journal was struck"};
  return real_->append(std::move(group), wall_ms);
}

}  // namespace weighlock::fault
