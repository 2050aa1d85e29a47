// Re-connect, disconnect and time, while an update is in each of its states: over real sockets.
//
// COMMITTING lasts one fsync, which nothing here can hold: MachineTest has its part.
#include <fmt/format.h>

#include <chrono>

#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

constexpr const char* kLoad = "/update_weights_from_disk";
constexpr Milliseconds kReplyBy{300};  // nothing has to be done by then
constexpr const char* kContinue = "/continue_generation";

// Where the update is held.
enum class At { queued, preparing, pausing, loading, verifying, resuming, restoring };

std::string word(At at) {
  switch (at) {
    case At::queued:
      return "queued";
    case At::preparing:
      return "preparing";
    case At::pausing:
      return "pausing";
    case At::loading:
      return "loading";
    case At::verifying:
      return "verifying";
    case At::resuming:
      return "resuming";
    case At::restoring:
      return "restoring";
  }
  return "";
}

// A request whose answer is read later.
struct Asked {
  std::unique_ptr<Connection> connection;
  Reply read() const { return connection->read_reply(); }
};

class Reconnect : public GatewayTest {
 protected:
  Asked ask(const std::string& target, const json::value& body) const {
    Asked asked{std::make_unique<Connection>(port)};
    asked.connection->send_request("POST", target, {{"Authorization", std::string("Bearer ") + kKey}},
                                   json::serialize(body));
    return asked;
  }
  Asked ask_update(std::int64_t version) const {
    return ask("/update_weights", {{"pair_name", "actor"}, {"version", version}});
  }

  // The phase of the newest update of `version`; "" before there is one.
  std::string phase_of(std::int64_t version) {
    const json::value list = call("GET", "/v1/pairs/actor/updates").json();
    const json::array* items = list.is_object() ? list.as_object().if_contains("items")->if_array() : nullptr;
    for (const json::value& item : items ? *items : json::array()) {
      if (item.at("version").as_int64() == version && item.at("state").as_string() == "running")
        return std::string(item.at("phase").as_string());
    }
    return "";
  }
  void wait_until(const std::string& what, const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!holds()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "not within 30 s: " << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  bool serves(std::int64_t version) {
    const json::value pair = call("GET", "/v1/pairs/actor").json();
    return pair.at("committed").is_int64() && pair.at("committed").as_int64() == version &&
           pair.at("state").as_string() == "idle";
  }
  // However late the answer: `reply_by` may be short.
  void bring_to(std::int64_t version) {
    ask_update(version).read();
    wait_until("the first update", [&] { return serves(version); });
  }
  bool holds(std::size_t engine) {
    bool is_held = false;
    on_loop([&] { is_held = engines[engine]->holds_one(); });
    return is_held;
  }
  void hold(const std::string& route) {
    on_loop([&] { engines[0]->hold = route; });
  }
  void let_go() {
    on_loop([&] {
      engines[0]->let_go();
      if (trainers[0]->hold) trainers[0]->release();
    });
  }

  // Begins an update of `version` and leaves it where it is asked for. The answer is to be read when it was let go.
  Asked begin(At at, std::int64_t version) {
    if (at == At::queued) {
      hold(kLoad);
      first_ = ask_update(version - 1);
      wait_until("a held load", [&] { return holds(0); });
    }
    const int saves = trainers[0]->saves;
    if (at == At::preparing) trainers[0]->hold = true;
    if (at == At::pausing) hold("/pause_generation");
    if (at == At::loading || at == At::verifying) hold(kLoad);
    if (at == At::resuming || at == At::restoring) hold(kContinue);
    if (at == At::restoring) engines[1]->refuse_loads = engines[2]->refuse_loads = true;  // the quorum is lost
    Asked asked = ask_update(version);
    if (at == At::verifying) {
      wait_until("a held load", [&] { return holds(0); });
      on_loop([&] {
        engines[0]->let_go();
        engines[0]->hold = "/server_info";
      });
    }
    if (at == At::preparing) wait_until("a held save", [&] { return trainers[0]->saves > saves; });
    wait_until(word(at), [&] { return phase_of(version) == word(at); });
    if (at == At::pausing || at == At::loading || at >= At::verifying)
      wait_until("a held request", [&] { return holds(0); });
    return asked;
  }
  // What ended the update that `begin` left in `at`, after it was let go.
  void expect_ended(At at, const Reply& reply, std::string_view cancelled_because) const {
    const json::value body = reply.json();
    ASSERT_EQ(reply.status, 200) << reply.body;
    const bool cancelled = at == At::queued || at == At::preparing;
    const std::string expected = cancelled || at == At::restoring ? "error" : "ok";
    EXPECT_EQ(body.at("status").as_string(), expected) << reply.body;
    if (cancelled) {
      EXPECT_NE(reply.body.find(cancelled_because), std::string::npos) << reply.body;
    }
  }
  void expect_all_run() {
    on_loop([&] {
      for (const auto& engine : engines) EXPECT_FALSE(engine->paused) << engine->url();
    });
  }

  Asked first_;  // At::queued: the update that runs before
};

class WhileItRuns : public Reconnect, public ::testing::WithParamInterface<At> {
 protected:
  bool waited_for() const { return GetParam() != At::preparing; }  // queued: the one before it is
  // A trainer whose save has not ended is not asked again; the others are.
  void expect_welcome(std::int64_t version) {
    if (GetParam() == At::preparing) {
      const json::value refused = update(version).json();
      EXPECT_NE(refused.at("error").as_string().find(trainers[0]->url()), std::string::npos);
      let_go();
      wait_until("the end of the old save", [&] { return update(version).json().at("status").as_string() == "ok"; });
    } else {
      const Reply reply = update(version);
      EXPECT_EQ(reply.json().at("status").as_string(), "ok") << reply.body;
    }
  }
};

TEST_P(WhileItRuns, the_same_pair_with_the_same_workers_starts_a_lineage_in_which_5_after_42_is_welcome) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  ASSERT_EQ(update(42).json().at("status").as_string(), "ok");
  const Asked running = begin(GetParam(), 44);
  const Asked again = ask("/connect", connect_body());
  if (waited_for()) {
    wait_until("a re-connect that waits",
               [&] { return update(50).body.find("being connected again") != std::string::npos; });
    let_go();
  }
  expect_ended(GetParam(), running.read(), "connected again");
  const Reply connected = again.read();
  EXPECT_EQ(connected.status, 200) << connected.body;
  if (GetParam() == At::queued) {
    EXPECT_EQ(first_.read().json().at("status").as_string(), "ok");
  }
  for (const auto& engine : engines) engine->refuse_loads = false;
  EXPECT_EQ(call("GET", "/v1/pairs/actor").json().at("lineage").as_int64(), 2);
  expect_welcome(5);
  expect_all_run();
  on_loop([&] {
    for (const auto& engine : engines) EXPECT_EQ(engine->label, "5");
  });
}

