// Workers that a former owner had in its hands while somebody else held them paused, and what a label is worth.
#include "weighlock/protocol/ownership_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

class InHandTest : public OwnedFixture {};

// The former owner found it paused and was loading it; its trainer continued it since.
TEST_F(InHandTest, worker_that_was_in_hand_with_another_label_is_held_although_its_pause_was_not_the_former_owners) {
  for (const char* listed : {"default", ""}) {
    SCOPED_TRACE(listed);
    begin_anew();
    epochs->files[1] = Epoch{1, "predecessor", "near", "", "", {{url(0), "start-1", listed, false}}};
    engine(0).label = "1";
    engine(0).paused = false;
    connect(2);
    EXPECT_EQ(worker(0).state, WorkerState::quarantined);
    ASSERT_TRUE(worker(0).cause);
    EXPECT_EQ(worker(0).cause->code, CauseCode::load_unknown);
    advance(3s);
    EXPECT_TRUE(engine(0).paused);
    EXPECT_EQ(update(request(3)).state, UpdateState::succeeded);
    EXPECT_EQ(worker(0).state, WorkerState::ready);
    EXPECT_FALSE(engine(0).paused);
  }
}

TEST_F(InHandTest, worker_that_was_out_of_reach_at_the_takeover_is_held_when_it_has_another_label_than_listed) {
  epochs->files[1] = Epoch{1, "predecessor", "near", "", "", {{url(0), "start-1", "default", false}}};
  engine(0).label = "1";
  script(0, K::identify, failed(OutcomeKind::not_sent, "no route"), 1);
  connect(2);
  ASSERT_EQ(worker(0).cause->code, CauseCode::unreachable);
  advance(10s);
  EXPECT_EQ(worker(0).cause->code, CauseCode::load_unknown);
  EXPECT_TRUE(engine(0).paused);
}

TEST_F(InHandTest, worker_that_was_in_hand_and_is_as_listed_keeps_its_trainers_pause) {
  epochs->files[1] = Epoch{1, "predecessor", "near", "", "", {{url(0), "start-1", "default", false}}};
  engine(0).paused = true;
  connect(2);
  EXPECT_EQ(worker(0).state, WorkerState::ready);
  advance(20s);
  EXPECT_TRUE(engine(0).paused);
  EXPECT_EQ(count(0, K::resume), 0);
  EXPECT_TRUE(epochs->highest().paused.empty());
}

TEST_F(InHandTest, worker_in_hand_stays_listed_as_it_was_until_it_was_read) {
  const std::vector<HeldWorker> listed{{url(0), "start-1", "default", false}};
  epochs->files[1] = Epoch{1, "predecessor", "near", "", "", listed};
  script(0, K::identify, failed(OutcomeKind::not_sent, "no route"), -1);
  connect(2);
  EXPECT_EQ(epochs->highest().paused, listed);
  flush();
  const std::optional<TakenOver> again = replayed().workers.at(url(0)).taken_over;
  ASSERT_TRUE(again);
  EXPECT_TRUE(again->listed);
  EXPECT_FALSE(again->held);
  EXPECT_EQ(again->label, "default");
}

// One answer shows the label before the present one.
TEST_F(InHandTest, label_is_asked_for_twice_before_anybody_is_resumed_for_it) {
  left_by_predecessor({{url(0), "start-1"}});
  engine(0).paused = true;
  engine(0).label = "loading:theirs";
  Outcome old = ok();
  old.reading = StateReading{"start-1", "default", true, "/models/start"};
  script(0, K::barrier, old);
  connect(2);
  EXPECT_EQ(count(0, K::resume), 0);
  EXPECT_TRUE(engine(0).paused);
  EXPECT_EQ(worker(0).state, WorkerState::quarantined);
  ASSERT_TRUE(worker(0).cause);
  EXPECT_NE(worker(0).cause->message.find("loading:theirs"), std::string::npos) << worker(0).cause->message;
  EXPECT_EQ(update(request(1)).state, UpdateState::succeeded);
  EXPECT_FALSE(engine(0).paused);
}

}  // namespace
}  // namespace weighlock::protocol
