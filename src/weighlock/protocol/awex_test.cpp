// Pairs that transfer: the group's life, where it meets, and what a collective that fails leaves.
// long because one fixture plays it all
#include "weighlock/protocol/awex.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;

Outcome refused(OutcomeKind kind = OutcomeKind::touched) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.text = "answered 500 \"no\"";
  return outcome;
}

class AwexTest : public Fixture {
 protected:
  AwexTest() { by_transfer = true; }
  int loads(int worker) { return count(worker, OperationKind::load); }
  const Pair& pair() const { return state().pairs.at("actor"); }
  void expect_fenced(int worker_number) {
    EXPECT_EQ(worker(worker_number).state, WorkerState::quarantined) << worker_number;
    EXPECT_TRUE(worker(worker_number).cause) << worker_number;
    EXPECT_FALSE(worker(worker_number).version) << worker_number;
    EXPECT_TRUE(engine(worker_number).paused) << worker_number;
  }
};

TEST_F(AwexTest, a_pair_is_there_when_its_group_stands_and_not_before) {
  builds_silent = true;
  connect(2);
  EXPECT_TRUE(replies.empty());
  EXPECT_TRUE(state().pairs.empty());
  ASSERT_EQ(builds.size(), 1u);
  EXPECT_EQ(builds[0].trainers, (std::vector<std::string>{trainer(0), trainer(1)}));
  EXPECT_EQ(builds[0].workers, (std::vector<std::string>{url(0), url(1)}));
  post(GroupBuilt{builds[0].ask, std::nullopt});
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_FALSE(replies[0].error);
  ASSERT_TRUE(pair().group);
  EXPECT_EQ(pair().group->name, builds[0].name);
}

TEST_F(AwexTest, a_bring_up_that_fails_leaves_no_pair) {
  build_error = Error{ErrorCode::worker_failed, "worker http://worker1:30000: no", nullptr};
  connect(2);
  ASSERT_EQ(replies.size(), 1u);
  ASSERT_TRUE(replies[0].error);
  EXPECT_NE(replies[0].error->text().find("worker1"), std::string::npos);
  EXPECT_TRUE(state().pairs.empty());
  EXPECT_TRUE(state().workers.empty());
  EXPECT_TRUE(state().group_asks.empty());
}

TEST_F(AwexTest, a_second_connect_waits_for_the_first_one_by_being_refused) {
  builds_silent = true;
  connect(2);
  connect(2);
  ASSERT_EQ(replies.size(), 1u);
  ASSERT_TRUE(replies[0].error);
  EXPECT_EQ(replies[0].error->code, ErrorCode::conflict);
  EXPECT_EQ(builds.size(), 1u);
}

TEST_F(AwexTest, an_update_saves_nothing_and_every_worker_serves_the_new_version) {
  connect(3);
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  EXPECT_TRUE(saves.empty());
  ASSERT_EQ(transfers.size(), 1u);
  EXPECT_EQ(transfers[0].version, 1);
  EXPECT_EQ(transfers[0].name, builds[0].name);
  EXPECT_EQ(transfers[0].trainers.size(), 2u);
  EXPECT_EQ(transfers[0].workers.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(engine(i).label, "1");
    EXPECT_FALSE(engine(i).paused);
    EXPECT_EQ(count(i, OperationKind::flush), 1);
  }
  EXPECT_FALSE(pair().last_good);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 1u);
}

TEST_F(AwexTest, everyone_is_paused_and_labelled_before_the_collective_begins) {
  connect(2);
  silence(1, OperationKind::set_label);
  request(1);
  EXPECT_TRUE(transfers.empty());
  EXPECT_EQ(loads(0), 0);
  Outcome done;
  done.kind = OutcomeKind::ok;
  answer_silenced(1, done);
  EXPECT_EQ(transfers.size(), 1u);
}

