// What a dialect can't give, said once; and a connect that is refused for it.
#include "weighlock/protocol/policy_fit.hpp"

#include <gtest/gtest.h>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using K = OperationKind;

DialectTraits sglang() {
  DialectTraits traits;
  traits.pause_modes = {PauseMode::abort, PauseMode::keep, PauseMode::retract};
  traits.evidence_best = Evidence::spot;
  return traits;
}

TEST(PolicyFit, policy_that_asks_for_nothing_fits_every_dialect) {
  EXPECT_FALSE(why_unfit(Policy(), sglang(), "http://s:1", Files::seen));
  EXPECT_FALSE(why_unfit(Policy(), sglang(), "http://s:1", Files::unseen));
}

TEST(PolicyFit, evidence_above_the_dialects_best_is_told_with_worker_dialect_and_remedy) {
  Policy policy;
  policy.evidence = Evidence::checksum;
  EXPECT_EQ(why_unfit(policy, sglang(), "http://s:1", Files::seen),
            "worker http://s:1: evidence 'checksum' can't be had of sglang, the best is 'spot': ask for that or less "
            "(settings.evidence), or remove the worker");
  EXPECT_EQ(why_unprovable(policy, sglang(), "http://s:1", Files::seen),
            why_unfit(policy, sglang(), "http://s:1", Files::seen));
  policy.evidence = Evidence::spot;
  EXPECT_FALSE(why_unfit(policy, sglang(), "http://s:1", Files::seen));
  policy.evidence = Evidence::probe;  // after the commit, of every dialect
  EXPECT_FALSE(why_unfit(policy, sglang(), "http://s:1", Files::seen));
}

TEST(PolicyFit, where_no_files_can_be_compared_a_label_is_the_best) {
  Policy policy;
  policy.evidence = Evidence::spot;
  EXPECT_EQ(
      why_unfit(policy, sglang(), "http://s:1", Files::unseen),
      "worker http://s:1: evidence 'spot' can't be had of sglang where no files can be compared with it, the best "
      "is 'label': ask for that or less (settings.evidence), or remove the worker");
  policy.evidence = Evidence::label;
  EXPECT_FALSE(why_unfit(policy, sglang(), "http://s:1", Files::unseen));
}

TEST(PolicyFit, pause_mode_that_the_dialect_lacks_is_told_with_those_that_it_has) {
  Policy policy;
  policy.pause_mode = PauseMode::wait;
  EXPECT_EQ(why_unfit(policy, sglang(), "http://s:1", Files::seen),
            "worker http://s:1: sglang has no pause mode 'wait': set settings.pause_mode to 'abort', 'keep' or "
            "'retract', or remove the worker");
  EXPECT_FALSE(why_unprovable(policy, sglang(), "http://s:1", Files::seen));
  policy.pause = PauseOwner::caller;  // then nobody here asks for it
  EXPECT_FALSE(why_unfit(policy, sglang(), "http://s:1", Files::seen));
}

class RefusedConnectTest : public Fixture {
 protected:
  ConnectPair same_pair(bool new_lineage) const {
    ConnectPair event;
    event.token = 7;
    event.spec = state().pairs.at("actor").spec;
    event.new_lineage = new_lineage;
    return event;
  }
  void expect_refused(const std::string& worker, const std::string& remedy) {
    flush();
    ASSERT_FALSE(replies.empty());
    ASSERT_TRUE(replies.back().error);
    EXPECT_EQ(replies.back().error->code, ErrorCode::not_supported);
    const std::string text = replies.back().error->text();
    EXPECT_NE(text.find(worker), std::string::npos) << text;
    EXPECT_NE(text.find(remedy), std::string::npos) << text;
  }
};

TEST_F(RefusedConnectTest, pair_that_is_connected_again_with_evidence_that_a_worker_can_not_give_stays_as_it_was) {
  engine(1).dialect = DialectKind::vllm;
  connect(2);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  flush();
  const std::size_t told = records.size();
  for (const bool new_lineage : {true, false}) {
    ConnectPair event = same_pair(new_lineage);
    event.spec.policy.evidence = Evidence::checksum;
    post(event);
    expect_refused(url(0), "settings.evidence");
    EXPECT_EQ(records.size(), told);
    EXPECT_FALSE(state().pairs.at("actor").spec.policy.evidence);
    EXPECT_EQ(state().pairs.at("actor").lineage, 1);
  }
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
}

