#include "weighlock/net/answer_room.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace weighlock {
namespace {

class AnswerRoomTest : public ::testing::Test {
 protected:
  void run() {
    loop.post([this] { loop.stop(); });
    loop.run();
  }
  Loop loop;
  std::shared_ptr<AnswerRoom> room = std::make_shared<AnswerRoom>(loop, 100);
};

TEST_F(AnswerRoomTest, answers_wait_in_their_order_until_others_have_gone) {
  std::vector<int> in;
  auto first = room->place(), second = room->place(), third = room->place(), fourth = room->place();
  EXPECT_TRUE(first->enter(60, nullptr));
  EXPECT_FALSE(second->enter(60, [&] { in.push_back(2); }));
  EXPECT_FALSE(third->enter(10, [&] { in.push_back(3); }));  // not past the one that came before
  EXPECT_EQ(room->taken(), 60u);
  first.reset();
  EXPECT_EQ(room->taken(), 70u);
  run();
  EXPECT_EQ(in, (std::vector<int>{2, 3}));
  EXPECT_TRUE(fourth->enter(30, nullptr));
}

TEST_F(AnswerRoomTest, one_that_is_larger_than_all_the_room_is_let_in_by_itself) {
  auto small = room->place(), large = room->place();
  bool in = false;
  EXPECT_TRUE(small->enter(1, nullptr));
  EXPECT_FALSE(large->enter(1000, [&] { in = true; }));
  small.reset();
  run();
  EXPECT_TRUE(in);
}

TEST_F(AnswerRoomTest, one_that_goes_while_it_waits_holds_nobody_up) {
  auto first = room->place(), second = room->place(), third = room->place();
  bool in = false;
  EXPECT_TRUE(first->enter(60, nullptr));
  EXPECT_FALSE(second->enter(100, nullptr));
  EXPECT_FALSE(third->enter(40, [&] { in = true; }));
  second.reset();
  run();
  EXPECT_TRUE(in);
  first.reset();
  third.reset();
  EXPECT_EQ(room->taken(), 0u);
}

}  // namespace
}  // namespace weighlock
