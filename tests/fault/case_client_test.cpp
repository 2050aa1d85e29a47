// Cases about the caller, time, keys and order.
#include <future>

#include "case_fixture.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock::fault {
namespace {

constexpr const char* kSglangLoad = "/update_weights_from_disk";

// A9
TEST_F(CaseTest, two_updates_at_once_are_both_answered_and_the_later_version_is_served) {
  const auto two = fleet(DialectKind::sglang, 2);
  hold(*two, 0, kSglangLoad);
  auto five = std::async(std::launch::async, [&] { return two->compat_update(5).json(); });
  ASSERT_TRUE(soon([&] { return count(*two, 0, kSglangLoad) == 1; }));
  auto six = std::async(std::launch::async, [&] { return two->compat_update(6).json(); });
  ASSERT_TRUE(
      soon([&] { return lab.call("GET", "/v1/pairs/actor/updates").json().at("items").as_array().size() == 2; }));
  let_go(*two, 0);
  EXPECT_EQ(text_at(five.get(), "status"), "ok");
  const json::value last = six.get();
  EXPECT_EQ(text_at(last, "status"), "ok") << json::serialize(last);
  EXPECT_EQ(find_int(two->pair(), "committed"), 6);
  expect_well(*two);  // each engine says so if two calls of it overlapped
}

// A18
TEST_F(CaseTest, calls_in_a_wrong_order_are_refused_with_the_state_named) {
  const auto one = fleet(DialectKind::sglang, 1);
  const json::value ended = one->update(3);
  ASSERT_EQ(state_of(ended), "succeeded");
  const std::string update = "/v1/pairs/actor/updates/" + text_at(ended, "id");
  const auto refused = [&](const test::Reply& reply, int status, std::string_view word) {
    EXPECT_EQ(reply.status, status) << reply.body;
    expect_in(reply.body, word);
  };
  refused(lab.call("POST", update + ":cancel"), 409, "succeeded");
  const json::value lower = one->update(2);
  EXPECT_EQ(state_of(lower), "rejected");
  expect_in(told(lower), "v3 is committed");
  refused(lab.call("POST", update + "x:cancel"), 404, "not found");
  refused(lab.call("POST", "/v1/pairs/actor/updates", {{"version", 4}, {"lineage", 7}}), 409, "the present one is 1");
  refused(lab.call("POST", "/v1/pairs/nobody/updates", {{"version", 4}}), 404, "nobody");
  ASSERT_EQ(lab.call("DELETE", "/v1/pairs/actor").status, 200);
  refused(lab.call("POST", "/v1/pairs/actor/updates", {{"version", 4}}), 404, "actor");
  refused(lab.call("POST", "/update_weights", {{"pair_name", "actor"}, {"version", 4}}), 404, "Pair 'actor' not found");
  refused(lab.call("POST", "/disconnect", {{"pair_name", "actor"}}), 404, "Pair 'actor' not found");
}

TEST_F(CaseTest, an_update_can_be_cancelled_up_to_its_commit_and_not_while_it_is_undone) {
  const auto two = fleet(DialectKind::sglang, 2);
  hold(*two, 0, kSglangLoad);
  const json::value begun = lab.call("POST", "/v1/pairs/actor/updates", {{"version", 1}}).json();
  const std::string target = "/v1/pairs/actor/updates/" + text_at(begun, "id");
  ASSERT_TRUE(soon([&] { return count(*two, 0, kSglangLoad) == 1; }));
  EXPECT_EQ(lab.call("POST", target + ":cancel").status, 202);
  const test::Reply again = lab.call("POST", target + ":cancel");
  EXPECT_EQ(again.status, 409) << again.body;
  expect_in(again.body, "undone already");
  let_go(*two, 0);
  const json::value ended = lab.call("GET", target + "?wait=30").json();
  EXPECT_EQ(state_of(ended), "rolled_back") << json::serialize(ended);
  expect_in(told(ended), "cancelled");
  expect_well(*two);
}

TEST_F(CaseTest, a_gateway_that_stops_refuses_updates_and_says_so) {
  const auto one = fleet(DialectKind::sglang, 1);
  hold(*one, 0, kSglangLoad);
  ASSERT_EQ(lab.call("POST", "/v1/pairs/actor/updates", {{"version", 1}}).status, 202);
  ASSERT_TRUE(soon([&] { return count(*one, 0, kSglangLoad) == 1; }));
  auto stopped = std::async(std::launch::async, [&] { return lab.stop_gateway(); });
  ASSERT_TRUE(soon([&] { return lab.call("GET", "/readyz").status == 503; }));
  const test::Reply refused = lab.call("POST", "/v1/pairs/actor/updates", {{"version", 2}});
  EXPECT_EQ(refused.status, 503) << refused.body;
  expect_in(refused.body, "shutting down");
  let_go(*one, 0);
  EXPECT_TRUE(stopped.get());
  lab.on_peers([&] {
    EXPECT_FALSE(one->engine(0).paused);
    EXPECT_TRUE(one->engine(0).violations.empty());
  });
}

// A26
class Keys : public CaseTest {
 protected:
  static constexpr const char* kEngineKey = "engine-key-of-this-test";

