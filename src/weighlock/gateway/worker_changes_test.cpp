// One worker added, removed, drained, quarantined or released, as clients see it: a whole gateway over real sockets.
#include <stdlib.h>

#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

class WorkerChanges : public NativeTest {
 protected:
  // Two of the three engines are the pair's, and hold version 1.
  void serve_v1() {
    start();
    json::object two = body();
    two["workers"].as_array().pop_back();
    ASSERT_EQ(call("PUT", "/v1/pairs/actor", two).status, 201);
    update_to(1);
  }
  json::value update_to(std::int64_t version) {
    const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", version}});
    EXPECT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
    return reply.json();
  }
  std::string id_of(std::size_t i) const { return engines[i]->url().substr(std::string("http://").size()); }
  Reply change(std::size_t i, const std::string& verb, const json::value& asked = nullptr) {
    return call("POST", "/v1/pairs/actor/workers/" + id_of(i) + ":" + verb, asked);
  }
  json::object worker(std::size_t i) {
    const json::value list = call("GET", "/v1/pairs/actor/workers").json();
    for (const json::value& one : list.at("items").as_array()) {
      if (one.at("url").as_string() == engines[i]->url()) return one.as_object();
    }
    return {{"state", "nowhere"}, {"version", nullptr}};
  }
  void until(const char* what, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  bool serves(std::size_t i, std::int64_t version) {
    const json::object seen = worker(i);
    return seen.at("state").as_string() == "ready" && seen.at("version") == json::value(version);
  }
};

TEST_F(WorkerChanges, one_that_is_added_serves_the_committed_version_without_an_update) {
  serve_v1();
  const Reply added = call("POST", "/v1/pairs/actor/workers:add", {{"url", engines[2]->url()}, {"dialect", "sglang"}});
  ASSERT_EQ(added.status, 200) << added.body;
  EXPECT_EQ(added.json().at("workers").at("total").to_number<int>(), 3);
  EXPECT_NE(added.json().at("worker").at("state").as_string(), "ready") << "not before it holds what is committed";
  until("the engine to be brought to v1", [&] { return serves(2, 1); });
  on_loop([&] {
    EXPECT_EQ(engines[2]->label, "1");
    EXPECT_FALSE(engines[2]->paused);
  });
  EXPECT_EQ(update_to(2).at("workers").as_array().size(), 3u);
}

TEST_F(WorkerChanges, the_keys_of_one_that_is_added_are_on_its_first_call) {
  setenv("WORKER_CHANGES_TEST_KEY", "engine-secret", 1);
  engines[2]->key = "engine-secret";
  serve_v1();
  const Reply added = call("POST", "/v1/pairs/actor/workers:add",
                           {{"url", engines[2]->url()},
                            {"dialect", "sglang"},
                            {"admin_key", {{"env", "WORKER_CHANGES_TEST_KEY"}}},
                            {"api_key", {{"env", "WORKER_CHANGES_TEST_KEY"}}}});
  ASSERT_EQ(added.status, 200) << added.body;
  EXPECT_EQ(added.body.find("engine-secret"), std::string::npos);
  until("the engine to be brought to v1", [&] { return serves(2, 1); });
}

TEST_F(WorkerChanges, one_that_refuses_the_key_serves_again_when_it_was_given_the_right_one) {
  setenv("WORKER_CHANGES_TEST_KEY", "other-secret", 1);
  serve_v1();
  on_loop([&] { engines[1]->key = "other-secret"; });
  EXPECT_NE(call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 2}}).body.find("credentials"),
            std::string::npos);
  const json::value reference = json::object{{"env", "WORKER_CHANGES_TEST_KEY"}};
  EXPECT_EQ(change(1, "set-key", json::object{}).status, 400);
  EXPECT_EQ(change(1, "set-key", {{"admin_kye", reference}}).json().at("field").as_string(), "admin_kye");
  EXPECT_EQ(change(1, "set-key", {{"admin_key", {{"env", "NO_SUCH_VARIABLE_HERE"}}}}).status, 400);
  EXPECT_EQ(change(2, "set-key", {{"admin_key", reference}}).status, 404);
  const Reply set = change(1, "set-key", {{"admin_key", reference}, {"api_key", reference}});
  ASSERT_EQ(set.status, 200) << set.body;
  EXPECT_EQ(set.json().at("worker").at("url").as_string(), engines[1]->url());
  EXPECT_EQ(set.body.find("other-secret"), std::string::npos);
  until("the engine to be brought to v2", [&] { return serves(1, 2); });
}

