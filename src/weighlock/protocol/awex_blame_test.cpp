#include "weighlock/protocol/awex_blame.hpp"

#include <gtest/gtest.h>

namespace weighlock::protocol {
namespace {

TEST(AwexBlame, who_failed_by_itself_is_named_first_then_the_silent_then_those_that_tell_of_others) {
  EXPECT_EQ(
      blame_text({{"a", "timed out", false, true}, {"b", "no answer yet", true, false}, {"c", "boom", false, false}}),
      "c: boom; b: no answer yet; a: timed out");
}

TEST(AwexBlame, where_all_tell_of_others_the_silent_one_is_named_first) {
  EXPECT_EQ(
      blame_text({{"a", "timed out", false, true}, {"b", "closed", false, true}, {"c", "no answer yet", true, false}}),
      "c: no answer yet; a: timed out; b: closed");
}

}  // namespace
}  // namespace weighlock::protocol
