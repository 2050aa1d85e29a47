// The readiness URL as a router sees it, with engines that change behind the gateway's back.
#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

TEST_F(NativeTest, readiness_follows_the_engine_and_not_only_what_we_believe) {
  start();
  make_pair();
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 1}}).json().at("state").as_string(),
            "succeeded");
  const std::string target = "/v1/pairs/actor/workers/" + engines[0]->url().substr(7) + "/ready";
  EXPECT_EQ(raw_call("GET", target, "", {}).status, 200);
  engines[0]->paused = true;  // behind our back
  Reply reply;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  do reply = raw_call("GET", target, "", {});
  while (reply.status != 503 && std::chrono::steady_clock::now() < until);  // the last reading holds for 300 ms
  EXPECT_EQ(reply.status, 503);
  EXPECT_NE(reply.body.find("paused"), std::string::npos);
  EXPECT_EQ(raw_call("GET", "/v1/pairs/actor/workers/1.2.3.4:5/ready", "", {}).status, 404);
}

class ReadinessTest : public NativeTest {
 protected:
  void begin() {
    start();
    make_pair();
    ASSERT_EQ(call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 1}}).json().at("state").as_string(),
              "succeeded");
    target_ = "/v1/pairs/actor/workers/" + engines[0]->url().substr(7) + "/ready";
    ASSERT_EQ(raw_call("GET", target_, "", {}).status, 200);
  }
  Reply ask() { return raw_call("GET", target_, "", {}); }
  // A reading holds for 300 ms.
  Reply ask_until(int status) {
    Reply reply;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    do reply = ask();
    while (reply.status != status && std::chrono::steady_clock::now() < until);
    EXPECT_EQ(reply.status, status) << reply.body;
    return reply;
  }
  std::string target_;
};

TEST_F(NativeTest, workers_of_a_new_pair_are_ready_when_they_were_reached_and_not_before) {
  start();
  json::object asked = body();
  asked["workers"].as_array().push_back(json::object{{"url", "http://127.0.0.1:1"}});  // nothing listens there
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", asked).status, 201);
  const std::string missing = "/v1/pairs/actor/workers/127.0.0.1:1/ready";
  EXPECT_EQ(raw_call("GET", missing, "", {}).status, 503);
  const std::string there = "/v1/pairs/actor/workers/" + engines[0]->url().substr(7) + "/ready";
  Reply reply;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do reply = raw_call("GET", there, "", {});
  while (reply.status != 200 && std::chrono::steady_clock::now() < until);
  EXPECT_EQ(reply.status, 200) << reply.body;
  do reply = raw_call("GET", missing, "", {});
  while (reply.body.find("refused") == std::string::npos && std::chrono::steady_clock::now() < until);
  EXPECT_EQ(reply.status, 503);
  const json::value answer = reply.json();
  EXPECT_EQ(answer.at("ready"), json::value(false));
  EXPECT_EQ(answer.at("worker").at("state").as_string(), "unknown");
  EXPECT_EQ(answer.at("worker").at("cause").at("code").as_string(), "unreachable");
  EXPECT_NE(reply.body.find("not reached yet: "), std::string::npos) << reply.body;
  do reply = call("GET", "/v1/pairs/actor");
  while (reply.json().at("workers").at("ready").to_number<int>() != 3 && std::chrono::steady_clock::now() < until);
  EXPECT_EQ(reply.json().at("workers").at("ready").to_number<int>(), 3) << reply.body;
  EXPECT_NE(call("GET", "/metrics").body.find("weighlock_workers{pair=\"actor\",state=\"unknown\"} 1"),
            std::string::npos);
}

TEST_F(ReadinessTest, an_engine_that_restarted_on_its_start_weights_is_not_ready) {
  begin();
  on_loop([&] { engines[0]->restart(directory.path("start")); });
  EXPECT_NE(ask_until(503).body.find("another process"), std::string::npos);
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 2}}).json().at("state").as_string(),
            "succeeded");
  EXPECT_EQ(ask().status, 200);  // at once: what was read before the update doesn't count any more
}

TEST_F(ReadinessTest, an_engine_with_a_label_that_is_not_ours_is_not_ready) {
  begin();
  on_loop([&] { engines[0]->label = "somebody's"; });
  EXPECT_NE(ask_until(503).body.find("somebody's"), std::string::npos);
}

TEST_F(ReadinessTest, an_engine_that_is_gone_or_answers_no_state_is_not_ready) {
  begin();
  engines[0]->refuse_reads = true;
  ask_until(503);
  engines[0]->refuse_reads = false;
  ask_until(200);
  on_loop([&] { engines[0].reset(); });
  ask_until(503);
}

TEST_F(ReadinessTest, an_engine_that_does_not_answer_in_time_keeps_the_last_word) {
  begin();
  on_loop([&] { engines[0]->paused = true; });
  ask_until(503);
  engines[0]->hold_reads = true;
  EXPECT_NE(ask_until(200).body.find("\"ready\":true"), std::string::npos);
}

TEST_F(ReadinessTest, a_worker_that_is_removed_during_the_read_is_not_ready) {
  begin();
  engines[0]->hold_reads = true;
  Connection asking(port);
  // The last reading holds for 300 ms: only one that is in flight is of use here.
  const int before = engines[0]->requests;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (engines[0]->requests == before && std::chrono::steady_clock::now() < until) {
    Connection(port).send_request("GET", target_, {}, "");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  asking.send_request("GET", target_, {}, "");
  call("DELETE", "/v1/pairs/actor");
  EXPECT_NE(asking.read_reply().status, 200);
}

}  // namespace
}  // namespace weighlock::test
