// Workers that were never read: those of a new pair, those that were added, and what an update waits for.
#include "weighlock/protocol/reconcile_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

Outcome refused_connection() {
  return failed(OutcomeKind::not_sent, "connect: Connection refused", ErrorCode::unreachable);
}

class FirstLook : public ReconcileTest {
 protected:
  void change(int i, WorkerChange what) {
    ChangeWorker event;
    event.pair = "actor";
    event.change = what;
    event.worker.url = url(i);
    post(event);
  }
  bool has_left(int i) const {
    const auto it = state().workers.find(url(i));
    return it == state().workers.end() || it->second.state == WorkerState::abandoned;
  }
  std::string why(int i) const {
    const std::optional<Cause> cause = cause_of(worker(i));
    return cause ? cause->message : "";
  }
  bool has_ended(const UpdateId& id) const { return is_terminal(update(id).state); }
};

TEST_F(FirstLook, worker_of_a_new_pair_is_ready_when_it_was_read_and_that_is_at_once) {
  connect(2);
  EXPECT_FALSE(is_ready(worker(0)));
  EXPECT_NE(why(0).find("not reached yet"), std::string::npos) << why(0);
  advance(1s);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(is_ready(worker(i)));
    EXPECT_EQ(why(i), "");
    EXPECT_EQ(worker(i).incarnation, "start-1");
    EXPECT_EQ(count(i, K::identify), 1);
  }
  EXPECT_EQ(remarks(kNotReached), 0);
}

TEST_F(FirstLook, worker_that_is_not_up_yet_is_told_once_never_fenced_and_ready_when_it_answers) {
  constexpr int kLooks = 9;
  connect(2);
  script(1, K::identify, refused_connection(), kLooks);
  while (count(1, K::identify) < kLooks) advance(1s);
  EXPECT_TRUE(is_ready(worker(0)));
  EXPECT_FALSE(is_ready(worker(1)));
  EXPECT_EQ(worker(1).state, WorkerState::ready) << "the baseline of its first update";
  EXPECT_EQ(why(1), "not reached yet: connect: Connection refused");
  EXPECT_EQ(cause_of(worker(1))->code, CauseCode::unreachable);
  EXPECT_TRUE(fences.empty());
  EXPECT_EQ(remarks(kNotReached), 1);
  advance(12s);
  EXPECT_TRUE(is_ready(worker(1)));
  EXPECT_EQ(remarks(kNotReached), 1);
}

TEST_F(FirstLook, worker_of_a_new_pair_that_is_silent_is_as_little_ready) {
  connect(1);
  for (int i = 0; i < 20; ++i) silence(0, K::identify);
  advance(60s);
  EXPECT_FALSE(is_ready(worker(0)));
  EXPECT_EQ(why(0), "not reached yet: no answer in time");
}

TEST_F(FirstLook, the_first_update_of_a_pair_does_not_wait_for_looks) {
  connect(2);
  for (int i = 0; i < 2; ++i) silence(i, K::identify);
  advance(1s);
  ASSERT_TRUE(worker(0).watch.call);
  const UpdateId asked = request(1);
  EXPECT_EQ(update(asked).state, UpdateState::succeeded);
  EXPECT_EQ(cancels.size(), 2U);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(is_ready(worker(i)));
}

TEST_F(FirstLook, worker_that_is_added_and_not_there_says_what_became_of_its_looks) {
  serve_v1(2);
  script(2, K::identify, refused_connection(), 5);
  change(2, WorkerChange::add);
  ASSERT_EQ(worker(2).state, WorkerState::joining);
  EXPECT_EQ(why(2), "joined after the last update");
  while (count(2, K::identify) < 5) advance(1s);
  EXPECT_EQ(why(2), "joined after the last update; not reached yet: connect: Connection refused");
  EXPECT_EQ(cause_of(worker(2))->code, CauseCode::unreachable);
  EXPECT_EQ(remarks(kNotReached), 1);
  advance(60s);
  EXPECT_TRUE(is_ready(worker(2)));
  EXPECT_EQ(why(2), "");
}

