// A gateway that starts on what another left: over real sockets and a real journal.
#include <cstdlib>

#include "weighlock/gateway/doorkeeper.hpp"
#include "weighlock/gateway/gateway_fixture.hpp"
#include "weighlock/gateway/version_storage.hpp"

namespace weighlock::test {
namespace {

class GatewayRecoveryTest : public NativeTest {
 protected:
  void SetUp() override {
    NativeTest::SetUp();
    settings.state_dir = directory.path("state");
  }
  // As a crash does it: the gateway goes without a word, whatever runs.
  void die() {
    on_loop([this] { gateway.reset(); });
  }
  void start_again() {
    on_loop([this] {
      auto made = Gateway::make(loop, settings);
      ASSERT_TRUE(made) << made.error().text();
      gateway = *std::move(made);
      ASSERT_TRUE(gateway->listen());
      port = gateway->port();
    });
  }
  void until(const char* what, const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << what;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  // The pair's first update, with engine 0 in its load for as long as the test wants.
  void begin_a_load() {
    start();
    make_pair();
    engines[0]->hold_loads = true;
    ASSERT_EQ(call("POST", "/v1/pairs/actor/updates", {{"version", 1}}, {{"Idempotency-Key", "first"}}).status, 202);
    until("a load", [&] { return engines[0]->loads > 0; });
  }
  void expect_all_running() {
    for (const auto& engine : engines) EXPECT_FALSE(engine->paused) << engine->url();
  }
};

TEST_F(GatewayRecoveryTest, pair_with_its_settings_versions_history_and_keys_is_there_again) {
  start();
  json::object wanted = body();
  wanted["settings"] = {{"evidence", "label"}, {"quorum", "all"}, {"keep_versions", 7}};
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", wanted).status, 201);
  const Reply first = call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 4}}, {{"Idempotency-Key", "four"}});
  ASSERT_EQ(first.json().at("state").as_string(), "succeeded") << first.body;
  // Times of the former process are known to a few milliseconds.
  const auto pair_without_times = [&] {
    json::value shown = call("GET", "/v1/pairs/actor").json();
    EXPECT_TRUE(shown.at("last_update").as_object().at("ended_at").is_string()) << shown;
    shown.at("last_update").as_object().erase("ended_at");
    return shown;
  };
  const json::value before = pair_without_times();
  const json::value workers = call("GET", "/v1/pairs/actor/workers").json();
  die();
  start_again();
  EXPECT_EQ(pair_without_times(), before);
  EXPECT_EQ(call("GET", "/v1/pairs/actor/workers").json(), workers);
  EXPECT_EQ(call("GET", "/readyz").status, 200);
  const int saves = trainers[0]->saves;
  const Reply same = call("POST", "/v1/pairs/actor/updates", {{"version", 4}}, {{"Idempotency-Key", "four"}});
  EXPECT_EQ(same.json().at("id"), first.json().at("id")) << same.body;
  EXPECT_EQ(same.json().at("state").as_string(), "succeeded");
  EXPECT_EQ(trainers[0]->saves, saves);
  const Reply next = call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 5}});
  EXPECT_EQ(next.json().at("state").as_string(), "succeeded") << next.body;
}

TEST_F(GatewayRecoveryTest, keys_that_a_worker_names_by_reference_are_looked_up_again) {
  ::setenv("WEIGHLOCK_TEST_ENGINE_KEY", "engine-secret", 1);
  for (const auto& engine : engines) engine->key = "engine-secret";
  start();
  json::object wanted = body();
  for (json::value& worker : wanted["workers"].as_array())
    worker.as_object()["admin_key"] = {{"env", "WEIGHLOCK_TEST_ENGINE_KEY"}};
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", wanted).status, 201);
  die();
  start_again();
  const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 1}});
  EXPECT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
}

TEST_F(GatewayRecoveryTest, gateway_that_died_in_a_load_is_taken_over_and_its_pair_goes_on) {
  begin_a_load();
  die();
  on_loop([&] { engines[0]->release(); });
  start_again();
  const Reply next = call("POST", "/v1/pairs/actor/updates?wait=20", {{"version", 2}});  // it waits for its turn
  EXPECT_EQ(next.json().at("state").as_string(), "succeeded") << next.body;
  expect_all_running();
  const json::value items = call("GET", "/v1/pairs/actor/updates").json();
  ASSERT_EQ(items.at("items").as_array().size(), 2u);
  EXPECT_EQ(items.at("items").at(1).at("state").as_string(), "rolled_back");
  const Reply same = call("POST", "/v1/pairs/actor/updates", {{"version", 1}}, {{"Idempotency-Key", "first"}});
  EXPECT_EQ(same.json().at("state").as_string(), "rolled_back") << same.body;
}

