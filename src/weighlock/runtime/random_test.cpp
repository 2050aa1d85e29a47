#include "weighlock/runtime/random.hpp"

#include <gtest/gtest.h>

#include <set>

namespace weighlock {

TEST(Random, ids_are_hex_of_the_length_asked_for_and_differ) {
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(random_hex(16));
  EXPECT_EQ(1000U, ids.size());
  std::set<char> digits;
  for (const std::string& id : ids) {
    EXPECT_EQ(32U, id.size());
    EXPECT_EQ(std::string::npos, id.find_first_not_of("0123456789abcdef"));
    digits.insert(id.begin(), id.end());
  }
  EXPECT_EQ(16U, digits.size());
  EXPECT_EQ("", random_hex(0));
}

}  // namespace weighlock
