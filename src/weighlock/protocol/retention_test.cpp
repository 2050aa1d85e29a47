#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

Policy keeping(int versions) {
  Policy policy;
  policy.keep_versions = versions;
  return policy;
}

class Keeping : public Fixture {
 protected:
  // A pair whose policy keeps so many versions.
  void connect_keeping(int workers, int versions) {
    connect(workers);
    ConnectPair event;
    event.new_lineage = false;
    event.spec = state().pairs.at("actor").spec;
    event.spec.policy = keeping(versions);
    post(event);
  }
  std::string commit(std::int64_t version) {
    const UpdateId id = request(version, state().pairs.at("actor").spec.policy);
    EXPECT_TRUE(update(id).committed == true) << version;
    return update(id).version.directory;
  }
  bool is_discarded(const std::string& directory) const {
    return std::any_of(discards.begin(), discards.end(), [&](const Discard& d) { return d.directory == directory; });
  }
};

TEST_F(Keeping, superseded_versions_go_and_the_newest_stay) {
  connect_keeping(2, 2);
  std::vector<std::string> directories;
  for (std::int64_t version = 1; version <= 5; ++version) directories.push_back(commit(version));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(is_discarded(directories[static_cast<std::size_t>(i)])) << i;
  for (int i = 3; i < 5; ++i) EXPECT_FALSE(is_discarded(directories[static_cast<std::size_t>(i)])) << i;
  EXPECT_EQ(discards.size(), 3U) << "each once";
}

TEST_F(Keeping, what_workers_are_healed_with_stays_even_if_one_is_kept) {
  connect_keeping(2, 1);
  const std::string first = commit(1);
  const std::string second = commit(2);
  EXPECT_FALSE(is_discarded(first)) << "it is taken again if the bytes of v2 turn out bad";
  commit(3);
  EXPECT_TRUE(is_discarded(first));
  EXPECT_FALSE(is_discarded(second));
}

TEST_F(Keeping, a_version_that_a_worker_holds_stays) {
  connect_keeping(3, 1);
  const std::string first = commit(1);
  script(2, OperationKind::read_state, failed(OutcomeKind::not_sent, "no route"), -1);
  commit(2);
  commit(3);
  commit(4);
  ASSERT_TRUE(worker(2).version && worker(2).version->version == 1);
  EXPECT_FALSE(is_discarded(first));
}

TEST_F(Keeping, a_load_that_may_still_run_keeps_everything) {
  connect_keeping(3, 1);
  const std::string first = commit(1);
  commit(2);
  silence(2, OperationKind::load);
  request(3, state().pairs.at("actor").spec.policy);
  for (int i = 0; i < 400 && !worker(2).earlier.size(); ++i) advance(Milliseconds(1'000));
  ASSERT_FALSE(worker(2).earlier.empty());
  EXPECT_FALSE(is_discarded(first));
}

TEST_F(Keeping, a_version_that_was_rolled_back_stays_until_the_next_commit) {
  connect_keeping(2, 3);
  commit(1);
  for (int i = 0; i < 2; ++i) script(i, OperationKind::load, failed(OutcomeKind::untouched, "refused"), 1);
  const UpdateId id = request(2, state().pairs.at("actor").spec.policy);
  ASSERT_EQ(update(id).state, UpdateState::rolled_back);
  const std::string refused = update(id).version.directory;
  EXPECT_FALSE(is_discarded(refused));
  commit(3);
  EXPECT_TRUE(is_discarded(refused));
}

TEST_F(Keeping, an_operator_who_collects_gets_rid_of_versions_that_were_rolled_back) {
  connect_keeping(2, 3);
  const std::string served = commit(1);
  for (int i = 0; i < 2; ++i) script(i, OperationKind::load, failed(OutcomeKind::untouched, "refused"), 1);
  const UpdateId id = request(2, state().pairs.at("actor").spec.policy);
  const std::string refused = update(id).version.directory;
  const auto collect = [&](bool dry_run) {
    CollectVersions event;
    event.token = 77;
    event.pair = "actor";
    event.dry_run = dry_run;
    post(event);
    return replies.back().collected;
  };
  EXPECT_EQ(collect(true), std::vector<std::string>{refused});
  EXPECT_FALSE(is_discarded(refused));
  EXPECT_EQ(collect(false), std::vector<std::string>{refused});
  EXPECT_TRUE(is_discarded(refused));
  EXPECT_FALSE(is_discarded(served));
  EXPECT_TRUE(collect(false).empty());
  flush();
  EXPECT_EQ(replayed().pairs.at("actor").stored.size(), 1U);
}

TEST_F(Keeping, the_same_number_or_key_with_another_directory_is_another_request_and_refused) {
  connect_keeping(2, 1);
  const auto hand_over = [&](const std::string& path, const std::string& key) {
    RequestUpdate event;
    event.token = 7;
    event.pair = "actor";
    event.version = 2;
    event.path = path;
    event.key = key;
    event.policy = keeping(1);
    const std::size_t before = replies.size();
    post(event);
    return replies.at(before).error ? replies.at(before).error->message : "";
  };
  silence(0, OperationKind::load);
  EXPECT_EQ(hand_over("/handed/a", "k"), "");
  EXPECT_EQ(hand_over("/handed/a", "k"), "");
  EXPECT_EQ(hand_over("/handed/a", ""), "") << "what runs is joined";
  EXPECT_EQ(hand_over("/handed/b", "k"),
            "pair 'actor': idempotency key 'k' was used for v2 from '/handed/a', not v2 from '/handed/b'");
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(hand_over("/handed/b", "other"),
              "pair 'actor': v2 from '/handed/a' is on its way, not v2 from '/handed/b'; cancel it, or take another "
              "number");
  EXPECT_EQ(state().pairs.at("actor").keys.size(), 1U);
}

TEST_F(Keeping, a_handed_directory_is_never_deleted) {
  connect_keeping(2, 1);
  for (std::int64_t version = 1; version <= 4; ++version) {
    RequestUpdate event;
    event.pair = "actor";
    event.version = version;
    event.path = "/handed/v" + std::to_string(version);
    event.policy = keeping(1);
    post(event);
  }
  EXPECT_EQ(state().pairs.at("actor").committed->version, 4);
  EXPECT_TRUE(discards.empty());
}

}  // namespace
}  // namespace weighlock::protocol