TEST_P(WhileItRuns, the_same_pair_with_other_workers_lets_the_leaving_one_run_and_brings_the_new_one_in) {
  auto newcomer = std::make_unique<FakeEngine>(loop, directory.path("start"));
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  ASSERT_EQ(update(42).json().at("status").as_string(), "ok");
  const Asked running = begin(GetParam(), 44);
  json::object body = connect_body();
  json::array workers{json::string(engines[0]->url()), json::string(engines[1]->url()), json::string(newcomer->url())};
  body["inference_worker_urls"] = workers;
  const Asked again = ask("/connect", body);
  if (waited_for()) {
    wait_until("a re-connect that waits",
               [&] { return update(50).body.find("being connected again") != std::string::npos; });
    let_go();
  }
  expect_ended(GetParam(), running.read(), "connected again");
  EXPECT_EQ(again.read().status, 200);
  for (const auto& engine : engines) engine->refuse_loads = false;
  expect_all_run();  // the one that left too
  const std::string left = engines[2]->label;
  expect_welcome(5);
  on_loop([&] {
    EXPECT_EQ(engines[0]->label, "5");
    EXPECT_EQ(engines[2]->label, left);
    EXPECT_EQ(newcomer->label, "5");
    EXPECT_FALSE(newcomer->paused);
  });
  const json::value pair = call("GET", "/v1/pairs/actor").json();
  EXPECT_EQ(pair.at("workers").at("ready").as_int64(), 3) << json::serialize(pair);
  on_loop([&] {
    gateway.reset();
    newcomer.reset();
  });
}

TEST_P(WhileItRuns, disconnect_ends_it_and_leaves_every_engine_running) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  ASSERT_EQ(update(42).json().at("status").as_string(), "ok");
  const Asked running = begin(GetParam(), 44);
  const Asked gone = ask("/disconnect", {{"pair_name", "actor"}});
  if (waited_for()) {
    wait_until("a disconnect that waits", [&] { return update(50).body.find("being removed") != std::string::npos; });
    let_go();
  }
  expect_ended(GetParam(), running.read(), "disconnected");
  const Reply answer = gone.read();
  EXPECT_EQ(answer.body, R"({"status":"ok","pair_name":"actor"})");
  let_go();
  expect_all_run();
  EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404);
  const Reply unknown = update(45);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body, R"({"error":"Pair 'actor' not found"})");
}

TEST_P(WhileItRuns, a_connect_that_waited_for_reply_by_is_409_with_what_goes_on_and_takes_effect_later) {
  if (waited_for()) settings.reply_by = kReplyBy;
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  bring_to(42);
  const Asked running = begin(GetParam(), 44);
  const Reply refused = ask("/connect", connect_body()).read();
  if (!waited_for()) {
    EXPECT_EQ(refused.status, 200) << refused.body;
    return;
  }
  EXPECT_EQ(refused.status, 409) << refused.body;
  const std::string held = GetParam() == At::queued ? "v43" : "v44";
  const std::string phase = GetParam() == At::queued ? "loading" : word(GetParam());
  EXPECT_NE(refused.body.find(held), std::string::npos) << refused.body;
  EXPECT_NE(refused.body.find("still in " + phase), std::string::npos) << refused.body;
  let_go();
  wait_until("the new lineage", [&] { return call("GET", "/v1/pairs/actor").json().at("lineage").as_int64() == 2; });
  running.read();
}