  void SetUp() override {
    write_file(lab.directory("keys/right"), std::string(kEngineKey) + "\n");
    write_file(lab.directory("keys/wrong"), "another-key\n");
  }
  // `wanted` is the key that the engine wants, from before its first call on: the look behind the connect has it too.
  std::unique_ptr<Fleet> keyed(DialectKind dialect, const std::string& file, const std::string& wanted) {
    Fleet::Shape shape;
    shape.pair = "actor";
    shape.dialect = dialect;
    shape.engines = 1;
    if (!file.empty()) {
      const json::value key{{"file", lab.directory(file)}};
      shape.worker_extra = {{"admin_key", key}, {"api_key", key}};
    }
    auto made = std::make_unique<Fleet>(lab, std::move(shape));
    lab.on_peers([&] { made->engine(0).key = wanted; });
    EXPECT_EQ(made->put(patient_deadlines()).status, 201);
    return made;
  }
};

TEST_F(Keys, key_is_on_every_call_and_never_in_the_log) {
  std::FILE* const file = std::fopen(lab.directory("log").c_str(), "w+");
  ASSERT_NE(file, nullptr);
  log_init(LogLevel::debug);
  log_to(fileno(file));
  for (const DialectKind kind : {DialectKind::sglang, DialectKind::vllm}) {
    const auto one = keyed(kind, "keys/right", kEngineKey);
    EXPECT_EQ(state_of(one->update(1)), "succeeded");
    arm(*one, 0, kind == DialectKind::sglang ? kSglangLoad : "/collective_rpc", Fault::status_500);
    one->update(2);
    lab.on_peers([&] {
      for (const Seen& call : one->engine(0).seen)
        EXPECT_EQ(call.authorization, std::string("Bearer ") + kEngineKey) << call.route;
    });
    EXPECT_EQ(json::serialize(one->workers()).find(kEngineKey), std::string::npos);
  }
  log_flush(Milliseconds(2'000));
  log_to(2);
  log_init(LogLevel::info);
  const std::string log = read_file(lab.directory("log"));
  std::fclose(file);
  EXPECT_FALSE(log.empty());
  EXPECT_EQ(log.find(kEngineKey), std::string::npos) << log;
}

TEST_F(Keys, wrong_key_fails_at_once_after_one_try_and_says_which_key) {
  const auto one = keyed(DialectKind::sglang, "keys/wrong", kEngineKey);
  const Stopwatch watch;
  const json::value ended = one->update(1);
  EXPECT_LT(watch.read(), kBelowAnyDeadline);
  EXPECT_EQ(state_of(ended), "rejected") << json::serialize(ended);
  expect_in(told(ended), "api_key is wrong");
  // The look behind the connect, the start model, and the reading before the pause: no call is repeated after a refused
  // key.
  EXPECT_LE(count(*one, 0, "/server_info"), 3);
  lab.on_peers(
      [&] { EXPECT_EQ(one->engine(0).seen.size(), static_cast<std::size_t>(one->engine(0).count("/server_info"))); });
}

TEST_F(Keys, without_a_key_no_header_is_sent) {
  for (const DialectKind kind : {DialectKind::sglang, DialectKind::vllm}) {
    const auto one = keyed(kind, "", "");
    ASSERT_EQ(state_of(one->update(1)), "succeeded");
    lab.on_peers([&] {
      for (const Seen& call : one->engine(0).seen) EXPECT_EQ(call.authorization, "") << call.route;
    });
  }
}

// A28
TEST_F(CaseTest, an_engine_whose_health_fails_during_an_update_stays_and_is_not_asked_for_it) {
  const auto one = fleet(DialectKind::sglang, 1);
  lab.on_peers([&] {
    one->sglang(0).is_sick = true;
    one->engine(0).late_by = Milliseconds(500);
    one->engine(0).arm(Plan{kSglangLoad, Fault::late});
  });
  EXPECT_EQ(state_of(one->update(1)), "succeeded");
  EXPECT_EQ(count(*one, 0, "/health"), 0);
  expect_well(*one);
}

// A32
TEST_F(CaseTest, deadline_of_a_load_is_the_one_that_was_set_and_no_smaller_one) {
  json::object deadlines = patient_deadlines();
  deadlines["load"] = 4'000;
  for (const int load_ms : {1'000, 6'000}) {
    SCOPED_TRACE(load_ms);
    const auto one = fleet(DialectKind::sglang, 1, {}, deadlines);
    lab.on_peers([&] {
      one->engine(0).late_by = Milliseconds(load_ms);
      one->engine(0).arm(Plan{kSglangLoad, Fault::late});
    });
    const json::value ended = one->update(1);
    EXPECT_EQ(state_of(ended), load_ms < 4'000 ? "succeeded" : "rolled_back") << json::serialize(ended);
    if (load_ms > 4'000) expect_in(told(ended), "no answer within 4000 ms");
  }
}

// A41
TEST_F(CaseTest, an_engine_that_does_one_thing_at_a_time_is_neither_dead_nor_does_it_hold_the_gateway) {
  const auto two = fleet(DialectKind::vllm, 2);
  hold(*two, 0, "/collective_rpc");
  auto update = std::async(std::launch::async, [&] { return two->update(1); });
  ASSERT_TRUE(soon([&] { return count(*two, 0, "/collective_rpc") == 1; }));
  const std::string ready = "/v1/pairs/actor/workers/" + two->engine(0).url().substr(7) + "/ready";
  EXPECT_EQ(lab.call("GET", "/health").status, 200);
  EXPECT_EQ(lab.call("GET", ready).status, 503);  // loading: said from what is known, without asking it
  let_go(*two, 0);
  EXPECT_EQ(state_of(update.get()), "succeeded");
  expect_well(*two);
}

// B25, as far as full models go
TEST_F(CaseTest, a_request_that_is_open_during_an_update_in_mode_keep_is_not_failed_by_us) {
  const auto one = fleet(DialectKind::sglang, 1, {{"pause_mode", "keep"}});
  test::Connection client(std::stoi(one->engine(0).url().substr(one->engine(0).url().rfind(':') + 1)));
  client.send_request("POST", "/generate", {}, R"({"held":true})");
  EXPECT_EQ(state_of(one->update(1)), "succeeded");
  lab.on_peers([&] {
    EXPECT_EQ(one->engine(0).all("/pause_generation")[0]->body, json::value({{"mode", "in_place"}}));
    EXPECT_EQ(find_bool(one->engine(0).all(kSglangLoad)[0]->body, "flush_cache"), false);
    EXPECT_EQ(one->engine(0).count("/abort_request"), 0);
  });
  const test::Reply reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  expect_in(reply.body, "length");
  expect_well(*one);
}

TEST_F(CaseTest, a_request_that_is_held_in_mode_keep_outlives_the_heal_of_its_engine) {
  const auto one = fleet(DialectKind::sglang, 1, {{"pause_mode", "keep"}});
  test::Connection client(std::stoi(one->engine(0).url().substr(one->engine(0).url().rfind(':') + 1)));
  client.send_request("POST", "/generate", {}, R"({"held":true})");
  lab.on_peers([&] {
    one->sglang(0).load_answer = HttpResponse{400, {}, R"({"success":false,"message":"half of it"})"};
  });
  const json::value ended = one->update(1);
  EXPECT_EQ(state_of(ended), "rolled_back") << json::serialize(ended);
  expect_in(told(ended), "half of it");
  lab.on_peers([&] {
    EXPECT_EQ(one->engine(0).count("/abort_request"), 0);
    for (const Seen* load : one->engine(0).all(kSglangLoad)) EXPECT_EQ(find_bool(load->body, "flush_cache"), false);
  });
  const test::Reply reply = client.read_reply();
  EXPECT_EQ(reply.status, 200);
  expect_in(reply.body, "length");
  expect_well(*one);  // back on the start model, and running
}

}  // namespace
}  // namespace weighlock::fault
