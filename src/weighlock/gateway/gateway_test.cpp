// long because every route group is seen through one started gateway.
// The gateway as its clients see it: compatible and native routes over real sockets, with real files.
#include "weighlock/gateway/gateway_fixture.hpp"

#include <fmt/format.h>

#include "weighlock/journal/sqlite_journal.hpp"

namespace weighlock::test {
namespace {

TEST_F(GatewayTest, an_update_brings_every_engine_to_the_saved_version_and_running) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).body, R"({"pair_name":"actor"})");
  const Reply reply = update(1);
  const json::value body = reply.json();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(body.at("status").as_string(), "ok") << reply.body;
  EXPECT_EQ(body.at("version").as_int64(), 1);
  EXPECT_TRUE(body.at("error").is_null());
  EXPECT_TRUE(body.at("duration_ms").is_double());
  EXPECT_FALSE(body.at("degraded").as_bool());
  EXPECT_EQ(body.at("verdicts").as_object().size(), 3u);
  on_loop([&] {
    for (const auto& engine : engines) {
      EXPECT_EQ(engine->path, directory.path("w/weight_update_v1"));
      EXPECT_EQ(engine->label, "1");
      EXPECT_FALSE(engine->paused);
    }
    for (const auto& trainer : trainers) EXPECT_EQ(trainer->saves, 1);
  });
  EXPECT_TRUE(std::filesystem::exists(directory.path("w/weight_update_v1/weighlock.manifest.json")));
}

TEST_F(GatewayTest, a_keyed_engine_is_driven_by_the_compatible_routes_alone_with_the_gateways_key_for_all) {
  for (const auto& engine : engines) engine->key = "engine-secret";
  settings.engine_credentials.admin_key = "engine-secret";
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  const Reply reply = update(1);
  EXPECT_EQ(reply.json().at("status").as_string(), "ok") << reply.body;
  EXPECT_EQ(reply.body.find("engine-secret"), std::string::npos);
}

// The looks that begin with it only read, and its answer doesn't wait for them.
TEST_F(GatewayTest, connect_in_disk_mode_waits_for_nobody_and_changes_nothing) {
  for (const auto& engine : engines) engine->silent = true;
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  for (const auto& engine : engines) {
    EXPECT_EQ(engine->loads, 0);
    EXPECT_FALSE(engine->paused);
  }
  for (const auto& trainer : trainers) EXPECT_EQ(trainer->saves, 0);
}

TEST_F(GatewayTest, a_failed_save_is_an_error_that_names_the_rank_and_touches_no_engine) {
  start();
  trainers[1]->fail = true;
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  const json::value body = update(1).json();
  EXPECT_EQ(body.at("status").as_string(), "error");
  const std::string text(body.at("error").as_string());
  EXPECT_NE(text.find("CUDA out of memory"), std::string::npos) << text;
  EXPECT_NE(text.find(trainers[1]->url()), std::string::npos) << text;
  EXPECT_NE(text.find("committed: false"), std::string::npos) << text;
  for (const auto& engine : engines) EXPECT_EQ(engine->loads, 0);
  const json::value last = call("GET", "/v1/pairs/actor").json().at("last_update");
  EXPECT_EQ(last.at("version").as_int64(), 1);
  EXPECT_EQ(last.at("error").as_string(), text) << "whoever looks at the pair later sees it too";
}

TEST_F(GatewayTest, one_engine_that_refuses_the_load_leaves_the_update_degraded_and_is_named) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  engines[1]->refuse_loads = true;
  const json::value body = update(6).json();
  EXPECT_EQ(body.at("status").as_string(), "ok") << json::serialize(body);
  EXPECT_TRUE(body.at("degraded").as_bool());
  const std::string text(body.at("detail").as_string());
  EXPECT_NE(text.find("pair 'actor' v6: degraded: 2/3 ready"), std::string::npos) << text;
  EXPECT_NE(text.find(engines[1]->url()), std::string::npos) << text;
  EXPECT_NE(text.find("disk on fire"), std::string::npos) << text;
}

