// Between updates, over real sockets: engines that restart, refuse and come back serve the committed version again
// without any request.
#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

class GatewayReconcileTest : public NativeTest {
 protected:
  void SetUp() override {
    NativeTest::SetUp();
    settings.state_dir = directory.path("state");
  }
  void serve_v7() {
    start();
    make_pair();
    const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 7}});
    ASSERT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
  }
  void until(const char* what, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  json::value worker_view(std::size_t i) {
    const json::value items = call("GET", "/v1/pairs/actor/workers").json();
    return items.at("items").at(i);
  }
  std::size_t index_of(const std::string& url) {
    const json::value items = call("GET", "/v1/pairs/actor/workers").json();
    for (std::size_t i = 0; i < items.at("items").as_array().size(); ++i) {
      if (items.at("items").at(i).at("url").as_string() == url) return i;
    }
    ADD_FAILURE() << url;
    return 0;
  }
  bool serves_v7(std::size_t i) {
    const json::value view = worker_view(index_of(engines[i]->url()));
    return view.at("state").as_string() == "ready" && view.at("version").is_int64() &&
           view.at("version").as_int64() == 7;
  }
  void restart_engine(std::size_t i) {
    on_loop([&] { engines[i]->restart(directory.path("start")); });
  }
  void expect_holds_v7(std::size_t i) {
    on_loop([&] {
      EXPECT_EQ(engines[i]->label, "7");
      EXPECT_NE(engines[i]->path, directory.path("start"));
    });
    EXPECT_FALSE(engines[i]->paused);
  }
};

TEST_F(GatewayReconcileTest, an_engine_that_restarts_between_updates_serves_the_version_again) {
  serve_v7();
  const int others = engines[0]->loads;
  restart_engine(1);
  until("the engine to be loaded again", [&] { return engines[1]->loads == 2 && serves_v7(1); });
  expect_holds_v7(1);
  EXPECT_EQ(engines[0]->loads, others);
  const json::value items = call("GET", "/v1/pairs/actor/updates").json();
  EXPECT_EQ(items.at("items").as_array().size(), 1u);  // it is no update
}

// Its client says "sglang" of it, and goes on saying so.
TEST_F(GatewayReconcileTest, an_engine_that_the_other_one_replaces_on_its_address_serves_the_version_again) {
  using namespace std::chrono_literals;
  settings.watch_period = 20ms;
  settings.idle_watch_period = 100ms;
  serve_v7();
  on_loop([&] { engines[1]->replace(directory.path("start"), true); });
  until("the vLLM to be loaded", [&] { return engines[1]->loads == 2 && serves_v7(1); });
  expect_holds_v7(1);
  EXPECT_EQ(worker_view(index_of(engines[1]->url())).at("dialect").as_string(), "vllm");
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", body()).status, 200);
  const Reply next = call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 8}});
  EXPECT_EQ(next.json().at("state").as_string(), "succeeded") << next.body;
  EXPECT_EQ(engines[1]->loads, 3);
  on_loop([&] {
    EXPECT_EQ(engines[1]->label, "8");
    gateway.reset();
    engines[1]->replace(directory.path("start"), false);
    auto made = Gateway::make(loop, settings);
    ASSERT_TRUE(made) << made.error().text();
    gateway = *std::move(made);
    ASSERT_TRUE(gateway->listen());
    port = gateway->port();
  });
  EXPECT_EQ(worker_view(index_of(engines[1]->url())).at("dialect").as_string(), "vllm");  // by the journal
  until("the SGLang to be loaded", [&] {
    return engines[1]->loads == 4 && worker_view(index_of(engines[1]->url())).at("state").as_string() == "ready";
  });
  on_loop([&] { EXPECT_EQ(engines[1]->label, "8"); });
  EXPECT_EQ(worker_view(index_of(engines[1]->url())).at("dialect").as_string(), "sglang");
  EXPECT_FALSE(engines[1]->paused);
}

TEST_F(GatewayReconcileTest, an_engine_that_is_never_idle_in_mode_keep_holds_no_update_up_and_is_flushed_later) {
  start();
  make_pair();
  engines[2]->refuse_flushes = true;
  const auto began = std::chrono::steady_clock::now();
  const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=60",
                           {{"version", 7}, {"policy", json::object{{"pause_mode", "keep"}}}});
  ASSERT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));  // once 30 s, the resume's deadline
  EXPECT_NE(reply.body.find("flush_failed"), std::string::npos) << reply.body;
  const std::size_t i = index_of(engines[2]->url());
  const json::value view = worker_view(i);
  EXPECT_EQ(view.at("state").as_string(), "ready");
  ASSERT_TRUE(view.as_object().contains("flush_owed"));
  EXPECT_EQ(view.at("flush_owed").at("version").as_int64(), 7);
  EXPECT_TRUE(view.at("flush_owed").at("since").is_string());
  const std::string owing = "weighlock_flush_owed_workers{pair=\"actor\"} ";
  EXPECT_NE(raw_call("GET", "/metrics", "", {}).body.find(owing + "1\n"), std::string::npos);
  engines[2]->refuse_flushes = false;
  until("the flush", [&] { return !worker_view(i).as_object().contains("flush_owed"); });
  EXPECT_NE(raw_call("GET", "/metrics", "", {}).body.find(owing + "0\n"), std::string::npos);
}

