// Who is in a transfer group: trainers that pairs share, processes that are replaced, what a process before left.
#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/awex.hpp"
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

constexpr const char* kOther = "eval";

class AwexMembersTest : public Fixture {
 protected:
  AwexMembersTest() { by_transfer = true; }
  const Pair& pair(const std::string& name = "actor") const { return state().pairs.at(name); }
  // A second pair of the same trainers, with worker 8.
  void connect_other() {
    ConnectPair event;
    event.token = 2;
    event.spec.name = kOther;
    event.spec.awex = awex;
    event.spec.policy.pair_lease = Milliseconds(0);
    event.spec.workers = {WorkerSpec{url(8), std::nullopt}};
    event.spec.trainer_urls = {trainer(0), trainer(1)};
    engine(8);
    post(event);
  }
  UpdateId request_other(std::int64_t version) {
    RequestUpdate event;
    event.token = 200 + static_cast<ReplyToken>(version);
    event.pair = kOther;
    event.version = version;
    post(event);
    return replies.back().update;
  }
  bool was_dropped(const std::string& group) const {
    return std::any_of(drops.begin(), drops.end(), [&](const DropGroup& drop) { return drop.name == group; });
  }
};

// --- trainers that two pairs share

TEST_F(AwexMembersTest, a_group_ends_when_its_trainers_join_another_pairs) {
  connect(2);
  ASSERT_TRUE(pair().group);
  const std::string first = pair().group->name;
  connect_other();
  EXPECT_TRUE(pair(kOther).group);
  EXPECT_FALSE(pair().group);
  EXPECT_TRUE(was_dropped(first));
}

TEST_F(AwexMembersTest, updates_of_two_pairs_by_turns_each_build_a_group_and_succeed) {
  connect(2);
  connect_other();
  for (std::int64_t version = 1; version <= 3; ++version) {
    EXPECT_EQ(update(request(version)).state, UpdateState::succeeded) << version;
    EXPECT_EQ(transfers.back().name, pair().group->name);
    EXPECT_EQ(update(request_other(version)).state, UpdateState::succeeded) << version;
    EXPECT_EQ(transfers.back().name, pair(kOther).group->name);
  }
  EXPECT_EQ(transfers.size(), 6u);
  EXPECT_EQ(builds.size(), 8u);
}

TEST_F(AwexMembersTest, trainers_that_are_in_a_transfer_are_not_asked_to_join_another_group) {
  connect_other();
  connect(2);
  silence(0, OperationKind::load);
  const UpdateId running = request(1);
  ASSERT_EQ(update(running).state, UpdateState::loading);
  const std::size_t before = builds.size();
  const UpdateId refused = request_other(1);
  EXPECT_EQ(update(refused).state, UpdateState::rejected);
  EXPECT_EQ(update(refused).error->code, ErrorCode::conflict);
  EXPECT_NE(update(refused).error->text().find(running), std::string::npos) << update(refused).error->text();
  EXPECT_EQ(builds.size(), before);
  answer_silenced(0, Outcome{.kind = OutcomeKind::ok, .text = "", .reading = {}, .dialect = {}});
  EXPECT_TRUE(is_terminal(update(running).state));
  EXPECT_EQ(update(request_other(2)).state, UpdateState::succeeded);
}

TEST_F(AwexMembersTest, a_pair_whose_trainers_are_in_a_transfer_is_not_connected) {
  connect(2);
  silence(0, OperationKind::load);
  request(1);
  connect_other();
  ASSERT_TRUE(replies.back().error);
  EXPECT_EQ(replies.back().error->code, ErrorCode::conflict);
  EXPECT_FALSE(state().pairs.contains(kOther));
  EXPECT_TRUE(pair().group);
}

TEST_F(AwexMembersTest, trainers_that_are_being_brought_up_are_not_asked_to_join_another_group) {
  connect(2);
  request(1);
  builds_silent = true;
  connect_other();
  const UpdateId refused = request(2);
  EXPECT_EQ(update(refused).state, UpdateState::rejected);
  EXPECT_EQ(update(refused).error->code, ErrorCode::conflict);
  post(GroupBuilt{builds.back().ask, std::nullopt});
  builds_silent = false;
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
}

// --- over a restart of the gateway

TEST_F(AwexMembersTest, trainers_leave_the_group_of_the_process_before_when_they_are_to_join_another) {
  connect(2);
  request(1);
  const std::string before = pair().group->name;
  start_again();
  EXPECT_TRUE(drops.empty()) << "nobody is told anything before it matters";
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].name, before);
  EXPECT_EQ(drops[0].trainers, (std::vector<std::string>{trainer(0), trainer(1)}));
  flush();
  EXPECT_FALSE(replayed().left_groups.contains(before));
}

