// One number, one owner; what a file says is whole; every refusal of the storage is named.
#include "weighlock/store/epoch.hpp"

#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>

#include "weighlock/core/json.hpp"
#include "weighlock/store/checkpoint_fixture.hpp"

namespace weighlock {
namespace {

namespace fs = std::filesystem;

class EpochTest : public StoreTest {
 protected:
  EpochTest() { fs::create_directory(save_path); }
  static EpochRecord by(const std::string& owner, std::vector<EpochWorker> paused = {}) {
    return {0, owner, owner + "-host", "2026-01-02T03:04:05.000Z", "2026-01-02T03:04:06.000Z", "", std::move(paused)};
  }
  Result<EpochClaim> claim(const std::string& owner, std::vector<EpochWorker> paused = {}) {
    return epochs.claim(save_path, "actor", by(owner, std::move(paused)));
  }
  Result<EpochClaim> rewrite(const std::string& owner, std::int64_t number, std::vector<EpochWorker> paused = {}) {
    EpochRecord mine = by(owner, std::move(paused));
    mine.number = number;
    return epochs.rewrite(save_path, "actor", mine);
  }
  EpochRecord highest() {
    const auto found = epochs.highest(save_path, "actor");
    EXPECT_TRUE(found) << found.error().text();
    return found ? *found : EpochRecord{};
  }
  std::string folder() { return EpochStore::folder_of(save_path, "actor"); }
  std::set<std::string> names() {
    std::set<std::string> out;
    for (const auto& entry : fs::directory_iterator(folder())) out.insert(entry.path().filename());
    return out;
  }

