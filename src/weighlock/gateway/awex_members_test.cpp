#include "weighlock/gateway/awex_members.hpp"

#include <gtest/gtest.h>

namespace weighlock {
namespace {

constexpr const char* kTarget = "POST /awex/init_weights_update_group";

const AwexMembers kMembers{{"http://t0:1"}, {"http://w0:1", "http://w1:1"}};

HttpResult answered(int status, const std::string& body) {
  HttpResponse response;
  response.status = status;
  response.body = body;
  return response;
}

HttpResult well() {
  return answered(200, R"({"status":"ok"})");
}

HttpResult silent() {
  return TransportError{TransportError::Kind::timeout, false, "no answer within 5000 ms"};
}

std::vector<std::string> refused_urls(const AwexCalls::Answers& answers) {
  const auto failure = failure_of(kMembers, answers, kTarget);
  std::vector<std::string> out;
  if (!failure) return out;
  for (const auto& one : failure->refused) out.push_back(one.url);
  return out;
}

TEST(StepFailureTest, a_worker_that_failed_by_itself_is_named_beside_those_that_wait_for_it) {
  const auto failure =
      failure_of(kMembers, {silent(), answered(500, R"({"error":"CUDA error: out of memory"})"), silent()}, kTarget);
  ASSERT_TRUE(failure);
  ASSERT_EQ(failure->refused.size(), 1u);
  EXPECT_EQ(failure->refused[0].url, "http://w0:1");
  EXPECT_NE(failure->refused[0].words.find("CUDA error: out of memory"), std::string::npos);
  EXPECT_FALSE(failure->refused[0].unreachable);
}

TEST(StepFailureTest, one_that_is_not_there_is_named_as_such) {
  const auto failure = failure_of(
      kMembers, {well(), TransportError{TransportError::Kind::refused, true, "connection refused"}, well()}, kTarget);
  ASSERT_TRUE(failure);
  ASSERT_EQ(failure->refused.size(), 1u);
  EXPECT_TRUE(failure->refused[0].unreachable);
}

TEST(StepFailureTest, nobody_is_named_where_leaving_them_out_would_not_help) {
  EXPECT_TRUE(refused_urls({well(), silent(), silent()}).empty());
  EXPECT_TRUE(refused_urls({answered(500, "out of memory"), answered(500, "out of memory"), well()}).empty())
      << "a trainer failed, too";
  EXPECT_TRUE(
      refused_urls({well(), answered(500, R"({"error":"Timed out after 4 seconds waiting for clients"})"), well()})
          .empty())
      << "that tells of others";
}

TEST(StepFailureTest, a_report_that_is_refused_names_its_worker) {
  const auto failure = failure_of_reports(kMembers, {well(), well(), answered(500, "no")});
  ASSERT_TRUE(failure);
  ASSERT_EQ(failure->refused.size(), 1u);
  EXPECT_EQ(failure->refused[0].url, "http://w1:1");
  EXPECT_EQ(refusal_of_report(kMembers, 1, answered(404, "no"), "no").size(), 1u);
  EXPECT_TRUE(refusal_of_report(kMembers, 0, answered(404, "no"), "no").empty()) << "a trainer";
  EXPECT_TRUE(refusal_of_report(kMembers, 1, silent(), "no").empty());
  EXPECT_TRUE(refusal_of_report(kMembers, 1, well(), "of another release").empty());
}

}  // namespace
}  // namespace weighlock
