// What an answer of an AWEX worker means.
#include "weighlock/awex/calls.hpp"

#include <gtest/gtest.h>

#include "weighlock/core/transport.hpp"

namespace weighlock::awex {
namespace {

constexpr const char* kTarget = "POST /awex/update_weights";

Answer answer_of(int status, std::string body) {
  return classify(kTarget, HttpResponse{status, {}, std::move(body)});
}

TEST(AwexCalls, a_member_that_says_that_its_peer_failed_blames_it) {
  const Answer timed_out = answer_of(400, R"({"detail": "Timed out waiting 8000ms for send operation to complete"})");
  EXPECT_EQ(timed_out.kind, AnswerKind::failed);
  EXPECT_TRUE(timed_out.blames_a_peer);
  EXPECT_FALSE(answer_of(500, R"({"error": "CUDA out of memory"})").blames_a_peer);
  EXPECT_FALSE(answer_of(200, R"({"status": "ok"})").blames_a_peer);
}

TEST(AwexCalls, a_member_whose_own_connection_broke_blames_nobody_whatever_the_words_for_it) {
  const TransportError error{TransportError::Kind::reset, false, "Connection reset by peer"};
  const Answer answer = classify(kTarget, error);
  EXPECT_EQ(answer.kind, AnswerKind::unknown);
  EXPECT_FALSE(answer.blames_a_peer);
  EXPECT_FALSE(answer.port_taken);
}

TEST(AwexCalls, an_answer_for_another_version_than_the_calls_is_no_success) {
  const auto answered = [](std::string body) { return classify(kTarget, HttpResponse{200, {}, std::move(body)}, 7); };
  const Answer other = answered(R"({"status": "ok", "version": 6})");
  EXPECT_EQ(other.kind, AnswerKind::failed);
  EXPECT_EQ(other.code, ErrorCode::bad_answer);
  EXPECT_EQ(other.text, "POST /awex/update_weights for version 7 was answered with version 6");
  EXPECT_FALSE(answered(R"({"status": "ok", "version": "8"})").ok());
  EXPECT_FALSE(answered(R"({"status": "ok", "version": 18446744073709551615})").ok());
  for (const char* well : {R"({"status": "ok", "version": 7})", R"({"status": "ok", "version": "7"})",
                           R"({"status": "success"})", R"({"status": "ok", "version": null})"})
    EXPECT_TRUE(answered(well).ok()) << well;
  EXPECT_TRUE(answer_of(200, R"({"status": "ok", "version": 6})").ok());  // of a call that has no version
}

TEST(AwexCalls, a_worker_that_wants_a_key_is_told_with_what_to_do) {
  for (const int status : {401, 403}) {
    const Answer answer = answer_of(status, R"({"error": "Unauthorized"})");
    EXPECT_EQ(answer.kind, AnswerKind::failed);
    EXPECT_NE(answer.text.find("\"Unauthorized\": calls to /awex routes carry no key"), std::string::npos)
        << answer.text;
  }
  EXPECT_EQ(answer_of(500, R"({"error": "no"})").text.find("key"), std::string::npos);
}

TEST(AwexCalls, a_taken_port_is_read_from_the_workers_words) {
  EXPECT_TRUE(answer_of(500, R"({"error": "DistNetworkError: ... name: EADDRINUSE"})").port_taken);
  EXPECT_FALSE(answer_of(500, R"({"error": "told to refuse"})").port_taken);
}

}  // namespace
}  // namespace weighlock::awex