TEST_F(GatewayTest, a_quorum_that_fails_is_an_error_with_the_configured_status) {
  settings.compat_error_status = 409;
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  for (const auto& engine : engines) engine->refuse_loads = true;
  const Reply reply = update(1);
  EXPECT_EQ(reply.status, 409);
  EXPECT_EQ(reply.json().at("status").as_string(), "error");
  EXPECT_FALSE(reply.json().at("error").as_string().empty());
}

TEST_F(GatewayTest, the_compatible_client_is_answered_before_its_own_time_out) {
  settings.reply_by = Milliseconds(200);
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  engines[0]->hold_loads = true;
  const json::value body = update(1).json();
  EXPECT_EQ(body.at("status").as_string(), "error");
  const std::string text(body.at("error").as_string());
  EXPECT_NE(text.find("still in"), std::string::npos) << text;
  EXPECT_NE(text.find("committed: undecided"), std::string::npos) << text;
  const std::string id(body.at("update_id").as_string());
  on_loop([&] { engines[0]->release(); });
  const Reply ended = call("GET", "/v1/pairs/actor/updates/" + id + "?wait=10");
  EXPECT_EQ(ended.json().at("state").as_string(), "succeeded") << ended.body;
}

TEST_F(GatewayTest, keys_are_asked_for_and_bodies_are_judged_first) {
  start();
  const std::string missing = R"({"detail":"Missing or malformed Authorization header. Expected 'Bearer <token>'."})";
  const std::string good = R"({"pair_name":"x"})";
  const Reply none = raw_call("POST", "/update_weights", good, {});
  EXPECT_EQ(none.status, 401);
  EXPECT_EQ(none.body, missing);
  EXPECT_EQ(raw_call("POST", "/update_weights", good, {{"Authorization", "Basic eDp5"}}).body, missing);
  const Reply wrong = raw_call("POST", "/update_weights", good, {{"Authorization", "Bearer nope"}});
  EXPECT_EQ(wrong.status, 403);
  EXPECT_EQ(wrong.body, R"({"detail":"Admin API key required."})");
  EXPECT_EQ(raw_call("POST", "/update_weights", good, {{"Authorization", "Bearer \xc3\xa9"}}).status, 403);
  EXPECT_EQ(raw_call("POST", "/update_weights", good, {{"Authorization", "bearer   secret-key  "}}).body,
            R"({"error":"Pair 'x' not found"})");
  EXPECT_EQ(raw_call("POST", "/update_weights", "{}", {}).status, 422);
  const Reply native = raw_call("PUT", "/v1/pairs/x", "{}", {});
  EXPECT_EQ(native.status, 401);
  EXPECT_EQ(native.json().at("code").as_string(), "unauthenticated");
}

TEST_F(GatewayTest, the_small_compatible_answers_are_literal) {
  start();
  EXPECT_EQ(raw_call("GET", "/health", "", {}).body, R"({"status":"healthy"})");
  EXPECT_EQ(raw_call("GET", "/health/", "", {}).body, R"({"status":"healthy"})");
  EXPECT_EQ(raw_call("GET", "/nowhere", "", {}).body, R"({"detail":"Not Found"})");
  const Reply verb = raw_call("GET", "/connect", "", {});
  EXPECT_EQ(verb.status, 405);
  EXPECT_EQ(verb.body, R"({"detail":"Method Not Allowed"})");
  EXPECT_NE(verb.head.find("Allow: POST"), std::string::npos) << verb.head;
  EXPECT_EQ(call("POST", "/disconnect", {{"pair_name", "x"}}).body, R"({"error":"Pair 'x' not found"})");
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  EXPECT_EQ(call("POST", "/disconnect", {{"pair_name", "actor"}}).body, R"({"status":"ok","pair_name":"actor"})");
  EXPECT_EQ(update(1).body, R"({"error":"Pair 'actor' not found"})");
}