TEST_F(FirstLook, after_a_start_it_is_known_again_who_was_never_read) {
  connect(2);
  start_again();
  EXPECT_FALSE(is_ready(worker(0)));
  EXPECT_NE(why(0), "");
  advance(3s);
  EXPECT_TRUE(is_ready(worker(0)));
}

TEST_F(FirstLook, update_waits_two_seconds_for_a_worker_that_hangs_since_the_one_before) {
  serve_v1(3);
  for (int i = 0; i < 10; ++i) silence(2, K::read_state);
  const UpdateId second = request(2);
  advance(5s);
  EXPECT_FALSE(has_ended(second)) << "one that served until now is waited for";
  advance(26s);
  ASSERT_TRUE(has_ended(second));
  ASSERT_EQ(worker(2).cause->code, CauseCode::unreachable);
  const UpdateId third = request(3);
  EXPECT_FALSE(has_ended(third));
  advance(limits::kSilentSurvey);
  ASSERT_TRUE(has_ended(third));
  EXPECT_EQ(update(third).state, UpdateState::degraded);
  EXPECT_NE(update(third).targets.at(url(2)).cause->message.find("no answer within 2000 ms"), std::string::npos);
  EXPECT_EQ(worker(2).state, WorkerState::quarantined);
}

TEST_F(FirstLook, update_waits_as_short_for_a_worker_that_never_answered) {
  connect(3);
  for (int i = 0; i < 20; ++i) silence(2, K::identify);
  advance(60s);
  ASSERT_FALSE(was_read(worker(2)));
  const UpdateId asked = request(1);
  EXPECT_FALSE(has_ended(asked));
  advance(2 * limits::kSilentSurvey);  // before the save, and before the pause
  ASSERT_TRUE(has_ended(asked));
  EXPECT_EQ(update(asked).state, UpdateState::degraded);
  EXPECT_EQ(worker(2).cause->code, CauseCode::unreachable);
}

TEST_F(FirstLook, worker_that_hangs_and_has_nothing_of_ours_in_it_leaves_within_two_seconds) {
  serve_v1(3);
  for (int i = 0; i < 20; ++i) silence(2, K::read_state);
  request(2);
  advance(31s);
  ASSERT_EQ(worker(2).cause->code, CauseCode::unreachable);
  change(2, WorkerChange::remove);
  EXPECT_FALSE(has_left(2));
  advance(limits::kSilentSurvey);
  EXPECT_TRUE(has_left(2));
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
}

TEST_F(FirstLook, worker_that_hangs_with_a_load_of_ours_in_it_has_its_time_to_come_back) {
  serve_v1(3);
  silence(2, K::load);
  for (int i = 0; i < 200; ++i) silence(2, K::barrier);
  const UpdateId second = request(2);
  while (!has_ended(second)) advance(10s);
  ASSERT_FALSE(worker(2).earlier.empty());
  change(2, WorkerChange::remove);
  advance(10 * limits::kSilentSurvey);
  EXPECT_FALSE(has_left(2));
}

TEST_F(FirstLook, worker_that_was_silent_and_is_back_takes_part_in_the_next_update) {
  serve_v1(3);
  silence(2, K::read_state);
  request(2);
  advance(31s);
  EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
  expect_served(2, 3);
}

TEST_F(FirstLook, where_everybody_was_silent_each_gets_its_time) {
  serve_v1(1);
  script(0, K::read_state, failed(OutcomeKind::not_sent, "no route", ErrorCode::unreachable), limits::kSilentLooks);
  while (worker(0).state == WorkerState::ready) advance(1s);
  ASSERT_EQ(worker(0).cause->code, CauseCode::unreachable);
  silence(0, K::read_state);
  const UpdateId second = request(2);
  advance(10s);
  EXPECT_FALSE(has_ended(second));
}

}  // namespace
}  // namespace weighlock::protocol
