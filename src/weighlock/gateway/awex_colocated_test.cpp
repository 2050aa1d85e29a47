// A colocated pair over real sockets whose update is cut off: what is sent afterwards, and who serves without memory.
#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include "weighlock/gateway/awex_pair_fixture.hpp"

namespace weighlock::test {
namespace {

class AwexColocatedPairTest : public AwexPairTest {
 protected:
  // With v1 on storage, which everyone serves: loaded before devices are shared.
  void connect_with_last_good() {
    json::object body = awex_body();
    body["save_path"] = directory.path("w");
    body["mode"] = "disk";
    ASSERT_EQ(call("POST", "/connect", body).status, 200);
    write_single(directory.path("out/step1"), tiny_tensors(), 1);
    const Reply first =
        call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 1}, {"path", directory.path("out/step1")}});
    ASSERT_EQ(first.json().at("state").as_string(), "succeeded") << first.body;
    body["mode"] = "awex";
    body["colocate"] = true;
    ASSERT_EQ(call("POST", "/connect", body).status, 200);
    on_loop([&] { log.clear(); });
  }
  std::string begin(int version) {
    const Reply reply = call("POST", "/v1/pairs/actor/updates", {{"version", version}});
    EXPECT_EQ(reply.status, 202) << reply.body;
    return "/v1/pairs/actor/updates/" + std::string(reply.json().at("id").as_string());
  }
  json::value ended(const std::string& update) { return call("GET", update + "?wait=60").json(); }
  void until(const char* what, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  void answer_silent(Member& member) {
    on_loop([&] {
      for (const Responder& answer : std::exchange(member.silent, {}))
        answer.respond(json_reply(200, {{"status", member.side == awex::Side::train ? "success" : "ok"}}));
    });
  }
  std::size_t sent() {
    std::size_t n = 0;
    on_loop([&] { n = log.size(); });
    return n;
  }
};

TEST_F(AwexColocatedPairTest, a_group_that_can_not_be_built_leaves_nobody_ready_without_memory) {
  connect_with_last_good();
  turn(train[1], "release_memory", Turn::refuses);  // so the next update needs another group
  EXPECT_EQ(ended(begin(2)).at("state").as_string(), "rolled_back");
  turn(train[1], "release_memory", Turn::well);
  turn(train[0], "init_colocate_weight_update", Turn::refuses);
  const json::value update = ended(begin(3));
  EXPECT_EQ(update.at("state").as_string(), "aborted");
  EXPECT_NE(json::serialize(update).find("was not handed back"), std::string::npos) << json::serialize(update);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(worker_told(i).at("state").as_string(), "quarantined") << i;
  turn(train[0], "init_colocate_weight_update", Turn::well);
  EXPECT_EQ(ended(begin(4)).at("state").as_string(), "succeeded");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(worker_told(i).at("state").as_string(), "ready") << i;
}

TEST_F(AwexColocatedPairTest, what_was_cancelled_sends_no_step_more_whoever_answers_late) {
  connect_with_last_good();
  turn(train[1], "release_memory", Turn::stays_silent);
  const std::string update = begin(2);
  until("the first step", [&] { return count(train[1], "release_memory") == 1; });
  EXPECT_EQ(call("POST", update + ":cancel").status, 202);
  EXPECT_EQ(ended(update).at("state").as_string(), "rolled_back");
  const std::vector<std::string> both{R"({"tags": ["weights"]})", R"({"tags": ["kv_cache"]})"};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(bodies_of(infer[i], "resume_memory"), both) << i;
    EXPECT_EQ(worker_told(i).at("state").as_string(), "ready") << i;
    EXPECT_EQ(worker_told(i).at("version").as_int64(), 1) << i;
  }
  EXPECT_EQ(count(train[0], "release_memory"), 2);
  EXPECT_EQ(count(train[1], "release_memory"), 1);  // nothing behind a step that it still sits in
  const std::size_t before = sent();
  answer_silent(train[1]);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(sent(), before);
  EXPECT_EQ(count(infer[0], "execute_colocate_weight_update"), 0);
}

TEST_F(AwexColocatedPairTest, a_trainer_that_sits_in_a_step_joins_no_other_group) {
  connect_with_last_good();
  turn(train[1], "release_memory", Turn::stays_silent);
  const std::string update = begin(2);
  until("the first step", [&] { return count(train[1], "release_memory") == 1; });
  call("POST", update + ":cancel");
  ended(update);
  turn(train[1], "release_memory", Turn::well);
  const std::string next = begin(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(count(train[0], "init_colocate_weight_update"), 1);
  answer_silent(train[1]);
  EXPECT_EQ(ended(next).at("state").as_string(), "succeeded");
  EXPECT_EQ(count(train[0], "init_colocate_weight_update"), 2);
}

TEST_F(AwexColocatedPairTest, a_worker_whose_cache_is_not_resumed_is_out_and_says_so) {
  connect_with_last_good();
  on_loop([&] {
    infer[1].turn_of = [](const HttpRequest& request) {
      return request.body.find("kv_cache") == std::string::npos ? Turn::well : Turn::refuses;
    };
  });
  EXPECT_EQ(ended(begin(2)).at("state").as_string(), "failed");
  EXPECT_EQ(worker_told(0).at("state").as_string(), "ready");
  const json::value out = worker_told(1);
  EXPECT_EQ(out.at("state").as_string(), "quarantined");
  EXPECT_EQ(out.at("cause").at("code").as_string(), "needs_restart");
  EXPECT_NE(out.at("cause").at("message").as_string().find("memory of 'kv_cache'"), std::string::npos);
  EXPECT_TRUE(engines[1]->paused);
  EXPECT_EQ(engines[1]->loads, 1);
}

}  // namespace
}  // namespace weighlock::test
