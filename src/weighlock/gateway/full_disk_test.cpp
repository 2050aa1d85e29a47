// What a gateway shows of a full disk under its state directory, and that it finds the space again by itself.
#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

struct Disk {
  std::atomic<bool> full{false};
  std::atomic<bool> told_full{false};
  std::atomic<int> looks{0};
};

// A journal that writes on, and says that it does so with what was put by.
class FullDiskJournal : public Journal {
 public:
  FullDiskJournal(std::unique_ptr<Journal> real, Disk& disk) : real_(std::move(real)), disk_(disk) {}
  Status append(std::vector<protocol::Record> group, std::int64_t wall_ms) override {
    if (disk_.full) disk_.told_full = true;
    return real_->append(std::move(group), wall_ms);
  }
  Result<std::vector<JournalEntry>> read(std::int64_t from, std::size_t limit) override {
    return real_->read(from, limit);
  }
  std::int64_t last_number() const override { return real_->last_number(); }
  bool space_low() const override { return disk_.told_full; }
  bool restore_space() override {
    ++disk_.looks;
    disk_.told_full = disk_.full.load();
    return !disk_.told_full;
  }

 private:
  std::unique_ptr<Journal> real_;
  Disk& disk_;
};

class FullDisk : public NativeTest {
 protected:
  FullDisk() {
    settings.around_journal = [this](std::unique_ptr<Journal> real) {
      return std::make_unique<FullDiskJournal>(std::move(real), disk);
    };
  }
  Reply readiness_until(int status) {
    Reply reply;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    do {
      reply = call("GET", "/readyz");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    } while (reply.status != status && std::chrono::steady_clock::now() < until);
    EXPECT_EQ(reply.status, status) << reply.body;
    return reply;
  }
  bool is_in_metrics(const std::string& line) { return call("GET", "/metrics").body.find(line) != std::string::npos; }
  Disk disk;
};

TEST_F(FullDisk, readiness_and_metrics_tell_it_until_there_is_space_again_without_any_request) {
  start();
  make_pair();
  EXPECT_EQ(readiness_until(200).json().at("status").as_string(), "ready");
  EXPECT_TRUE(is_in_metrics("weighlock_journal_disk_full 0\n"));
  disk.full = true;
  const Reply first = call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 1}});
  EXPECT_EQ(first.json().at("state").as_string(), "succeeded") << "what runs is brought to its end";
  EXPECT_EQ(readiness_until(503).json().at("status").as_string(), "storage_full");
  EXPECT_TRUE(is_in_metrics("weighlock_journal_disk_full 1\n"));
  EXPECT_EQ(call("POST", "/v1/pairs/actor/updates", {{"version", 2}}).status, 507);
  disk.full = false;
  EXPECT_EQ(readiness_until(200).json().at("status").as_string(), "ready");
  EXPECT_TRUE(is_in_metrics("weighlock_journal_disk_full 0\n"));
}

TEST_F(FullDisk, a_start_on_a_full_disk_says_so_and_looks_for_space) {
  disk.full = true;
  disk.told_full = true;
  start();
  EXPECT_EQ(call("GET", "/readyz").status, 503);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (disk.looks < 2 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GE(disk.looks, 2) << "as long as it is full";
  disk.full = false;
  readiness_until(200);
}

}  // namespace
}  // namespace weighlock::test