TEST_F(GatewayTest, what_connect_refuses_it_refuses_in_the_known_words) {
  start();
  const auto refused = [&](const char* key, json::value value) {
    json::object body = connect_body();
    body[key] = std::move(value);
    const Reply reply = call("POST", "/connect", body);
    EXPECT_EQ(reply.status, 400) << reply.body;
    return std::string(reply.json().at("error").as_string());
  };
  EXPECT_EQ(refused("save_path", ""), "save_path is required when mode='disk'");
  EXPECT_EQ(refused("save_path", "w"), "save_path must be an absolute path when mode='disk'");
  EXPECT_EQ(refused("use_lora", true), "lora_name is required when use_lora=True");
  EXPECT_NE(refused("mode", "bogus").find("'bogus'"), std::string::npos);
  EXPECT_NE(refused("pair_name", "").find("pair_name"), std::string::npos);
  EXPECT_NE(refused("train_worker_urls", json::array{}).find("train_worker_urls"), std::string::npos);
  EXPECT_NE(refused("inference_worker_urls", json::array{"http://a:1", "http://A:1/"}).find("inference_worker_urls[1]"),
            std::string::npos);
  EXPECT_NE(refused("inference_worker_urls", json::array{"http://0.0.0.0:1"}).find("wildcard"), std::string::npos);
  EXPECT_NE(refused("settings", json::object{{"quorun", "all"}}).find("did you mean 'quorum'"), std::string::npos);
  json::object awex = connect_body();
  awex["mode"] = "awex";
  awex["use_lora"] = true;
  EXPECT_EQ(call("POST", "/connect", awex).json().at("error").as_string(),
            "awex weight update does not support LoRA; set actor.weight_update_mode=disk in your config.");
}

TEST_F(GatewayTest, connecting_again_starts_a_new_lineage) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  ASSERT_EQ(update(5).json().at("status").as_string(), "ok");
  EXPECT_EQ(update(4).json().at("status").as_string(), "error");
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  const Reply again = update(4);
  EXPECT_EQ(again.json().at("status").as_string(), "ok") << again.body;
  EXPECT_EQ(call("GET", "/v1/pairs/actor").json().at("lineage").as_int64(), 2);
}

TEST_F(NativeTest, a_pair_is_made_shown_changed_and_removed) {
  start();
  make_pair();
  EXPECT_EQ(call("PUT", "/v1/pairs/actor", body()).status, 200);
  const json::value shown = call("GET", "/v1/pairs/actor").json();
  EXPECT_EQ(shown.at("name").as_string(), "actor");
  EXPECT_EQ(shown.at("lineage").as_int64(), 1);
  EXPECT_TRUE(shown.at("committed").is_null());
  EXPECT_TRUE(shown.at("last_update").is_null());
  EXPECT_TRUE(shown.at("transfer").is_null());
  EXPECT_EQ(shown.at("trainers").as_array().size(), trainers.size());
  EXPECT_EQ(shown.at("workers").at("total").as_int64(), 3);
  EXPECT_EQ(call("GET", "/v1/pairs").json().at("items").as_array().size(), 1u);
  EXPECT_EQ(call("DELETE", "/v1/pairs/actor").status, 200);
  const Reply gone = call("GET", "/v1/pairs/actor");
  EXPECT_EQ(gone.status, 404);
  EXPECT_EQ(gone.json().at("code").as_string(), "not_found");
  EXPECT_NE(gone.head.find("application/problem+json"), std::string::npos);
}

TEST_F(NativeTest, a_pair_tells_what_it_was_connected_with_and_keeps_what_a_change_does_not_name) {
  start();
  json::object first = body();
  first["settings"] = json::object{{"quorum", "all"}};
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", first).status, 201);
  const json::value shown = call("GET", "/v1/pairs/actor").json();
  EXPECT_EQ(shown.at("save_path"), first.at("save_path"));
  EXPECT_EQ(shown.at("trainers"), first.at("trainers").at("urls"));
  EXPECT_EQ(shown.at("trainer").at("save_trigger").as_string(), "all");
  json::object again = body();
  again.erase("settings");
  again["keep_unnamed"] = true;
  EXPECT_EQ(call("PUT", "/v1/pairs/actor", again).json().at("settings").at("quorum").as_string(), "all");
  again.erase("keep_unnamed");
  EXPECT_EQ(call("PUT", "/v1/pairs/actor", again).json().at("settings").at("quorum").as_string(), "half");
}