TEST_F(GatewayRecoveryTest, stop_that_takes_too_long_tells_its_clients_and_leaves_the_rest_to_finish) {
  start();
  make_pair();
  engines[0]->hold_loads = true;
  auto waiting = std::async(std::launch::async, [this] {
    return call("POST", "/v1/pairs/actor/updates?wait=60", {{"version", 1}});
  });
  until("a load", [&] { return engines[0]->loads > 0; });
  engines[0]->hold_reads = true;  // no barrier is answered
  const auto began = std::chrono::steady_clock::now();
  std::promise<bool> stopped;
  on_loop([&] { gateway->stop([&](bool clean) { stopped.set_value(clean); }); });
  EXPECT_FALSE(stopped.get_future().get());
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  EXPECT_EQ(waiting.get().json().at("phase").as_string(), "restoring");
  die();
  engines[0]->hold_reads = false;
  std::promise<std::vector<FinishedWorker>> finished;
  on_loop([&] {
    engines[0]->release();
    auto made = Gateway::make(loop, settings);
    ASSERT_TRUE(made) << made.error().text();
    gateway = *std::move(made);
    gateway->finish([&](const std::vector<FinishedWorker>& workers) { finished.set_value(workers); });
  });
  const std::vector<FinishedWorker> workers = finished.get_future().get();
  ASSERT_FALSE(workers.empty());
  for (const FinishedWorker& worker : workers) {
    EXPECT_FALSE(worker.paused_by_us) << worker.url << ": " << worker.cause;
    EXPECT_EQ(worker.now, "ready") << worker.url << ": " << worker.cause;
  }
  EXPECT_EQ(workers.front().pair, "actor");
  expect_all_running();
}

TEST_F(GatewayRecoveryTest, finish_with_nothing_to_do_reports_nobody) {
  start();
  make_pair();
  die();
  std::promise<std::size_t> finished;
  on_loop([&] {
    gateway = *Gateway::make(loop, settings);
    gateway->finish([&](const std::vector<FinishedWorker>& workers) { finished.set_value(workers.size()); });
  });
  EXPECT_EQ(finished.get_future().get(), 0u);
}

TEST_F(GatewayRecoveryTest, a_gateway_that_another_holds_up_answers_503_until_it_may_start) {
  start();
  make_pair();
  std::unique_ptr<Doorkeeper> door;
  std::unique_ptr<Gateway> second;
  int its_port = 0;
  std::promise<void> taken;
  on_loop([&] {
    auto refused = Gateway::make(loop, settings);
    ASSERT_FALSE(refused);
    ASSERT_EQ(refused.error().code, ErrorCode::conflict);
    door = std::make_unique<Doorkeeper>(loop, settings, refused.error());
    ASSERT_TRUE(door->listen());
    its_port = door->port();
    door->wait(Milliseconds(20'000), [&](Result<std::unique_ptr<Gateway>> made) {
      ASSERT_TRUE(made) << made.error().text();
      second = *std::move(made);
      ASSERT_TRUE(second->listen());
      taken.set_value();
    });
  });
  std::swap(port, its_port);
  const Reply refused = call("GET", "/health");
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("in use by process"), std::string::npos) << refused.body;
  EXPECT_EQ(call("GET", "/v1/pairs").json().at("status").as_int64(), 503);
  die();
  taken.get_future().wait();
  EXPECT_EQ(call("GET", "/health").status, 200);
  EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 200);
  on_loop([&] {
    second.reset();
    door.reset();
  });
}

TEST_F(GatewayRecoveryTest, a_version_that_an_earlier_process_sealed_is_known_again) {
  RealFileSystem files;
  const std::string version = directory.path("w/weight_update_v1");
  protocol::Prepare prepare;
  prepare.save_path = directory.path("w");
  prepare.version = 1;
  protocol::Seal seal;
  seal.save_path = prepare.save_path;
  seal.directory = version;
  VersionStorage before(files, "gateway-a", {});
  ASSERT_EQ(*before.prepare(prepare), version);
  write_single(version);
  ASSERT_TRUE(before.seal(seal));
  const Result<std::string> digest = before.digest(version);
  ASSERT_TRUE(digest) << digest.error().text();
  VersionStorage after(files, "gateway-b", {});
  EXPECT_FALSE(after.expectations_of(version));
  after.recall(version);
  ASSERT_TRUE(after.expectations_of(version));
  EXPECT_EQ(after.expectations_of(version)->tensors.size(), before.expectations_of(version)->tensors.size());
  EXPECT_EQ(*after.digest(version), *digest);
  after.recall(directory.path("nowhere"));
  EXPECT_FALSE(after.expectations_of(directory.path("nowhere")));
}

}  // namespace
}  // namespace weighlock::test