TEST_F(AwexTest, its_intents_are_durable_before_it_begins) {
  connect(2);
  die_at_record(RecordKind::group, "", false);
  request(1);
  EXPECT_TRUE(transfers.empty());
}

TEST_F(AwexTest, label_and_flush_wait_for_no_disk_behind_the_collective) {
  connect(2);
  silence(0, OperationKind::load);
  request(1);
  const std::size_t before = groups.size();
  silence(0, OperationKind::flush);
  answer_silenced(0, Outcome{.kind = OutcomeKind::ok, .text = "", .reading = {}, .dialect = {}});
  EXPECT_EQ(count(0, OperationKind::flush), 1);
  EXPECT_EQ(count(1, OperationKind::flush), 1);
  EXPECT_EQ(groups.size(), before);
}

TEST_F(AwexTest, what_was_planned_behind_a_collective_that_failed_is_not_sent) {
  connect(2);
  script(1, OperationKind::load, refused());
  request(1);
  for (int i = 0; i < 2; ++i) {
    expect_fenced(i);
    EXPECT_EQ(count(i, OperationKind::flush), 0) << i;
    EXPECT_NE(engine(i).label, "1") << i;
    for (const auto& [id, update] : state().updates) {
      const auto target = update.targets.find(url(i));
      if (target != update.targets.end()) {
        EXPECT_TRUE(target->second.intended.empty()) << i;
      }
    }
  }
}

TEST_F(AwexTest, after_a_death_behind_a_collective_that_failed_all_are_brought_back) {
  connect(2);
  script(1, OperationKind::load, refused());
  request(1);
  start_again();
  expect_fenced(0);
  expect_fenced(1);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
}

// The labels behind a collective are on record with it; what was read after the death shows that none was written.
TEST_F(AwexTest, version_whose_transfer_was_cut_off_by_a_death_may_be_asked_for_again) {
  connect(2);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  die_at_record(RecordKind::group, "", true);
  request(2);
  ASSERT_TRUE(dead());
  start_again();
  expect_fenced(0);
  expect_fenced(1);
  const UpdateId again = request(2);
  EXPECT_EQ(update(again).state, UpdateState::succeeded) << update(again).error->text();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(worker(i).state, WorkerState::ready) << i;
}

TEST_F(AwexTest, version_that_a_worker_was_labelled_with_before_a_death_is_not_taken_again) {
  connect(2);
  ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
  die_at_record(RecordKind::group, "", true);
  request(2);
  ASSERT_TRUE(dead());
  engine(1).label = "2";  // its step behind the collective was on its way
  start_again();
  const UpdateId again = request(2);
  EXPECT_EQ(update(again).state, UpdateState::rejected);
  EXPECT_NE(update(again).error->text().find("publish a higher version"), std::string::npos);
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
}

TEST_F(AwexTest, one_worker_that_fails_tears_all_and_the_group_is_dead) {
  connect(3);
  script(1, OperationKind::load, refused());
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_NE(update(id).error->text().find(url(1)), std::string::npos);
  for (int i = 0; i < 3; ++i) {
    expect_fenced(i);
    EXPECT_EQ(loads(i), 1);
  }
  EXPECT_FALSE(pair().group);
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].trainers.size(), 2u);
}

TEST_F(AwexTest, a_trainer_that_fails_tears_all) {
  connect(2);
  save_answers[trainer(1)] = SaveEnded{0, SaveOutcomeKind::failed, "answered 500"};
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_NE(update(id).error->text().find(trainer(1)), std::string::npos);
  expect_fenced(0);
  expect_fenced(1);
}

TEST_F(AwexTest, who_failed_by_itself_is_named_before_those_whose_words_tell_of_others) {
  connect(2);
  save_answers[trainer(0)] = SaveEnded{0, SaveOutcomeKind::failed, "timed out", false, true};
  save_answers[trainer(1)] = SaveEnded{0, SaveOutcomeKind::failed, "out of memory"};
  Outcome of_a_peer = refused();
  of_a_peer.blames_a_peer = true;
  script(0, OperationKind::load, of_a_peer);
  const std::string text = update(request(1)).error->text();
  EXPECT_LT(text.find(trainer(1)), text.find(trainer(0))) << text;
  EXPECT_LT(text.find(trainer(1)), text.find(url(0))) << text;
}

