// What a process that died between a record and its effect owed the storage.
#include <algorithm>
#include <memory>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

class SettleTest : public Fixture {
 protected:
  const Pair& pair() const { return state().pairs.at("actor"); }
  // Versions 1 to `last`, of which one is kept beside what workers are healed with.
  void commit_up_to(std::int64_t last) {
    connect(2);
    for (std::int64_t version = 1; version <= last; ++version) request_keeping_one(version);
  }
  UpdateId request_keeping_one(std::int64_t version) {
    ConnectPair event;
    event.new_lineage = false;
    event.spec = pair().spec;
    event.spec.policy.keep_versions = 1;
    if (pair().spec.policy.keep_versions != 1) post(event);
    return request(version, pair().spec.policy);
  }
  std::vector<std::string> discarded() const {
    std::vector<std::string> out;
    for (const Discard& discard : discards) out.push_back(discard.directory);
    return out;
  }
  std::vector<std::string> marked() const {
    std::vector<std::string> out;
    for (const MarkLatest& mark : marks) out.push_back(mark.directory);
    return out;
  }
  void die_before_the_removal_of_v1() {
    commit_up_to(2);
    die_at_record(RecordKind::discard, "", false);
    request_keeping_one(3);
    ASSERT_TRUE(dead());
    ASSERT_TRUE(discards.empty());
  }
};

using List = std::vector<std::string>;

TEST_F(SettleTest, removal_that_was_recorded_and_not_done_is_done_at_the_next_start_and_only_then) {
  die_before_the_removal_of_v1();
  start_again();
  ASSERT_EQ(discarded(), List{"/shared/v1.a1"});
  EXPECT_EQ(discards[0].save_path, "/shared");
  EXPECT_TRUE(pair().doomed.empty());
  flush();
  start_again();
  EXPECT_EQ(discards.size(), 1u);
}

TEST_F(SettleTest, removal_that_no_process_saw_the_end_of_is_asked_for_by_each) {
  die_before_the_removal_of_v1();
  discards_silent = true;
  start_again();
  start_again();
  EXPECT_EQ(discards.size(), 2u);
  discards_silent = false;
  start_again();
  flush();
  start_again();
  EXPECT_EQ(discards.size(), 3u);
}

TEST_F(SettleTest, removal_that_failed_is_tried_again_at_the_next_start) {
  discard_error = Error{ErrorCode::storage_failed, "read-only", nullptr};
  commit_up_to(3);
  EXPECT_EQ(discards.size(), 1u);
  discard_error.reset();
  start_again();
  EXPECT_EQ(discarded(), (List{"/shared/v1.a1", "/shared/v1.a1"}));
  EXPECT_TRUE(pair().doomed.empty());
}

TEST_F(SettleTest, directory_of_an_attempt_that_failed_goes_likewise) {
  connect(1);
  save_answers[trainer(1)] = SaveEnded{0, SaveOutcomeKind::failed, "disk quota"};
  die_at_record(RecordKind::discard, "", false);
  request(1);
  ASSERT_TRUE(dead());
  start_again();
  EXPECT_EQ(discarded(), List{"/shared/v1.a1"});
}

TEST_F(SettleTest, what_is_committed_is_not_removed_whatever_the_record_says) {
  commit_up_to(2);
  flush();
  records.push_back(Record{
      RecordKind::discard, "actor", "", "", {{"directory", pair().committed->directory}, {"save_path", "/shared"}}});
  start_again();
  EXPECT_TRUE(discards.empty());
}

TEST_F(SettleTest, latest_is_brought_up_to_a_commit_whose_process_died_before_it_wrote_it) {
  commit_up_to(1);
  die_at_record(RecordKind::commit, "", false);
  request(2);
  ASSERT_TRUE(dead());
  ASSERT_EQ(marked(), List{"/shared/v1.a1"});
  start_again();
  EXPECT_EQ(marked().back(), "/shared/v2.a2");
  EXPECT_EQ(marks.back().save_path, "/shared");
}

TEST_F(SettleTest, latest_is_written_at_each_start_since_no_record_says_that_it_was) {
  commit_up_to(2);
  flush();
  marks.clear();
  start_again();
  EXPECT_EQ(marked(), List{"/shared/v2.a2"});
}

TEST_F(SettleTest, latest_of_a_storage_that_this_host_does_not_see_is_left_alone) {
  sealed.blind = true;
  connect(1);
  die_at_record(RecordKind::commit, "", false);
  request(1);
  ASSERT_TRUE(dead());
  start_again();
  EXPECT_EQ(pair().committed->version, 1);
  EXPECT_TRUE(marks.empty());
}

TEST_F(SettleTest, storage_of_a_pair_that_another_owns_since_is_left_alone) {
  const auto storage = std::make_shared<FakeEpochs>();
  keep_epochs("us", storage);
  die_before_the_removal_of_v1();
  marks.clear();
  storage->files[2] = Epoch{2, "them", "", "", "", {}};
  start_again();
  EXPECT_TRUE(pair().ownership.superseded_by.has_value());
  EXPECT_TRUE(discards.empty());
  EXPECT_TRUE(marks.empty());
}

TEST_F(SettleTest, storage_waits_until_it_is_known_that_the_pair_is_still_ours) {
  const auto storage = std::make_shared<FakeEpochs>();
  keep_epochs("us", storage);
  die_before_the_removal_of_v1();
  marks.clear();
  storage->looks_silent = true;
  start_again();
  advance(20s);
  EXPECT_TRUE(discards.empty());
  EXPECT_TRUE(marks.empty());
  storage->looks_silent = false;
  start_again();
  EXPECT_EQ(discarded(), List{"/shared/v1.a1"});
  EXPECT_EQ(marked(), List{"/shared/v3.a3"});
}

}  // namespace
}  // namespace weighlock::protocol