TEST_P(WhileItRuns, the_client_is_answered_at_reply_by_with_what_goes_on_and_the_next_update_waits_behind) {
  settings.reply_by = kReplyBy;
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  bring_to(42);
  begin(GetParam(), 44).read();
  const Asked same = ask_update(44);  // joins it: what it is told is what goes on now
  const Asked next = ask_update(45);
  const Reply early = same.read();
  ASSERT_EQ(early.status, 200) << early.body;
  EXPECT_EQ(early.json().at("status").as_string(), "error");
  EXPECT_NE(early.body.find("still in " + word(GetParam())), std::string::npos) << early.body;
  EXPECT_NE(early.body.find("committed: "), std::string::npos) << early.body;
  const Reply behind = next.read();
  EXPECT_NE(behind.body.find("still in queued"), std::string::npos) << behind.body;
  for (const auto& engine : engines) engine->refuse_loads = false;
  let_go();
  wait_until("the update behind it", [&] { return serves(45); });
  expect_all_run();
}

INSTANTIATE_TEST_SUITE_P(Every, WhileItRuns,
                         ::testing::Values(At::queued, At::preparing, At::pausing, At::loading, At::verifying,
                                           At::resuming, At::restoring),
                         [](const auto& each) { return word(each.param); });

TEST_F(Reconnect, concurrent_updates_queue_and_every_client_is_answered) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  const Asked first = begin(At::loading, 1);
  std::vector<Asked> others;
  for (std::int64_t version = 2; version <= 5; ++version) others.push_back(ask_update(version));
  others.push_back(ask_update(5));  // a repetition: the same update
  wait_until("a full queue", [&] { return phase_of(5) == "queued"; });
  let_go();
  EXPECT_EQ(first.read().json().at("status").as_string(), "ok");
  for (const Asked& other : others) {
    const Reply reply = other.read();
    EXPECT_EQ(reply.json().at("status").as_string(), "ok") << reply.body;
  }
  EXPECT_EQ(trainers[0]->saves, 5);
  EXPECT_EQ(call("GET", "/v1/pairs/actor").json().at("committed").as_int64(), 5);
}

TEST_F(Reconnect, a_client_that_hangs_up_does_not_cancel_its_update) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  begin(At::loading, 1).connection.reset();
  let_go();
  wait_until("the update", [&] { return serves(1); });
  expect_all_run();
}

TEST_F(Reconnect, of_two_disconnects_both_are_answered) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  const Asked running = begin(At::loading, 1);
  const Asked one = ask("/disconnect", {{"pair_name", "actor"}});
  const Asked two = ask("/disconnect", {{"pair_name", "actor"}});
  wait_until("a disconnect that waits", [&] { return update(50).body.find("being removed") != std::string::npos; });
  let_go();
  EXPECT_EQ(running.read().json().at("status").as_string(), "ok");
  const Reply first = one.read();
  const Reply second = two.read();
  EXPECT_EQ(first.status, 200) << first.body;
  EXPECT_TRUE(second.status == 200 || second.status == 404) << second.body;  // 404: it came when the pair was gone
  expect_all_run();
}

TEST_F(Reconnect, of_two_that_wait_the_newer_one_counts_and_the_older_is_told) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  const Asked running = begin(At::loading, 1);
  const Asked older = ask("/connect", connect_body());
  wait_until("a re-connect that waits",
             [&] { return update(50).body.find("being connected again") != std::string::npos; });
  const Asked newer = ask("/connect", connect_body());
  const Reply told = older.read();
  EXPECT_GE(told.status, 400);
  EXPECT_NE(told.body.find("was connected again"), std::string::npos) << told.body;
  let_go();
  EXPECT_EQ(running.read().json().at("status").as_string(), "ok");
  EXPECT_EQ(newer.read().status, 200);
}

TEST_F(Reconnect, a_worker_that_another_pair_took_meanwhile_is_refused_when_the_wait_is_over) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  auto wanted = std::make_unique<FakeEngine>(loop, directory.path("start"));
  const Asked running = begin(At::loading, 1);
  json::object more = connect_body();
  more["inference_worker_urls"].as_array().push_back(json::string(wanted->url()));
  const Asked waiting = ask("/connect", more);
  wait_until("a re-connect that waits",
             [&] { return update(50).body.find("being connected again") != std::string::npos; });
  json::object other = connect_body();
  other["pair_name"] = "critic";
  other["inference_worker_urls"] = json::array{json::string(wanted->url())};
  ASSERT_EQ(call("POST", "/connect", other).status, 200);
  let_go();
  EXPECT_EQ(running.read().json().at("status").as_string(), "ok");
  const Reply refused = waiting.read();
  EXPECT_EQ(refused.status, 409) << refused.body;
  EXPECT_NE(refused.body.find("critic"), std::string::npos) << refused.body;
  EXPECT_EQ(update(2).json().at("status").as_string(), "ok") << "the pair is what it was";
  on_loop([&] {
    gateway.reset();
    wanted.reset();
  });
}

}  // namespace
}  // namespace weighlock::test