TEST_F(AwexTest, the_next_update_builds_a_group_of_another_name_and_brings_all_back) {
  connect(2);
  script(0, OperationKind::load, refused());
  request(1);
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::succeeded);
  ASSERT_EQ(builds.size(), 2u);
  EXPECT_NE(builds[0].name, builds[1].name);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
}

TEST_F(AwexTest, members_that_stay_silent_after_a_failure_are_waited_for_only_a_moment) {
  connect(2);
  script(0, OperationKind::load, refused());
  silence(1, OperationKind::load);
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::loading);
  advance(6s);
  EXPECT_NE(update(id).state, UpdateState::loading);
  EXPECT_NE(update(id).error->text().find(url(1) + ": no answer yet"), std::string::npos);
  advance(700s);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_EQ(worker(1).state, WorkerState::quarantined);
}

TEST_F(AwexTest, a_member_that_never_answers_ends_it_at_the_deadline) {
  connect(2);
  silent_trainers = {trainer(0)};
  const UpdateId id = request(1);
  advance(299s);
  EXPECT_EQ(update(id).state, UpdateState::loading);
  advance(2s);
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_NE(update(id).error->text().find(trainer(0) + ": no answer yet"), std::string::npos);
  expect_fenced(0);
  expect_fenced(1);
}

TEST_F(AwexTest, a_late_answer_of_a_trainer_changes_nothing) {
  connect(2);
  silent_trainers = {trainer(0)};
  const UpdateId id = request(1);
  advance(301s);
  post(SaveEnded{transfers[0].trainers[0].call, SaveOutcomeKind::ok, ""});
  EXPECT_EQ(update(id).state, UpdateState::failed);
  EXPECT_TRUE(state().transfers.empty());
}

TEST_F(AwexTest, a_worker_that_could_not_be_labelled_ends_it_before_anything_is_sent) {
  connect(2);
  script(1, OperationKind::set_label, refused(OutcomeKind::untouched));
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_TRUE(transfers.empty());
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(engine(0).label, "default");
  EXPECT_FALSE(engine(0).paused);
}

TEST_F(AwexTest, a_worker_that_is_away_is_left_out_of_the_next_group) {
  connect(3);
  request(1);
  script(2, OperationKind::read_state, refused(OutcomeKind::not_sent), -1);
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::degraded);
  ASSERT_EQ(builds.size(), 2u);
  EXPECT_EQ(builds[1].workers, (std::vector<std::string>{url(0), url(1)}));
}

TEST_F(AwexTest, a_new_process_at_the_same_place_is_in_no_group) {
  connect(2);
  request(1);
  restart(1);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 2u);
}

TEST_F(AwexTest, a_group_that_can_not_be_built_ends_the_update_before_anyone_is_paused) {
  connect(2);
  request(1);
  restart(1);
  build_error = Error{ErrorCode::worker_failed, "worker http://worker1:30000: no", nullptr};
  const UpdateId id = request(2);
  EXPECT_EQ(update(id).state, UpdateState::aborted);
  EXPECT_EQ(count(0, OperationKind::pause), 1);
  EXPECT_EQ(transfers.size(), 1u);
}

TEST_F(AwexTest, a_version_is_transferred_once) {
  connect(2);
  request(1);
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::rejected);
  EXPECT_EQ(transfers.size(), 1u);
}