TEST_F(GatewayReconcileTest, an_engine_that_somebody_else_paused_is_counted) {
  start();
  const std::string held = "weighlock_paused_by_other_workers{pair=\"actor\"} 1\n";
  const auto workers = [&] { return call("GET", "/v1/pairs/actor").json().at("workers"); };
  engines[2]->paused = true;
  make_pair();
  until("the pause to be seen", [&] { return workers().at("paused_by_other").as_int64() == 1; });
  EXPECT_EQ(workers().at("ready"), workers().at("total")) << "by its state";
  EXPECT_EQ(worker_view(index_of(engines[2]->url())).at("state").as_string(), "ready");
  EXPECT_NE(raw_call("GET", "/metrics", "", {}).body.find(held), std::string::npos);
}

TEST_F(GatewayReconcileTest, an_engine_that_refused_a_load_is_brought_back_when_it_takes_one) {
  start();
  make_pair();
  engines[2]->refuse_loads = true;
  const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 7}});
  ASSERT_EQ(reply.json().at("state").as_string(), "degraded") << reply.body;
  until("a try that fails",
        [&] { return worker_view(index_of(engines[2]->url())).as_object().contains("joins_failed"); });
  until("it to be fenced between two tries",
        [&] { return worker_view(index_of(engines[2]->url())).at("state").as_string() == "quarantined"; });
  engines[2]->refuse_loads = false;
  until("the engine to serve", [&] { return serves_v7(2); });
  expect_holds_v7(2);
}

TEST_F(GatewayReconcileTest, a_gateway_that_starts_reads_its_workers_before_it_believes_them) {
  serve_v7();
  on_loop([&] {
    gateway.reset();
    engines[0]->restart(directory.path("start"));
    engines[1]->label = "57";  // of another gateway
    auto made = Gateway::make(loop, settings);
    ASSERT_TRUE(made) << made.error().text();
    gateway = *std::move(made);
    ASSERT_TRUE(gateway->listen());
    port = gateway->port();
  });
  until("the restarted one to serve", [&] { return engines[0]->loads == 2 && serves_v7(0); });
  expect_holds_v7(0);
  until("the other's update to be seen", [&] {
    const json::value view = worker_view(index_of(engines[1]->url()));
    return view.at("cause").is_object() && view.at("cause").at("code").as_string() == "foreign";
  });
  EXPECT_EQ(engines[1]->loads, 1);
}

TEST_F(GatewayReconcileTest, a_silent_engine_is_told_to_the_fence_hook_once_and_serves_again_when_it_answers) {
  using namespace std::chrono_literals;
  const std::string program = directory.path("hook");
  const std::string told = directory.path("told");
  write_file(program, "#!/bin/sh\nprintf '%s|' \"$1\" \"$2\" \"$3\" >> '" + told + "'\n");
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  settings.fence = program;
  settings.watch_period = 20ms;
  settings.idle_watch_period = 100ms;
  settings.watch_read_timeout = 500ms;
  serve_v7();
  EXPECT_FALSE(std::filesystem::exists(told));
  engines[1]->silent = true;
  const std::string expected = engines[1]->url() + "|actor|unreachable|";
  until("the hook to be run",
        [&] { return std::filesystem::exists(told) && read_file(told).size() >= expected.size(); });
  const json::value view = worker_view(index_of(engines[1]->url()));
  EXPECT_EQ(view.at("state").as_string(), "quarantined");
  EXPECT_EQ(view.at("cause").at("code").as_string(), "unreachable");
  const int asked = engines[1]->requests;
  until("more looks at it", [&] { return engines[1]->requests > asked + 2; });
  EXPECT_EQ(read_file(told), expected) << "once, and nobody else";
  engines[1]->silent = false;
  until("the engine to serve", [&] { return serves_v7(1); });
  EXPECT_EQ(engines[1]->loads, 1) << "it was only out of reach";
  EXPECT_FALSE(engines[1]->paused);
}

TEST_F(GatewayReconcileTest, a_pair_without_a_lease_is_watched_and_not_touched) {
  start();
  json::object wanted = body();
  wanted["settings"] = {{"evidence", "label"}, {"pair_lease_ms", 0}};
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", wanted).status, 201);
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 7}}).json().at("state").as_string(),
            "succeeded");
  EXPECT_EQ(call("GET", "/v1/pairs/actor").json().at("state").as_string(), "dormant");
  restart_engine(1);
  until("the new process to be seen",
        [&] { return worker_view(index_of(engines[1]->url())).at("state").as_string() == "joining"; });
  EXPECT_EQ(engines[1]->loads, 1);
  EXPECT_FALSE(engines[1]->paused);
}

}  // namespace
}  // namespace weighlock::test
