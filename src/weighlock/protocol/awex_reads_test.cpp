// Pairs that transfer: how often a worker is asked around a collective. Each round lies in the time that a trainer
// waits.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

class AwexReadsTest : public Fixture {
 protected:
  AwexReadsTest() {
    by_transfer = true;
    believing_.evidence = Evidence::acknowledged;
    believing_.pause = PauseOwner::caller;
  }
  // The readings of one update.
  std::vector<Operation> reads_of(std::int64_t version, const Policy& policy) {
    reads.clear();
    EXPECT_EQ(update(request(version, policy)).state, UpdateState::succeeded);
    return std::exchange(reads, {});
  }
  Policy believing_;
};

TEST_F(AwexReadsTest, each_worker_is_read_once_before_a_collective_whose_group_stands) {
  connect(2);
  Policy policy = believing_;
  reads_of(1, policy);
  EXPECT_EQ(reads_of(2, policy).size(), 2u);
  EXPECT_EQ(builds.size(), 1u);
}

TEST_F(AwexReadsTest, each_worker_is_read_again_when_the_group_was_built_meanwhile) {
  connect(2);
  reads_of(1, believing_);
  connect(3);
  restart(1);
  advance(1s);
  EXPECT_GE(reads_of(2, believing_).size(), 6u);
  EXPECT_EQ(builds.size(), 3u);
}

TEST_F(AwexReadsTest, a_label_tells_the_process_when_it_was_read_since_the_last_load) {
  connect(2);
  reads_of(1, believing_);
  for (const Operation& read : reads_of(2, believing_)) EXPECT_FALSE(read.brief) << "right behind a load";
  advance(60s);  // the watch has looked at it
  for (const Operation& read : reads_of(3, believing_)) EXPECT_TRUE(read.brief);
}

TEST_F(AwexReadsTest, a_new_process_is_noticed_by_its_label_and_gets_a_new_group) {
  connect(2);
  reads_of(1, believing_);
  advance(60s);
  restart(1);
  const auto read = reads_of(2, believing_);
  EXPECT_TRUE(std::any_of(read.begin(), read.end(), [](const Operation& one) { return !one.brief; }));
  EXPECT_EQ(builds.size(), 2u);
  EXPECT_EQ(transfers.size(), 2u);
}

TEST_F(AwexReadsTest, an_engine_that_its_trainer_paused_is_not_asked_for_a_token_to_tell) {
  connect(2);
  reads_of(1, believing_);
  engine(0).paused = engine(1).paused = true;
  for (const Operation& read : reads_of(2, believing_)) EXPECT_FALSE(read.doubt_pause);
  Policy we_pause;
  const auto read = reads_of(3, we_pause);
  EXPECT_TRUE(std::any_of(read.begin(), read.end(), [](const Operation& one) { return one.doubt_pause; }))
      << "there it tells whose pause it is";
}

TEST_F(AwexReadsTest, a_trainer_that_paused_everyone_for_the_last_update_is_believed_when_it_does_so_again) {
  const auto doubts = [](const std::vector<Operation>& all) {
    return std::count_if(all.begin(), all.end(), [](const Operation& one) { return one.doubt_pause; });
  };
  connect(2);
  engine(0).paused = engine(1).paused = true;
  EXPECT_EQ(doubts(reads_of(1, {})), 2);
  EXPECT_EQ(doubts(reads_of(2, {})), 0);
  EXPECT_TRUE(engine(0).paused && engine(1).paused) << "it continues them itself";
  engine(1).paused = false;
  EXPECT_EQ(doubts(reads_of(3, {})), 2) << "the other one may be unwell";
  EXPECT_TRUE(engine(0).paused);
  EXPECT_FALSE(engine(1).paused);
  engine(1).paused = true;
  EXPECT_EQ(doubts(reads_of(4, {})), 2);
}

TEST_F(AwexReadsTest, the_flush_waits_for_no_record_of_its_own) {
  connect(1);
  const UpdateId id = request(1, believing_);
  ASSERT_EQ(update(id).state, UpdateState::succeeded);
  // Each group's intents: the flush's stands beside that of the label before it.
  std::size_t at = 0;
  bool beside = false;
  for (const std::size_t size : groups) {
    bool labels = false, flushes = false;
    for (std::size_t end = at + size; at < end; ++at) {
      if (records[at].kind != RecordKind::intent) continue;
      const std::string body = json::serialize(json::value(records[at].body));
      labels = labels || body.find("\"set_label\"") != std::string::npos;
      flushes = flushes || body.find("\"flush\"") != std::string::npos;
    }
    beside = beside || (labels && flushes);
  }
  EXPECT_TRUE(beside);
}

}  // namespace
}  // namespace weighlock::protocol