TEST_F(AwexTest, a_version_on_storage_heals_what_a_transfer_tore) {
  by_transfer = false;
  connect(2);
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  by_transfer = true;
  connect(2);
  ASSERT_TRUE(pair().last_good);
  script(0, OperationKind::load, refused());
  const UpdateId id = request(1);
  EXPECT_EQ(update(id).state, UpdateState::rolled_back);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  EXPECT_EQ(worker(1).state, WorkerState::ready);
  EXPECT_EQ(engine(1).loaded, pair().last_good->directory);
}

TEST_F(AwexTest, a_disconnect_takes_the_group_apart) {
  connect(2);
  request(1);
  post(RemovePair{7, "actor"});
  ASSERT_EQ(drops.size(), 1u);
  EXPECT_EQ(drops[0].name, builds[0].name);
  EXPECT_TRUE(state().pairs.empty());
}

TEST_F(AwexTest, a_reconnect_changes_nothing_until_its_group_stands) {
  connect(2);
  request(1);
  builds_silent = true;
  connect(3);
  EXPECT_EQ(pair().spec.workers.size(), 2u);
  RequestUpdate event;
  event.token = 9;
  event.pair = "actor";
  event.version = 2;
  post(event);
  ASSERT_TRUE(replies.back().error);
  EXPECT_EQ(replies.back().error->code, ErrorCode::conflict);
  post(GroupBuilt{builds.back().ask, std::nullopt});
  EXPECT_EQ(pair().spec.workers.size(), 3u);
  builds_silent = false;
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 2u);
}

TEST_F(AwexTest, a_reconnect_that_fails_leaves_the_pair_as_it_was_and_the_next_update_builds) {
  connect(2);
  request(1);
  build_error = Error{ErrorCode::worker_failed, "no", nullptr};
  connect(3);
  EXPECT_TRUE(replies.back().error);
  EXPECT_EQ(pair().spec.workers.size(), 2u);
  build_error.reset();
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
}

TEST_F(AwexTest, a_disconnect_while_it_is_connected_again_takes_that_group_apart) {
  connect(2);
  builds_silent = true;
  connect(3);
  post(RemovePair{7, "actor"});
  EXPECT_TRUE(state().pairs.empty());
  post(GroupBuilt{builds.back().ask, std::nullopt});
  EXPECT_EQ(drops.back().name, builds.back().name);
}

TEST_F(AwexTest, after_a_death_in_mid_collective_all_are_in_doubt_and_the_next_update_brings_them_back) {
  connect(2);
  silence(0, OperationKind::load);
  silence(1, OperationKind::load);
  request(1);
  ASSERT_EQ(transfers.size(), 1u);
  start_again();
  EXPECT_FALSE(pair().group);
  expect_fenced(0);
  expect_fenced(1);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  EXPECT_EQ(builds.size(), 2u);
}

TEST_F(AwexTest, a_cancel_in_mid_collective_heals_or_fences_everyone) {
  connect(2);
  silent_trainers = {trainer(1)};
  const UpdateId id = request(1);
  post(CancelUpdate{8, id});
  EXPECT_EQ(update(id).state, UpdateState::failed);
  expect_fenced(0);
  expect_fenced(1);
  EXPECT_FALSE(pair().group);
}