TEST_F(RefusedConnectTest, dialect_that_the_client_names_is_known_at_the_first_connect) {
  ConnectPair event;
  event.token = 7;
  event.spec.name = "actor";
  event.spec.save_path = "/shared";
  event.spec.workers = {{url(0), DialectKind::vllm}, {url(1), DialectKind::sglang}};
  event.spec.policy.pause_mode = PauseMode::wait;
  post(event);
  expect_refused(url(1), "settings.pause_mode");
  EXPECT_TRUE(state().pairs.empty());
  EXPECT_TRUE(state().workers.empty());
  EXPECT_TRUE(records.empty());
}

TEST_F(RefusedConnectTest, worker_of_a_lora_pair_is_known_to_the_pair_that_takes_its_model) {
  ConnectPair adapters;
  adapters.spec.name = "adapters";
  adapters.spec.save_path = "/shared";
  adapters.spec.workers = {{url(0), std::nullopt}};
  adapters.spec.trainer_urls = {trainer(0)};
  adapters.spec.lora = LoraSpec{"policy", 1};
  post(adapters);
  RequestUpdate wanted;
  wanted.pair = "adapters";
  wanted.version = 1;
  wanted.policy.quorum.kind = Quorum::Kind::all;
  post(wanted);
  ASSERT_TRUE(worker(0).dialect);
  ConnectPair event;
  event.token = 7;
  event.spec.name = "actor";
  event.spec.save_path = "/shared";
  event.spec.workers = {{url(0), std::nullopt}};
  event.spec.policy.evidence = Evidence::checksum;
  post(event);
  expect_refused(url(0), "settings.evidence");
  EXPECT_FALSE(state().pairs.contains("actor"));
  EXPECT_TRUE(worker(0).pair.empty());
}

TEST_F(RefusedConnectTest, worker_whose_dialect_nobody_knows_yet_is_told_by_the_first_update) {
  ConnectPair event;
  event.token = 7;
  event.spec.name = "actor";
  event.spec.save_path = "/shared";
  event.spec.workers = {{url(0), std::nullopt}};
  event.spec.trainer_urls = {trainer(0)};
  event.spec.policy.evidence = Evidence::checksum;
  post(event);
  ASSERT_FALSE(replies.back().error);
  const UpdateId id = request(1, event.spec.policy);
  ASSERT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(update(id).error->text(),
            "pair 'actor': v1: worker " + url(0) +
                ": evidence 'checksum' can't be had of sglang, the best is 'spot': ask for that or less "
                "(settings.evidence), or remove the worker");
  EXPECT_EQ(count(0, K::pause), 0);
}

TEST_F(RefusedConnectTest, worker_that_is_added_to_a_pair_whose_policy_it_can_not_satisfy_is_refused) {
  connect(1);
  ConnectPair waits = same_pair(false);
  engine(0).dialect = DialectKind::vllm;
  waits.spec.policy.pause_mode = PauseMode::wait;
  post(waits);
  ChangeWorker add;
  add.token = 8;
  add.pair = "actor";
  add.worker = {url(1), DialectKind::sglang};
  post(add);
  expect_refused(url(1), "settings.pause_mode");
  EXPECT_FALSE(state().workers.contains(url(1)));
}

TEST_F(RefusedConnectTest, transfer_group_is_not_built_for_a_pair_that_asks_for_files_to_be_compared) {
  by_transfer = true;
  connect(2);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  const std::size_t before = builds.size();
  ConnectPair event = same_pair(true);
  event.spec.policy.evidence = Evidence::spot;
  post(event);
  expect_refused(url(0), "where no files can be compared");
  EXPECT_EQ(builds.size(), before);
  EXPECT_TRUE(drops.empty());
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
}

// Whoever is asked meanwhile: another pair's update found out what the workers are.
TEST_F(RefusedConnectTest, dialect_that_is_found_while_a_group_is_built_counts_too) {
  by_transfer = true;
  builds_silent = true;
  connect(1);
  ASSERT_EQ(builds.size(), 1u);
  post(GroupBuilt{builds[0].ask, std::nullopt, false});
  ConnectPair event = same_pair(true);
  event.spec.policy.evidence = Evidence::checksum;
  post(event);  // nobody knows its dialect
  ASSERT_EQ(builds.size(), 2u);
  ConnectPair named;
  named.spec.name = "adapters";
  named.spec.save_path = "/shared";
  named.spec.workers = {{url(0), DialectKind::sglang}};
  named.spec.trainer_urls = {trainer(1)};
  named.spec.lora = LoraSpec{"policy", 1};
  post(named);
  post(GroupBuilt{builds[1].ask, std::nullopt, false});
  expect_refused(url(0), "settings.evidence");
  EXPECT_EQ(drops.front().name, builds[1].name);
  EXPECT_FALSE(state().pairs.at("actor").spec.policy.evidence);
}

}  // namespace
}  // namespace weighlock::protocol
