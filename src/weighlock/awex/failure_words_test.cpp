#include "weighlock/awex/failure_words.hpp"

#include <gtest/gtest.h>

namespace weighlock::awex {
namespace {

TEST(AwexFailureWords, a_time_out_of_the_group_or_a_lost_peer_tells_of_another_member) {
  for (const char* words :
       {"[unbound_buffer.cc:129] Timed out waiting 8000ms for send operation to complete",
        "rank 0: RuntimeError: Connection closed by peer [127.0.0.1]:45280",
        "DistStoreError: Timed out after 7 seconds waiting for clients. 4/6 clients joined",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exited prematurely."})
    EXPECT_TRUE(tells_of_a_peer(words)) << words;
  for (const char* words :
       {"told to refuse", "connection closed before any answer byte", "connection refused", "CUDA out of memory", ""})
    EXPECT_FALSE(tells_of_a_peer(words)) << words;
}

TEST(AwexFailureWords, a_port_in_use_is_told_as_the_store_or_as_the_system_says_it) {
  for (const char* words :
       {"DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, "
        "useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use",
        "OSError: [Errno 98] Address already in use"})
    EXPECT_TRUE(tells_of_a_taken_port(words)) << words;
  for (const char* words : {"connection refused", "the port is not free", ""})
    EXPECT_FALSE(tells_of_a_taken_port(words)) << words;
}

}  // namespace
}  // namespace weighlock::awex