TEST_F(AwexTest, a_group_meets_where_the_client_says_and_the_same_first_worker_keeps_its_port) {
  awex = {"10.0.0.9", 29'777, false, url(0)};
  connect(2);
  EXPECT_EQ(builds[0].awex.master_addr, "10.0.0.9");
  EXPECT_EQ(builds[0].awex.master_port, 29'777);
  request(1);
  restart(1);
  EXPECT_EQ(update(request(2)).state, UpdateState::succeeded);
  ASSERT_EQ(builds.size(), 2u);
  EXPECT_EQ(builds[1].awex.master_addr, "10.0.0.9");
  EXPECT_EQ(builds[1].awex.master_port, 29'777);
}

TEST_F(AwexTest, another_first_worker_meets_at_another_port_and_at_its_own_address) {
  awex = {"10.0.0.9", 29'777, false, url(0)};
  connect(3);
  request(1);
  script(0, OperationKind::read_state, refused(OutcomeKind::not_sent), -1);
  request(2);
  ASSERT_EQ(builds.size(), 2u);
  EXPECT_EQ(builds[1].workers.front(), url(1));
  EXPECT_EQ(builds[1].awex.master_addr, "worker1");
  EXPECT_EQ(builds[1].awex.master_port, 29'778);
}

TEST_F(AwexTest, a_port_of_which_an_engine_can_not_let_go_is_remembered_over_a_restart) {
  awex = {"", 29'777, false, ""};
  connect(3);
  script(0, OperationKind::read_state, refused(OutcomeKind::not_sent), 1);
  request(1);
  start_again();
  builds.clear();
  script(0, OperationKind::read_state, refused(OutcomeKind::not_sent), 1);
  request(2);
  ASSERT_EQ(builds.size(), 1u);
  EXPECT_EQ(builds[0].workers.front(), url(1));
  EXPECT_EQ(builds[0].awex.master_port, 29'778);
}

TEST_F(AwexTest, a_port_that_somebody_else_has_is_not_tried_again) {
  connect(2);
  const int first = builds[0].awex.master_port;
  request(1);
  restart(0);
  build_error = Error{ErrorCode::worker_failed, "worker http://worker0:30000: no", nullptr};
  port_taken = true;
  request(2);
  build_error.reset();
  port_taken = false;
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  ASSERT_EQ(builds.size(), 3u);
  EXPECT_EQ(builds[1].awex.master_port, first);
  EXPECT_EQ(builds[2].awex.master_port, first + 1);
}

TEST(AwexMeeting, workers_of_one_host_meet_at_ports_of_their_own_and_other_hosts_at_the_same) {
  State state;
  const AwexSpec awex;
  const auto meet = [&](const std::string& pair, const std::string& worker) {
    MeetingPlace place = meeting_place(state, pair, awex, worker);
    note_meeting(state, place);
    return place.port;
  };
  EXPECT_EQ(meet("a", "http://h1:1"), 29'500);
  EXPECT_EQ(meet("b", "http://h1:2"), 29'501);
  EXPECT_EQ(meet("c", "http://h2:1"), 29'500);
  EXPECT_EQ(meet("c", "http://h2.local:1"), 29'501);  // perhaps the same host
  EXPECT_EQ(meet("a", "http://h1:1"), 29'500);
}

TEST(AwexMeeting, ports_go_on_from_the_lowest_one_and_begin_again_when_all_are_taken) {
  State state;
  const AwexSpec awex{"", 65'000, false, ""};
  for (int i = 0; i < limits::kMeetingPortsMax; ++i) {
    const MeetingPlace place = meeting_place(state, "a", awex, "http://h1:" + std::to_string(i + 1));
    EXPECT_EQ(place.port, i <= 535 ? 65'000 + i : 1024 + i - 536);
    note_meeting(state, place);
  }
  EXPECT_EQ(meeting_place(state, "a", awex, "http://h1:2000").port, 65'000);
}

TEST(AwexMeeting, places_that_are_remembered_are_bounded_and_the_oldest_goes) {
  State state;
  for (std::size_t i = 0; i <= limits::kMeetingsMax; ++i)
    note_meeting(state, MeetingPlace{"a", "http://h:1", "h" + std::to_string(i), 29'500});
  EXPECT_EQ(state.meetings.size(), limits::kMeetingsMax);
  EXPECT_EQ(state.meetings.front().address, "h1");
}

TEST_F(AwexTest, what_a_pair_says_of_its_group_outlives_the_process_as_its_settings) {
  connect(2);
  const State again = replayed();
  ASSERT_TRUE(again.pairs.at("actor").spec.awex);
  EXPECT_FALSE(again.pairs.at("actor").group);
}

}  // namespace
}  // namespace weighlock::protocol