TEST_F(NativeTest, a_trainer_that_begins_again_gets_a_new_lineage_when_it_asks_for_one) {
  start();
  make_pair();
  const auto state_of = [&](int version) {
    const json::value shown = call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", version}}).json();
    return std::string(shown.as_object().contains("state") ? shown.at("state").as_string()
                                                           : shown.at("code").as_string());
  };
  ASSERT_EQ(state_of(5), "succeeded");
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", body()).json().at("lineage").as_int64(), 1);
  EXPECT_NE(state_of(2), "succeeded");
  json::object again = body();
  again["new_lineage"] = "yes";
  EXPECT_EQ(call("PUT", "/v1/pairs/actor", again).json().at("field").as_string(), "new_lineage");
  again["new_lineage"] = true;
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", again).json().at("lineage").as_int64(), 2);
  EXPECT_EQ(state_of(2), "succeeded");
}

TEST_F(NativeTest, unknown_keys_are_refused_with_a_suggestion_and_the_field) {
  start();
  json::object wrong = body();
  wrong["save_pth"] = "/x";
  const json::value problem = call("PUT", "/v1/pairs/actor", wrong).json();
  EXPECT_EQ(problem.at("code").as_string(), "unknown_key");
  EXPECT_EQ(problem.at("field").as_string(), "save_pth");
  EXPECT_NE(std::string(problem.at("detail").as_string()).find("save_path"), std::string::npos);
  wrong = body();
  wrong["settings"] = {{"deadlines_ms", {{"load", "5"}}}};
  EXPECT_EQ(call("PUT", "/v1/pairs/actor", wrong).json().at("field").as_string(), "settings.deadlines_ms.load");
}

TEST_F(NativeTest, an_update_started_with_wait_is_answered_with_its_outcome) {
  start();
  make_pair();
  const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 42}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  const json::value shown = reply.json();
  EXPECT_EQ(shown.at("state").as_string(), "succeeded");
  EXPECT_EQ(shown.at("version").as_int64(), 42);
  EXPECT_TRUE(shown.at("error").is_null());
  EXPECT_GT(shown.at("bytes").as_int64(), 0);
  EXPECT_EQ(shown.at("workers").as_array().size(), 3u);
  EXPECT_EQ(shown.at("workers").at(0).at("verdict").as_string(), "verified");
  const json::value workers = call("GET", "/v1/pairs/actor/workers").json().at("items");
  for (const json::value& worker : workers.as_array()) {
    EXPECT_EQ(worker.at("state").as_string(), "ready");
    EXPECT_EQ(worker.at("version").as_int64(), 42);
  }
  EXPECT_EQ(call("GET", "/v1/pairs/actor?committed_at_least=42&wait=5").json().at("committed").as_int64(), 42);
}

TEST_F(NativeTest, the_same_idempotency_key_is_the_same_update) {
  start();
  make_pair();
  const std::vector<HttpHeader> key{{"Idempotency-Key", "step-7"}};
  const json::value first = call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 7}}, key).json();
  const json::value second = call("POST", "/v1/pairs/actor/updates", {{"version", 7}}, key).json();
  EXPECT_EQ(first.at("id"), second.at("id"));
  EXPECT_EQ(second.at("state").as_string(), "succeeded");
  EXPECT_EQ(call("GET", "/v1/pairs/actor/updates").json().at("items").as_array().size(), 1u);
  for (const auto& trainer : trainers) EXPECT_EQ(trainer->saves, 1);
}

TEST_F(NativeTest, a_running_update_is_202_and_can_be_cancelled) {
  start();
  make_pair();
  trainers[0]->hold = true;
  const Reply reply = call("POST", "/v1/pairs/actor/updates", {{"version", 1}});
  EXPECT_EQ(reply.status, 202) << reply.body;
  const std::string target = "/v1/pairs/actor/updates/" + std::string(reply.json().at("id").as_string());
  EXPECT_NE(reply.head.find("Location: " + target), std::string::npos) << reply.head;
  call("POST", target + ":cancel");
  EXPECT_EQ(call("GET", target + "?wait=10").json().at("state").as_string(), "aborted");
  on_loop([&] { trainers[0]->release(); });
}