TEST_F(WorkerChanges, one_that_is_quarantined_is_held_paused_with_the_operators_words_until_it_is_released) {
  serve_v1();
  const Reply held = change(1, "quarantine", {{"reason", "disk swap"}});
  ASSERT_EQ(held.status, 200) << held.body;
  EXPECT_EQ(held.json().at("worker").at("state").as_string(), "quarantined") << held.body;
  EXPECT_NE(held.body.find("disk swap"), std::string::npos) << held.body;
  EXPECT_EQ(held.json().at("worker").at("cause").at("code").as_string(), "operator_hold");
  until("the engine to be paused", [&] { return engines[1]->paused.load(); });
  EXPECT_EQ(call("GET", "/v1/pairs/actor/workers/" + id_of(1) + "/ready").status, 503);
  const int loads = engines[1]->loads;
  call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 2}});
  EXPECT_EQ(engines[1]->loads, loads) << "an update leaves it alone";
  ASSERT_EQ(change(1, "release").status, 200);
  until("the engine to serve v2", [&] { return serves(1, 2); });
  EXPECT_FALSE(engines[1]->paused);
}

TEST_F(WorkerChanges, one_that_is_drained_serves_on_and_misses_updates_until_it_is_released) {
  serve_v1();
  const Reply drained = change(1, "drain");
  ASSERT_EQ(drained.status, 200) << drained.body;
  EXPECT_EQ(drained.json().at("worker").at("state").as_string(), "draining") << drained.body;
  call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 2}});
  EXPECT_EQ(engines[1]->loads, 1);
  EXPECT_FALSE(engines[1]->paused);
  ASSERT_EQ(change(1, "release").status, 200);
  until("the engine to serve v2", [&] { return serves(1, 2); });
}

TEST_F(WorkerChanges, one_that_is_removed_runs_on_and_is_no_part_of_the_next_update) {
  serve_v1();
  const Reply gone = change(1, "remove", {{"reason", "scale in"}});
  ASSERT_EQ(gone.status, 200) << gone.body;
  EXPECT_TRUE(gone.json().at("worker").is_null());
  EXPECT_TRUE(gone.json().at("abandoned").as_array().empty());
  EXPECT_FALSE(engines[1]->paused);
  EXPECT_EQ(update_to(2).at("workers").as_array().size(), 1u);
  EXPECT_EQ(change(1, "remove").status, 404);
  EXPECT_EQ(change(0, "remove").status, 409) << "the last one";
}

TEST_F(WorkerChanges, a_change_that_makes_no_sense_is_refused_with_the_state) {
  serve_v1();
  const Reply held = change(0, "release");
  EXPECT_EQ(held.status, 409) << held.body;
  EXPECT_NE(held.body.find("ready"), std::string::npos) << held.body;
  EXPECT_EQ(change(2, "drain").status, 404);
  EXPECT_EQ(call("POST", "/v1/pairs/nobody/workers/x:drain").status, 404);
  EXPECT_EQ(change(0, "drain", {{"reason", 1}}).json().at("field").as_string(), "reason");
  const Reply twice = call("POST", "/v1/pairs/actor/workers:add", {{"url", engines[0]->url()}});
  EXPECT_EQ(twice.status, 409) << twice.body;
  EXPECT_NE(twice.body.find("already a member of pair 'actor'"), std::string::npos) << twice.body;
  const Reply unknown = change(0, "drain", {{"raeson", "x"}});
  EXPECT_NE(unknown.body.find("'reason'"), std::string::npos) << unknown.body;
}

TEST_F(WorkerChanges, a_change_during_an_update_is_answered_when_it_was_done) {
  serve_v1();
  engines[0]->hold_loads = true;
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates", {{"version", 2}}).status, 202);
  until("a load on its way", [&] { return engines[0]->loads == 2; });
  auto added = std::async(std::launch::async, [this] {
    return call("POST", "/v1/pairs/actor/workers:add", {{"url", engines[2]->url()}, {"dialect", "sglang"}});
  });
  EXPECT_EQ(added.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  on_loop([&] { engines[0]->release(); });
  EXPECT_EQ(added.get().status, 200);
  until("the engine to be brought to v2", [&] { return serves(2, 2); });
}

}  // namespace
}  // namespace weighlock::test