  const std::string save_path = root.path("w");
  EpochStore epochs{files};
};

TEST_F(EpochTest, place_without_an_epoch_has_none_and_looking_makes_nothing) {
  EXPECT_EQ(highest().number, 0);
  EXPECT_FALSE(fs::exists(save_path + "/.weighlock"));
}

TEST_F(EpochTest, worker_that_is_listed_for_its_label_alone_is_told_apart_and_not_among_the_paused_ones) {
  const std::vector<EpochWorker> list{{"http://a:1", "i", "1"}, {"http://b:1", "j", "2", false}};
  ASSERT_TRUE(claim("one", list));
  const auto second = claim("two");
  ASSERT_TRUE(second && second->predecessor);
  EXPECT_EQ(second->predecessor->paused, list);
  EXPECT_EQ(highest().paused, list) << "whoever dies here leaves nobody out";
  std::ifstream file(folder() + "/epoch.2");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto body = parse_json(text, "epoch.2");
  ASSERT_TRUE(body) << text;
  ASSERT_EQ(find(*body, "paused")->get_array().size(), 1u);
  EXPECT_EQ(find_string(find(*body, "paused")->get_array()[0], "url"), "http://a:1");
}

TEST_F(EpochTest, file_of_an_owner_that_knew_of_no_second_list_is_read) {
  ASSERT_TRUE(claim("one"));
  write_file(folder() + "/epoch.1", R"({"epoch":1,"owner":"one","paused":[{"url":"http://a:1","incarnation":"i"}]})");
  EXPECT_EQ(highest().paused, (std::vector<EpochWorker>{{"http://a:1", "i"}}));
}

// Whoever looks for a worker takes its first entry.
TEST_F(EpochTest, worker_that_a_claim_lists_for_its_label_alone_stays_held_if_its_predecessor_holds_it) {
  ASSERT_TRUE(claim("one", {{"http://a:1", "i", "1"}}));
  ASSERT_TRUE(claim("two", {{"http://a:1", "i", "1", false}}));
  const auto third = claim("three");
  ASSERT_TRUE(third) << third.error().text();
  ASSERT_TRUE(third->predecessor);
  ASSERT_FALSE(third->predecessor->paused.empty());
  EXPECT_EQ(third->predecessor->paused.front().url, "http://a:1");
  EXPECT_TRUE(third->predecessor->paused.front().held);
}

TEST_F(EpochTest, next_owner_takes_the_next_number_and_is_told_whom_its_predecessor_holds_paused) {
  const std::vector<EpochWorker> held{{"http://a:1", "start-1"}, {"http://b:1", ""}};
  EXPECT_EQ(claim("one", held)->number, 1);
  const auto second = claim("two", {{"http://c:1", "x"}});
  ASSERT_TRUE(second) << second.error().text();
  EXPECT_EQ(second->number, 2);
  ASSERT_TRUE(second->predecessor);
  EXPECT_EQ(second->predecessor->number, 1);
  EXPECT_EQ(second->predecessor->owner, "one");
  EXPECT_EQ(second->predecessor->host, "one-host");
  EXPECT_EQ(second->predecessor->paused, held);
  EXPECT_EQ(highest().owner, "two");
  EXPECT_EQ(highest().paused.size(), 3u) << "who dies now must leave nobody's pause untold";
}

TEST_F(EpochTest, file_with_the_own_id_is_ones_own_at_any_number) {
  ASSERT_TRUE(claim("one", {{"http://a:1", "i"}}));
  ASSERT_TRUE(claim("two"));
  const auto again = claim("two");
  ASSERT_TRUE(again);
  EXPECT_EQ(again->number, 2);
  ASSERT_TRUE(again->predecessor) << "it may have died before it did anything about it";
  EXPECT_EQ(again->predecessor->owner, "one");
  EXPECT_EQ(claim("one")->number, 3);
}

TEST_F(EpochTest, list_is_written_again_and_a_higher_epoch_is_seen_after_that) {
  ASSERT_TRUE(claim("one"));
  const auto written = rewrite("one", 1, {{"http://a:1", "i"}});
  ASSERT_TRUE(written) << written.error().text();
  EXPECT_FALSE(written->superseded_by);
  EXPECT_EQ(highest().paused, (std::vector<EpochWorker>{{"http://a:1", "i"}}));
  ASSERT_TRUE(claim("two"));
  const auto late = rewrite("one", 1, {});
  ASSERT_TRUE(late);
  ASSERT_TRUE(late->superseded_by);
  EXPECT_EQ(late->superseded_by->number, 2);
  EXPECT_EQ(late->superseded_by->owner, "two");
}

// The taker links before the owner looks: the owner must not pause anyone on what it saw before it wrote.
TEST_F(EpochTest, epoch_that_is_taken_while_the_list_is_written_is_seen) {
  ASSERT_TRUE(claim("one"));
  RealFileSystem other;
  files.on_call = [&](const char* call, const std::string&) {
    if (std::string_view(call) == "rename") (void)EpochStore(other).claim(save_path, "actor", by("two"));
    return 0;
  };
  const auto written = rewrite("one", 1, {{"http://a:1", "i"}});
  ASSERT_TRUE(written);
  ASSERT_TRUE(written->superseded_by);
  EXPECT_EQ(written->superseded_by->owner, "two");
}

// The owner writes its list after the taker chose its number, before the taker's file is there.
TEST_F(EpochTest, list_that_is_written_while_the_next_epoch_is_taken_is_read) {
  ASSERT_TRUE(claim("one"));
  RealFileSystem other;
  files.on_call = [&](const char* call, const std::string&) {
    EpochRecord mine = by("one", {{"http://late:1", "i"}});
    mine.number = 1;
    if (std::string_view(call) != "link") return 0;
    const auto written = EpochStore(other).rewrite(save_path, "actor", mine);
    EXPECT_TRUE(written && !written->superseded_by);
    return 0;
  };
  const auto taken = claim("two");
  ASSERT_TRUE(taken);
  ASSERT_TRUE(taken->predecessor);
  EXPECT_EQ(taken->predecessor->paused, (std::vector<EpochWorker>{{"http://late:1", "i"}}));
  EXPECT_EQ(highest().paused, taken->predecessor->paused);
}

TEST_F(EpochTest, of_many_claimers_at_once_exactly_one_gets_each_number) {
  constexpr int kClaimers = 8;
  constexpr int kRounds = 12;
  RealFileSystem direct;
  std::mutex mutex;
  std::map<std::int64_t, std::set<std::string>> takers;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClaimers; ++i) {
    threads.emplace_back([&, i] {
      const EpochStore mine(direct);
      for (int round = 0; round < kRounds; ++round) {
        const std::string owner = "owner-" + std::to_string(i) + "-" + std::to_string(round);
        const auto taken = mine.claim(save_path, "actor", by(owner));
        const std::lock_guard lock(mutex);
        ASSERT_TRUE(taken) << taken.error().text();
        takers[taken->number].insert(owner);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(takers.size(), static_cast<std::size_t>(kClaimers * kRounds));
  for (const auto& [number, owners] : takers) EXPECT_EQ(owners.size(), 1u) << number;
  EXPECT_EQ(takers.rbegin()->first, kClaimers * kRounds);
}

TEST_F(EpochTest, older_files_of_ones_own_go_and_those_of_others_stay) {
  ASSERT_TRUE(claim("other"));
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(claim("mine"));
    ASSERT_TRUE(claim("other-" + std::to_string(i)));
  }
  ASSERT_TRUE(claim("mine"));
  EXPECT_EQ(names(),
            (std::set<std::string>{"epoch.1", "epoch.3", "epoch.5", "epoch.7", "epoch.8", "epoch.9", "epoch.10"}));
}

TEST_F(EpochTest, pairs_that_share_a_place_have_epochs_of_their_own_whatever_they_are_called) {
  const std::vector<std::string> pairs{"actor",
                                       "Actor",
                                       "actor/..",
                                       "..",
                                       ".",
                                       "%2e",
                                       "a%2fb",
                                       "a/b",
                                       "a b",
                                       "\xc3\xa9",
                                       "",
                                       std::string(256, 'x'),
                                       std::string(255, 'x') + "y"};
  std::set<std::string> folders;
  for (const std::string& pair : pairs) {
    const auto taken = epochs.claim(save_path, pair, by("one"));
    ASSERT_TRUE(taken) << pair << ": " << taken.error().text();
    EXPECT_EQ(taken->number, 1) << pair;
    const std::string folder = EpochStore::folder_of(save_path, pair);
    folders.insert(folder);
    EXPECT_TRUE(fs::exists(folder + "/epoch.1")) << folder;
    EXPECT_EQ(fs::path(folder).lexically_normal(), fs::path(folder)) << "it leads nowhere else";
  }
  EXPECT_EQ(folders.size(), pairs.size());
}

TEST_F(EpochTest, torn_or_foreign_file_is_somebody_elses_epoch_and_says_what_is_wrong_with_it) {
  ASSERT_TRUE(claim("one"));
  const auto is_named = [&](const std::string& what) {
    const EpochRecord found = highest();
    EXPECT_EQ(found.owner, "");
    EXPECT_NE(found.remark.find("epoch.7"), std::string::npos) << found.remark;
    EXPECT_NE(found.remark.find(what), std::string::npos) << found.remark;
    EXPECT_EQ(rewrite("one", 1)->superseded_by.value_or(EpochRecord{}).number, 7);
    fs::remove_all(folder() + "/epoch.7");
  };
  write_file(folder() + "/epoch.7", R"({"epoch":7,"owner":"on)");
  is_named("");
  write_file(folder() + "/epoch.7", "");
  is_named("");
  write_file(folder() + "/epoch.7", R"({"epoch":7,"paused":[]})");
  is_named("no owner");
  write_file(folder() + "/epoch.7", R"({"epoch":6,"owner":"one","paused":[]})");
  is_named("another epoch");
  write_file(folder() + "/epoch.7", R"({"epoch":7,"owner":"one"})");
  is_named("paused");
  fs::create_directory(folder() + "/epoch.7");
  is_named("not a regular file");
  fs::create_symlink("/etc/hostname", folder() + "/epoch.7");
  is_named("");
  EXPECT_EQ(::mkfifo((folder() + "/epoch.7").c_str(), 0644), 0);
  is_named("not a regular file");
  write_file(folder() + "/epoch.7", "x");
  EXPECT_EQ(claim("two")->number, 8) << "a number is used once";
}

TEST_F(EpochTest, other_names_in_the_folder_are_no_epochs) {
  ASSERT_TRUE(claim("one"));
  for (const char* name : {"epoch.", "epoch.0", "epoch.02", "epoch.-1", "epoch.9x", "epoch.9999999999999999999",
                           "epoch.1.bak", ".weighlock-00.tmp"})
    write_file(folder() + "/" + name, "x");
  EXPECT_EQ(highest().number, 1);
}

TEST_F(EpochTest, last_number_is_refused_naming_the_file) {
  ASSERT_TRUE(claim("one"));
  write_file(folder() + "/epoch.999999999999999999", "x");
  const auto refused = claim("two");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::conflict);
  EXPECT_NE(refused.error().text().find("epoch.999999999999999999"), std::string::npos);
}

TEST_F(EpochTest, folder_that_vanished_is_no_epoch_and_its_owner_writes_it_again) {
  ASSERT_TRUE(claim("one"));
  ASSERT_TRUE(claim("two"));
  fs::remove_all(save_path + "/.weighlock");
  EXPECT_EQ(highest().number, 0);
  ASSERT_TRUE(rewrite("two", 2, {{"http://a:1", ""}}));
  EXPECT_EQ(highest().number, 2);
  EXPECT_EQ(highest().paused.size(), 1u);
}

TEST_F(EpochTest, save_path_is_made_where_its_parent_is_and_what_is_not_here_is_blindness) {
  EXPECT_TRUE(epochs.claim(root.path("new"), "actor", by("one")));
  for (const std::string& where : {root.path("no/such"), std::string("/no-such-mount")}) {
    const auto blind = epochs.claim(where, "actor", by("one"));
    ASSERT_FALSE(blind);
    EXPECT_EQ(blind.error().code, ErrorCode::storage_not_visible) << blind.error().text();
    EXPECT_NE(blind.error().text().find(where), std::string::npos) << blind.error().text();
    EXPECT_EQ(epochs.highest(where, "actor").error().code, ErrorCode::storage_not_visible);
  }
}

TEST_F(EpochTest, place_that_may_not_be_written_is_blindness_and_a_refusal_is_not) {
  const std::map<int, ErrorCode> codes{
      {EROFS, ErrorCode::storage_not_visible}, {EACCES, ErrorCode::storage_not_visible},
      {EIO, ErrorCode::storage_failed},        {ENOSPC, ErrorCode::storage_full},
      {EDQUOT, ErrorCode::storage_full},       {ESTALE, ErrorCode::storage_failed}};
  ASSERT_TRUE(claim("one"));
  for (const auto& [failure, code] : codes) {
    for (const char* which : {"open_at", "write_at", "link"}) {
      files.on_call = [&, failure = failure](const char* call, const std::string& name) {
        const bool making = std::string_view(call) != "open_at" || name.starts_with(".weighlock-");
        return std::string_view(call) == which && making ? failure : 0;
      };
      const auto refused = claim("two");
      files.on_call = nullptr;
      ASSERT_FALSE(refused) << which << failure;
      EXPECT_EQ(refused.error().code, code) << which << ": " << refused.error().text();
      EXPECT_NE(refused.error().text().find(::strerrorname_np(failure)), std::string::npos) << refused.error().text();
      EXPECT_EQ(highest().owner, "one");
    }
  }
}

// Every call of a claim fails once, in every way that storage fails: either nothing was taken, or a whole file is there
// and the next claim of the same owner finds it.
TEST_F(EpochTest, claim_that_fails_anywhere_took_nothing_or_is_found_by_the_next_one) {
  ASSERT_TRUE(claim("one", {{"http://a:1", "i"}}));
  int failures = 0;
  for (const int failure : {ENOSPC, EIO, ESTALE, EROFS, EACCES, ENOENT}) {
    for (std::size_t call = 0;; ++call) {
      files.fail_at(call, failure);
      const auto taken = claim("two");
      const bool fired = files.fired();
      files.fail_at(1'000'000, 0);
      const EpochRecord there = highest();
      EXPECT_TRUE(there.owner == "one" || there.owner == "two") << there.remark;
      EXPECT_TRUE(!taken || there.owner == "two");
      failures += taken ? 0 : 1;
      const auto again = claim("two");
      ASSERT_TRUE(again) << again.error().text();
      EXPECT_EQ(again->number, 2);
      ASSERT_TRUE(again->predecessor);
      EXPECT_EQ(again->predecessor->paused.size(), 1u);
      fs::remove(folder() + "/epoch.2");
      for (const std::string& name : names()) {
        if (name.ends_with(".tmp")) fs::remove(folder() + "/" + name);
      }
      if (!fired) break;
      ASSERT_LT(call, 100u);
    }
  }
  EXPECT_GT(failures, 60);
}

TEST_F(EpochTest, rewrite_that_fails_anywhere_leaves_the_old_list_or_the_new) {
  ASSERT_TRUE(claim("one"));
  int failures = 0;
  for (const int failure : {ENOSPC, EIO, ESTALE, EROFS, EACCES}) {
    for (std::size_t call = 0;; ++call) {
      ASSERT_TRUE(rewrite("one", 1, {}));
      files.fail_at(call, failure);
      const auto written = rewrite("one", 1, {{"http://a:1", "i"}});
      const bool fired = files.fired();
      files.fail_at(1'000'000, 0);
      EXPECT_EQ(highest().owner, "one");
      EXPECT_TRUE(!written || highest().paused.size() == 1u);
      failures += written ? 0 : 1;
      if (!fired) break;
      ASSERT_LT(call, 100u);
    }
  }
  EXPECT_GT(failures, 60);
}

}  // namespace
}  // namespace weighlock
