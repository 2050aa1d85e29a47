// How many ended updates are remembered.
#include <gtest/gtest.h>

#include "weighlock/core/limits.hpp"
#include "weighlock/protocol/phases.hpp"

namespace weighlock::protocol {
namespace {

// `count` ended updates of a pair with so many workers, each with a key.
std::deque<UpdateId> ended(State& state, std::size_t count, std::size_t workers) {
  std::deque<UpdateId> out;
  state.pairs["p"].spec.name = "p";
  for (std::size_t i = 0; i < count; ++i) {
    const UpdateId id = "u" + std::to_string(i);
    Update& update = state.updates[id];
    update.id = id;
    update.pair = "p";
    for (std::size_t w = 0; w < workers; ++w) update.targets["http://w" + std::to_string(w)];
    state.pairs["p"].keys["key" + std::to_string(i)] = id;
    out.push_back(id);
  }
  return out;
}

TEST(Remembered, updates_of_a_small_fleet_are_limited_in_number) {
  State state;
  std::deque<UpdateId> history = ended(state, limits::kUpdatesRememberedMax + 3, 2);
  forget_oldest(state, history);
  EXPECT_EQ(history.size(), limits::kUpdatesRememberedMax);
  EXPECT_EQ(history.front(), "u3");
  EXPECT_EQ(state.updates.size(), history.size());
  EXPECT_FALSE(state.pairs["p"].keys.contains("key2"));
  EXPECT_TRUE(state.pairs["p"].keys.contains("key3"));
}

TEST(Remembered, updates_of_a_large_fleet_are_fewer) {
  State state;
  std::deque<UpdateId> history = ended(state, 60, 1000);
  forget_oldest(state, history);
  EXPECT_EQ(history.size(), limits::kTargetsRememberedMax / 1000);
  EXPECT_EQ(state.updates.size(), history.size());
  EXPECT_EQ(history.back(), "u59");
}

TEST(Remembered, two_stay_however_large_the_fleet_is) {
  State state;
  std::deque<UpdateId> history = ended(state, 3, limits::kTargetsRememberedMax);
  forget_oldest(state, history);
  EXPECT_EQ(history, (std::deque<UpdateId>{"u1", "u2"}));
}

}  // namespace
}  // namespace weighlock::protocol
