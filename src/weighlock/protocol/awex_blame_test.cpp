#include "weighlock/protocol/awex_blame.hpp"

#include <gtest/gtest.h>

namespace weighlock::protocol {
namespace {

constexpr const char* kTimedOut =
    "POST /awex/update_weights answered 400 \"[unbound_buffer.cc:129] Timed out waiting 8000ms for send operation to "
    "complete\"";
constexpr const char* kClosed =
    "POST /awex/update_weights answered 500 \"rank 0: RuntimeError: Connection closed by peer [127.0.0.1]:45280\"";

TEST(AwexBlame, who_failed_by_itself_is_named_first_then_the_silent_then_those_that_tell_of_others) {
  EXPECT_EQ(blame_text({{"a", kTimedOut, false}, {"b", "no answer yet", true}, {"c", "answered 500 \"boom\"", false}}),
            std::string("c: answered 500 \"boom\"; b: no answer yet; a: ") + kTimedOut);
}

TEST(AwexBlame, where_all_tell_of_others_the_silent_one_is_named_first) {
  EXPECT_TRUE(
      blame_text({{"a", kTimedOut, false}, {"b", kClosed, false}, {"c", "no answer yet", true}}).starts_with("c"));
}

TEST(AwexBlame, words_of_a_time_out_of_the_group_or_of_a_lost_peer_tell_of_others) {
  for (const char* words :
       {kTimedOut, kClosed, "DistStoreError: Timed out after 7 seconds waiting for clients. 4/6 clients joined",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exited prematurely."})
    EXPECT_TRUE(tells_of_a_peer(words)) << words;
  for (const char* words :
       {"answered 500 \"told to refuse\"", "got no answer: connection closed before any answer byte",
        "got no answer: connection refused", "answered 500 \"CUDA out of memory\""})
    EXPECT_FALSE(tells_of_a_peer(words)) << words;
}

}  // namespace
}  // namespace weighlock::protocol