TEST_F(NativeTest, a_finished_directory_is_handed_over_without_asking_a_trainer) {
  start();
  make_pair();
  write_single(directory.path("out/step9"), tiny_tensors(), 9);
  const Reply reply =
      call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 9}, {"path", directory.path("out/step9")}});
  EXPECT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
  for (const auto& trainer : trainers) EXPECT_EQ(trainer->saves, 0);
}

TEST_F(NativeTest, a_worker_that_is_added_is_part_of_the_next_update) {
  start();
  json::object two = body();
  two["workers"].as_array().pop_back();
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", two).status, 201);
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 1}}).json().at("state").as_string(),
            "succeeded");
  ASSERT_EQ(call("POST", "/v1/pairs/actor/workers:add", {{"url", engines[2]->url()}, {"dialect", "sglang"}}).status,
            200);
  const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 2}});
  EXPECT_EQ(reply.json().at("workers").as_array().size(), 3u) << reply.body;
  on_loop([&] { EXPECT_EQ(engines[2]->label, "2"); });
}

// The ids of the events in a stream's text.
std::vector<std::int64_t> ids_in(const std::string& text) {
  std::vector<std::int64_t> out;
  for (std::size_t at = text.find("id: "); at != std::string::npos; at = text.find("id: ", at + 4))
    out.push_back(std::stoll(text.substr(at + 4)));
  return out;
}

TEST_F(NativeTest, events_are_streamed_and_resumed_where_the_client_left) {
  start();
  make_pair();
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 1}}).json().at("state").as_string(),
            "succeeded");
  Connection whole(port);
  whole.send_request("GET", "/v1/events?after=0&pair=actor", {}, "");
  const std::string text =
      whole.read_until([](const std::string& t) { return t.find("event: update_ended") != std::string::npos; });
  const std::vector<std::int64_t> ids = ids_in(text);
  ASSERT_GT(ids.size(), 5u) << text;
  EXPECT_NE(text.find("event: commit\n"), std::string::npos);
  EXPECT_EQ(text.find("gateway_started"), std::string::npos);  // of no pair
  Connection resumed(port);
  resumed.send_request("GET", "/v1/events?pair=actor", {{"Last-Event-ID", std::to_string(ids[ids.size() - 2])}}, "");
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 2}}).json().at("state").as_string(),
            "succeeded");
  const std::string rest = resumed.read_until([](const std::string& t) {
    const std::size_t first = t.find("event: update_ended");
    return first != std::string::npos && t.find("event: update_ended", first + 1) != std::string::npos;
  });
  EXPECT_EQ(ids_in(rest).at(0), ids[ids.size() - 2]);  // where it begins, told before any event
  EXPECT_EQ(ids_in(rest).at(1), ids.back());
}

TEST_F(NativeTest, stopping_brings_paused_engines_back_and_refuses_new_updates) {
  start();
  make_pair();
  engines[0]->hold_loads = true;
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates", {{"version", 1}}).status, 202);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (engines[0]->loads == 0 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  std::promise<bool> stopped;
  on_loop([&] { gateway->stop([&](bool clean) { stopped.set_value(clean); }); });
  const Reply refused = call("POST", "/v1/pairs/actor/updates", {{"version", 2}});
  EXPECT_EQ(refused.status, 503) << refused.body;
  EXPECT_EQ(call("GET", "/readyz").status, 503);
  on_loop([&] { engines[0]->release(); });
  stopped.get_future().wait();
  EXPECT_FALSE(engines[1]->paused);
  EXPECT_FALSE(engines[2]->paused);
  EXPECT_FALSE(Connection(port).connected());
}

TEST_F(NativeTest, what_happened_is_in_the_journal_after_the_gateway_has_gone) {
  settings.state_dir = directory.path("state");
  start();
  make_pair();
  ASSERT_EQ(call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 1}}).json().at("state").as_string(),
            "succeeded");
  TearDown();
  SqliteJournal::Settings journal_settings;
  journal_settings.directory = settings.state_dir;
  auto journal = SqliteJournal::open(journal_settings);
  ASSERT_TRUE(journal) << journal.error().text();
  auto entries = (*journal)->read(1, 10'000);
  ASSERT_TRUE(entries);
  std::vector<std::string> kinds;
  for (const JournalEntry& entry : *entries) kinds.emplace_back(protocol::name(entry.record.kind));
  EXPECT_EQ(kinds.front(), "gateway_started");
  const auto at = [&](const char* kind) { return std::find(kinds.begin(), kinds.end(), kind) - kinds.begin(); };
  EXPECT_LT(at("save_intent"), at("sealed"));
  EXPECT_LT(at("sealed"), at("targets"));
  EXPECT_LT(at("intent"), at("commit"));
  EXPECT_LT(at("commit"), at("update_ended"));
}

