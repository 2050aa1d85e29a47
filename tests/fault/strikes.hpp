// One operation out of many is struck: the Nth call to a peer, file call or group of records since `arm`, counted
// together. It fails, or the gateway dies at it: then nothing that it does from that moment on has any effect, as of a
// process that was killed, and whoever made it takes it away.
//
// Thread rule: any thread. The wrappers borrow what they wrap and the Strikes.
#pragma once

#include <cerrno>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "weighlock/gateway/gateway_fixture.hpp"
#include "weighlock/io/file_system.hpp"
#include "weighlock/journal/journal.hpp"

namespace weighlock::fault {

enum class Way { error, crash_before, crash_after };
inline const char* name(Way way) {
  return way == Way::error ? "error" : way == Way::crash_before ? "crash_before" : "crash_after";
}

class Strikes {
 public:
  // `died` runs at each death, on the thread of the operation, before anybody can see it; it only posts.
  void arm(std::size_t nth, Way way, std::function<void()> died);
  void disarm();
  void bring_back();  // another gateway: its operations work
  bool dead() const;
  bool fired() const;         // since `arm`
  std::size_t count() const;  // operations since `arm`
  std::string what() const;   // ... the struck one

  enum class Fate {
    work,
    fail,
    last,
    nothing
  };  // `last`: done, and the process is dead; `nothing`: it was dead before
  Fate next(const std::string& what);
  void die();  // now

 private:
  mutable std::mutex mutex_;
  std::size_t count_ = 0;
  std::size_t nth_ = 0;  // 0: none
  Way way_ = Way::error;
  bool dead_ = false;
  bool fired_ = false;
  std::string what_;
  std::function<void()> died_;
};

// For FakeEngine::fate and FakeTrainer::fate.
test::RequestFate request_fate(Strikes& strikes, const std::string& peer);

class StruckFiles final : public FileSystem {
 public:
  explicit StruckFiles(Strikes& strikes) : strikes_(strikes) {}
  int open_at(int directory, const char* path, int flags, mode_t mode) override;
  int open_beneath(int directory, const char* path, int flags, bool links) override;
  int close(int descriptor) override { return real_.close(descriptor); }  // the system does it for the dead, too
  ssize_t read_at(int descriptor, void* into, std::size_t bytes, std::uint64_t offset) override;
  ssize_t write_at(int descriptor, const void* from, std::size_t bytes, std::uint64_t offset) override;
  int sync(int descriptor) override;
  int change_mode(int descriptor, mode_t mode) override;
  int status(int descriptor, struct stat& into) override;
  int status_at(int directory, const char* name, struct stat& into) override;
  int space(int descriptor, struct statvfs& into) override;
  int make_directory(int directory, const char* name, mode_t mode) override;
  int rename(int from, const char* old_name, int to, const char* new_name, bool replace) override;
  int link(int directory, const char* old_name, const char* new_name) override;
  int remove(int directory, const char* name, bool is_directory) override;
  int read_link(int directory, const char* name, std::string& into) override;
  int list(int directory, std::size_t names_max, std::vector<std::string>& into) override;

 private:
  // The call's result, -EIO when it is struck.
  template <typename Call>
  auto done(const char* what, Call call) -> decltype(call());

  Strikes& strikes_;
  RealFileSystem real_;
};

// Appends are struck, reads aren't: they change nothing, and only a start makes them.
class StruckJournal final : public Journal {
 public:
  StruckJournal(std::unique_ptr<Journal> real, Strikes& strikes) : real_(std::move(real)), strikes_(strikes) {}
  Status append(std::vector<protocol::Record> group, std::int64_t wall_ms) override;
  Result<std::vector<JournalEntry>> read(std::int64_t from, std::size_t limit) override {
    return real_->read(from, limit);
  }
  std::int64_t last_number() const override { return real_->last_number(); }
  bool space_low() const override { return real_->space_low(); }
  bool restore_space() override { return real_->restore_space(); }

 private:
  std::unique_ptr<Journal> real_;
  Strikes& strikes_;
};

}  // namespace weighlock::fault
