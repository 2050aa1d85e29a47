#include "weighlock/awex/tiling.hpp"

#include <gtest/gtest.h>

#include <random>

namespace weighlock::awex {
namespace {

Box box(std::initializer_list<std::uint64_t> offset, std::initializer_list<std::uint64_t> shape) {
  Box made;
  for (const std::uint64_t value : offset) made.offset.push_back(value);
  for (const std::uint64_t value : shape) made.shape.push_back(value);
  return made;
}

const Box kTen = box({0}, {10});

TEST(Tiling, parts_that_meet_fill_the_whole) {
  EXPECT_EQ(tiling_problem(kTen, {box({4}, {6}), box({0}, {4}), box({4}, {0})}), "");
  EXPECT_EQ(tiling_problem(box({0, 0}, {4, 6}), {box({0, 0}, {4, 3}), box({0, 3}, {1, 3}), box({1, 3}, {3, 3})}), "");
}

TEST(Tiling, a_lost_tail_is_a_hole_by_name) {
  EXPECT_NE(tiling_problem(kTen, {box({0}, {4}), box({4}, {4})}).find("hole [8,10)"), std::string::npos);
  EXPECT_NE(tiling_problem(kTen, {box({2}, {8})}).find("hole [0,2)"), std::string::npos);
  EXPECT_NE(tiling_problem(kTen, {box({0}, {4}), box({6}, {4})}).find("hole [4,6)"), std::string::npos);
  EXPECT_NE(tiling_problem(kTen, {}), "");
}

TEST(Tiling, overlaps_and_what_lies_outside_are_named) {
  EXPECT_EQ(tiling_problem(kTen, {box({0}, {6}), box({5}, {5})}), "[0]+[6] and [5]+[5] overlap");
  EXPECT_EQ(tiling_problem(kTen, {box({0}, {6}), box({6}, {6})}), "[6]+[6] is outside of [0]+[10]");
  EXPECT_NE(tiling_problem(kTen, {kTen, kTen}), "");
}

TEST(Tiling, parts_in_a_ring_that_no_straight_cut_divides_are_looked_at_one_by_one) {
  const Box whole = box({0, 0}, {3, 3});
  std::vector<Box> ring{box({0, 0}, {1, 2}), box({0, 2}, {2, 1}), box({2, 1}, {1, 2}), box({1, 0}, {2, 1}),
                        box({1, 1}, {1, 1})};
  EXPECT_EQ(tiling_problem(whole, ring), "");
  ring.pop_back();
  EXPECT_NE(tiling_problem(whole, ring).find("hole of 1 elements"), std::string::npos);
}

// A staircase: every straight cut takes off one part.
TEST(Tiling, parts_that_are_cut_too_wildly_are_refused_in_time) {
  std::vector<Box> parts;
  std::uint64_t x = 0, y = 0;
  constexpr std::uint64_t kSide = 40'000;
  while (x < kSide && y < kSide) {
    parts.push_back(box({x, y}, {1, kSide - y}));
    ++x;
    if (x == kSide) break;
    parts.push_back(box({x, y}, {kSide - x, 1}));
    ++y;
  }
  EXPECT_NE(tiling_problem(box({0, 0}, {kSide, kSide}), parts).find("parts that no straight cut divides"),
            std::string::npos);
}

// Random boxes in a small tensor, against counting each element.
TEST(Tiling, agrees_with_counting_elements) {
  std::mt19937_64 dice(5);
  const Box whole = box({0, 0}, {4, 4});
  int filled = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<Box> parts;
    int counts[4][4] = {};
    for (std::uint64_t n = 1 + dice() % 4; n > 0; --n) {
      const std::uint64_t x = 2 * (dice() % 2), y = 2 * (dice() % 2);
      const std::uint64_t w = std::min<std::uint64_t>(2 + 2 * (dice() % 2), 4 - x),
                          h = std::min<std::uint64_t>(2 + 2 * (dice() % 2), 4 - y);
      parts.push_back(box({x, y}, {w, h}));
      for (std::uint64_t i = x; i < x + w; ++i)
        for (std::uint64_t j = y; j < y + h; ++j) ++counts[i][j];
    }
    bool once = true;
    for (const auto& row : counts)
      for (const int count : row) once = once && count == 1;
    filled += once;
    ASSERT_EQ(tiling_problem(whole, parts).empty(), once) << "round " << round;
  }
  EXPECT_GT(filled, 100);
}

}  // namespace
}  // namespace weighlock::awex