TEST_F(GatewayTest, hosts_and_directories_outside_the_lists_are_refused) {
  settings.worker_hosts = {"10.0.0.0/8"};
  settings.storage_roots = {directory.path("w")};
  start();
  Reply reply = call("POST", "/connect", connect_body());
  EXPECT_EQ(reply.status, 403);
  EXPECT_NE(reply.body.find("worker_hosts"), std::string::npos) << reply.body;
  json::object body = connect_body();
  body["save_path"] = directory.path("w") + "/../x";
  EXPECT_EQ(call("POST", "/connect", body).status, 400);
  body["save_path"] = "/tmp";
  reply = call("POST", "/connect", body);
  EXPECT_EQ(reply.status, 403);
  EXPECT_NE(reply.body.find("storage_roots"), std::string::npos) << reply.body;
}

TEST_F(NativeTest, a_link_that_leads_out_of_the_storage_roots_is_refused_before_any_engine_is_asked) {
  settings.storage_roots = {directory.path("w")};
  start();
  make_pair();
  write_single(directory.path("elsewhere/step9"), tiny_tensors(), 9);
  std::filesystem::create_directory_symlink(directory.path("elsewhere"), directory.path("w/out"));
  const std::string handed = directory.path("w/out/step9");
  const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 9}, {"path", handed}});
  const json::value shown = reply.json();
  EXPECT_NE(shown.at("state").as_string(), "succeeded");
  const std::string text(shown.at("error").at("message").as_string());
  EXPECT_NE(text.find(handed), std::string::npos) << text;
  EXPECT_NE(text.find("storage root"), std::string::npos) << text;
  for (const auto& engine : engines) EXPECT_EQ(engine->loads, 0);
}

TEST_F(GatewayTest, a_save_path_that_is_a_link_out_of_the_storage_roots_gets_nothing_written) {
  settings.storage_roots = {directory.path("w")};
  start();
  std::filesystem::create_directory(directory.path("elsewhere"));
  std::filesystem::create_directory_symlink("../elsewhere", directory.path("w/out"));
  json::object body = connect_body();
  body["save_path"] = directory.path("w/out");
  ASSERT_EQ(call("POST", "/connect", body).status, 200);
  const std::string text(update(1).json().at("error").as_string());
  EXPECT_NE(text.find(directory.path("w/out")), std::string::npos) << text;
  EXPECT_TRUE(std::filesystem::is_empty(directory.path("elsewhere")));
  for (const auto& trainer : trainers) EXPECT_EQ(trainer->saves, 0);
}

TEST_F(NativeTest, a_link_within_the_storage_roots_is_followed) {
  settings.storage_roots = {directory.path("w")};
  start();
  make_pair();
  write_single(directory.path("w/steps/9"), tiny_tensors(), 9);
  std::filesystem::create_directory_symlink("steps", directory.path("w/out"));
  const Reply reply =
      call("POST", "/v1/pairs/actor/updates?wait=10", {{"version", 9}, {"path", directory.path("w/out/9")}});
  EXPECT_EQ(reply.json().at("state").as_string(), "succeeded") << reply.body;
}

TEST_F(GatewayTest, metrics_count_updates_and_workers) {
  start();
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  ASSERT_EQ(update(3).json().at("status").as_string(), "ok");
  const std::string text = raw_call("GET", "/metrics", "", {}).body;
  EXPECT_NE(text.find("weighlock_updates_total{pair=\"actor\",state=\"succeeded\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("weighlock_workers{pair=\"actor\",state=\"ready\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("weighlock_committed_version{pair=\"actor\"} 3\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace weighlock::test