TEST_F(AwexMembersTest, a_disconnect_after_a_restart_tells_trainers_to_leave) {
  connect(2);
  request(1);
  const std::string before = pair().group->name;
  start_again();
  post(RemovePair{7, "actor"});
  EXPECT_TRUE(state().pairs.empty());
  EXPECT_TRUE(was_dropped(before));
  EXPECT_TRUE(state().left_groups.empty());
}

TEST_F(AwexMembersTest, a_group_whose_bring_up_the_process_before_did_not_see_end_is_left_too) {
  builds_silent = true;
  connect(2);
  const std::string unseen = builds.back().name;
  start_again();
  builds_silent = false;
  ASSERT_TRUE(state().pairs.empty());
  connect(2);
  EXPECT_TRUE(was_dropped(unseen));
}

TEST_F(AwexMembersTest, trainers_of_a_group_that_was_dropped_are_not_told_again_after_a_restart) {
  connect(2);
  request(1);
  post(RemovePair{7, "actor"});
  const std::size_t told = drops.size();
  start_again();
  connect(2);
  EXPECT_EQ(drops.size(), told);
}

// --- processes of workers

TEST_F(AwexMembersTest, a_process_that_starts_between_connect_and_the_first_update_is_in_no_group) {
  connect(2);
  advance(1s);
  ASSERT_FALSE(worker(1).incarnation.empty()) << "it is read when the group stands";
  restart(1);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 2u);
  EXPECT_EQ(transfers.size(), 1u);
}

TEST_F(AwexMembersTest, a_worker_that_is_being_brought_up_is_not_taken_for_silent) {
  connect(2);
  request(1);
  restart(1);
  builds_silent = true;
  const UpdateId id = request(2);
  ASSERT_EQ(update(id).state, UpdateState::preparing);
  Outcome busy;
  busy.kind = OutcomeKind::unknown;
  busy.text = "timed out";
  script(0, OperationKind::read_state, busy, -1);
  advance(280s);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(0).watch.failures, 0);
}

// --- a pair that is put to files (PUT /v1/pairs/NAME)

TEST_F(AwexMembersTest, a_pair_that_is_put_to_files_in_an_update_gives_its_group_up_behind_it) {
  connect(2);
  silence(0, OperationKind::set_label);
  const UpdateId id = request(1);
  ASSERT_FALSE(is_terminal(update(id).state));
  ConnectPair event;
  event.token = 9;
  event.new_lineage = false;
  event.spec = pair().spec;
  event.spec.awex.reset();
  const std::size_t told = replies.size();
  post(event);
  EXPECT_EQ(replies.size(), told) << "it waits for the update";
  EXPECT_TRUE(pair().spec.awex);
  answer_silenced(0, Outcome{.kind = OutcomeKind::ok, .text = "", .reading = {}, .dialect = {}});
  EXPECT_EQ(transfers.size(), 1u);
  EXPECT_TRUE(is_terminal(update(id).state));
  EXPECT_FALSE(pair().spec.awex);
  EXPECT_FALSE(pair().group);
  EXPECT_EQ(drops.size(), 1u);
  EXPECT_EQ(replies.back().token, 9u);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(transfers.size(), 1u) << "by files now";
}

// --- the same version again

TEST_F(AwexMembersTest, a_version_whose_collective_failed_may_be_asked_for_again) {
  connect(2);
  request(1);
  Outcome refused;
  refused.kind = OutcomeKind::touched;
  refused.text = "answered 500";
  script(0, OperationKind::load, refused);
  EXPECT_EQ(update(request(2)).state, UpdateState::failed);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
    EXPECT_EQ(engine(i).label, "2") << i;
  }
}

// Some may serve it under its label, so another one of that number couldn't be told from it.
TEST_F(AwexMembersTest, a_version_that_came_whole_and_was_labelled_is_not_asked_for_again) {
  connect(2);
  request(1);
  Outcome unwell;
  unwell.kind = OutcomeKind::mismatch;
  unwell.text = "not what it should be";
  for (int i = 0; i < 2; ++i) script(i, OperationKind::verify, unwell, -1);
  EXPECT_EQ(update(request(2)).state, UpdateState::failed);
  const UpdateId again = request(2);
  EXPECT_EQ(update(again).state, UpdateState::rejected);
  EXPECT_EQ(update(again).error->code, ErrorCode::version_reused);
}

}  // namespace
}  // namespace weighlock::protocol
