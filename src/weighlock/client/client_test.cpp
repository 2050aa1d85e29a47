#include "weighlock/client/client.hpp"

#include <gtest/gtest.h>

#include "weighlock/client/scripted_gateway.hpp"

namespace weighlock::client {
namespace {

using namespace std::chrono_literals;

std::string update_body(const std::string& state, const std::string& phase) {
  return R"({"id":"b-1","pair":"a","version":3,"attempt":1,"state":")" + state + R"(","phase":")" + phase +
         R"(","phases":[{"name":"preparing","duration_ms":7}],"pause_ms":12,"bytes":null,"error":null,
            "workers":[{"id":"w","url":"http://w:1","verdict":"torn","evidence":"none","duration_ms":null,
                        "cause":{"code":"load_failed","message":"no","since":"2026-01-01T00:00:00Z"}}]})";
}

class ClientCalls : public ::testing::Test {
 protected:
  ScriptedGateway gateway_;
  Client client_{Settings{gateway_.url(), "key-of-the-test", 5000ms}};
};

TEST_F(ClientCalls, an_update_is_read_with_all_that_it_says) {
  gateway_.script("GET /v1/pairs/a/updates/b-1", 200, update_body("running", "loading"));
  const Result<Update> update = client_.update("a", "b-1");
  ASSERT_TRUE(update) << update.error().text();
  EXPECT_TRUE(update->running());
  EXPECT_EQ(update->version, 3);
  EXPECT_EQ(update->pause_ms, 12);
  EXPECT_FALSE(update->bytes);
  ASSERT_EQ(update->workers.size(), 1u);
  EXPECT_EQ(update->workers[0].cause->code, "load_failed");
  EXPECT_EQ(update->phases[0].duration_ms, 7);
}

TEST_F(ClientCalls, the_key_is_sent_with_every_call) {
  gateway_.script("GET /v1/pairs", 200, R"({"items":[],"next":null})");
  ASSERT_TRUE(client_.pairs());
  EXPECT_EQ(header(gateway_.requests().at(0).headers, "authorization"), "Bearer key-of-the-test");
}

TEST_F(ClientCalls, a_problem_body_becomes_an_error_with_its_code_and_field) {
  gateway_.script("PUT /v1/pairs/a", 400, R"({"code":"unknown_key","detail":"no such key","field":"settings.quorom"})");
  const Result<Pair> pair = client_.put_pair("a", {});
  ASSERT_FALSE(pair);
  EXPECT_EQ(pair.error().code, ErrorCode::unknown_key);
  EXPECT_EQ(pair.error().message, "PUT /v1/pairs/a: no such key (field 'settings.quorom') [HTTP 400]");
}

TEST_F(ClientCalls, an_error_that_is_not_ours_is_quoted) {
  gateway_.script("GET /v1/pairs/a", 502, "<html>bad gateway</html>");
  const Result<Pair> pair = client_.pair("a");
  ASSERT_FALSE(pair);
  EXPECT_EQ(pair.error().code, ErrorCode::bad_answer);
  EXPECT_NE(pair.error().message.find("<html>bad gateway</html> [HTTP 502]"), std::string::npos);
}

TEST_F(ClientCalls, a_refused_key_says_how_to_give_one) {
  gateway_.script("GET /v1/pairs/a", 403, R"({"code":"permission_denied","detail":"wrong key"})");
  const Result<Pair> pair = client_.pair("a");
  ASSERT_FALSE(pair);
  EXPECT_EQ(info(pair.error().code).exit_code, 3);
  EXPECT_NE(pair.error().message.find("WEIGHLOCK_ADMIN_API_KEY"), std::string::npos);
}

TEST_F(ClientCalls, a_path_that_is_refused_says_nothing_of_keys) {
  gateway_.script("PUT /v1/pairs/a", 403,
                  R"({"code":"permission_denied","detail":"'/x' is outside storage_roots","field":"save_path"})");
  const Result<Pair> pair = client_.put_pair("a", {});
  ASSERT_FALSE(pair);
  EXPECT_EQ(pair.error().message, "PUT /v1/pairs/a: '/x' is outside storage_roots (field 'save_path') [HTTP 403]");
  gateway_.script("GET /v1/pairs/a", 401, R"({"code":"unauthenticated","detail":"none"})");
  EXPECT_NE(client_.pair("a").error().message.find("WEIGHLOCK_ADMIN_API_KEY"), std::string::npos);
}

TEST_F(ClientCalls, an_answer_without_what_is_needed_is_a_bad_answer) {
  gateway_.script("GET /v1/pairs/a/updates/x", 200, R"({"id":"x","state":"running"})");
  const Result<Update> update = client_.update("a", "x");
  ASSERT_FALSE(update);
  EXPECT_EQ(update.error().code, ErrorCode::bad_answer);
  gateway_.script("GET /v1/pairs/a", 200, "hello");
  EXPECT_EQ(client_.pair("a").error().code, ErrorCode::bad_answer);
}

TEST_F(ClientCalls, a_list_is_read_over_its_pages) {
  gateway_.script("GET /v1/pairs", 200, R"({"items":[{"name":"a"}],"next":"c/1"})");
  gateway_.script("GET /v1/pairs?cursor=c%2F1", 200, R"({"items":[{"name":"b"}],"next":null})");
  const Result<std::vector<Pair>> pairs = client_.pairs();
  ASSERT_TRUE(pairs) << pairs.error().text();
  ASSERT_EQ(pairs->size(), 2u);
  EXPECT_EQ((*pairs)[1].name, "b");
}

TEST_F(ClientCalls, a_start_whose_answer_was_lost_is_sent_again_with_the_same_key) {
  gateway_.script("POST /v1/pairs/a/updates",
                  {HttpResponse{0, {}, ""}, HttpResponse{202, {}, update_body("running", "queued")}});
  UpdateRequest request;
  request.version = 3;
  request.path = "/w/step3";
  const Result<Update> update = client_.start_update("a", request);
  ASSERT_TRUE(update) << update.error().text();
  const std::vector<HttpRequest> requests = gateway_.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].body, R"({"version":3,"path":"/w/step3"})");
  EXPECT_FALSE(header(requests[0].headers, "idempotency-key").empty());
  EXPECT_EQ(header(requests[0].headers, "idempotency-key"), header(requests[1].headers, "idempotency-key"));
}

TEST_F(ClientCalls, a_refused_start_is_sent_once) {
  gateway_.script("POST /v1/pairs/a/updates", 409, R"({"code":"version_not_newer","detail":"3 isn't above 4"})");
  const Result<Update> update = client_.start_update("a", UpdateRequest{});
  ASSERT_FALSE(update);
  EXPECT_EQ(update.error().code, ErrorCode::version_not_newer);
  EXPECT_EQ(gateway_.requests().size(), 1u);
}

TEST_F(ClientCalls, a_connect_whose_answer_was_lost_is_not_repeated) {
  gateway_.script("PUT /v1/pairs/a", 0, "");
  EXPECT_FALSE(client_.put_pair("a", {}));
  EXPECT_EQ(gateway_.requests().size(), 1u);
}

TEST_F(ClientCalls, waiting_ends_with_the_update_and_shows_every_reading) {
  gateway_.script("GET /v1/pairs/a/updates/b-1",
                  {HttpResponse{200, {}, update_body("running", "loading")}, HttpResponse{0, {}, ""},
                   HttpResponse{200, {}, update_body("degraded", "resuming")}});
  std::vector<std::string> seen;
  const Result<Update> update =
      client_.await_update("a", "b-1", 10s, [&](const Update& u) { seen.push_back(u.state); });
  ASSERT_TRUE(update) << update.error().text();
  EXPECT_EQ(update->state, "degraded");
  EXPECT_EQ(seen.front(), "running");
  EXPECT_EQ(seen.back(), "degraded");
}

TEST_F(ClientCalls, waiting_too_long_is_timed_out_and_names_the_phase) {
  gateway_.script("GET /v1/pairs/a/updates/b-1", 200, update_body("running", "loading"));
  const Result<Update> update = client_.await_update("a", "b-1", 20ms, {});
  ASSERT_FALSE(update);
  EXPECT_EQ(update.error().code, ErrorCode::timed_out);
  EXPECT_NE(update.error().message.find("phase: loading"), std::string::npos);
}

const char* const kChanged =
    R"({"name":"a","lineage":1,"committed":2,"workers":{"total":2,"ready":1,"quarantined":1},
        "worker":{"id":"w:1","url":"http://w:1","dialect":"sglang","state":"quarantined","version":null,
                  "cause":{"code":"operator_hold","message":"disk swap","since":"2026-01-01T00:00:00Z"}}})";

TEST_F(ClientCalls, a_rollback_is_an_update_under_a_key_and_sent_again_like_one) {
  gateway_.script("POST /v1/pairs/a:rollback",
                  {HttpResponse{0, {}, ""}, HttpResponse{202, {}, update_body("running", "queued")}});
  RollbackRequest request;
  request.to = 2;
  request.lineage = 1;
  const Result<Update> update = client_.roll_back("a", request);
  ASSERT_TRUE(update) << update.error().text();
  const std::vector<HttpRequest> requests = gateway_.requests();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[1].body, R"({"to":2,"lineage":1})");
  EXPECT_EQ(header(requests[0].headers, "idempotency-key"), header(requests[1].headers, "idempotency-key"));
  gateway_.script("POST /v1/pairs/a:rollback", 409, R"({"code":"conflict","detail":"stored: v2"})");
  EXPECT_EQ(client_.roll_back("a").error().code, ErrorCode::conflict);
  EXPECT_EQ(gateway_.requests().back().body, "{}");
}

TEST_F(ClientCalls, a_worker_is_changed_by_its_url_or_id_with_a_reason_and_only_once) {
  gateway_.script("POST /v1/pairs/a/workers/http%3A%2F%2Fw%3A1:quarantine", 200, kChanged);
  const Result<ChangedWorker> changed = client_.quarantine_worker("a", "http://w:1", "disk swap");
  ASSERT_TRUE(changed) << changed.error().text();
  EXPECT_EQ(changed->worker->cause->message, "disk swap");
  EXPECT_EQ(changed->pair.workers_quarantined, 1);
  EXPECT_EQ(gateway_.requests().back().body, R"({"reason":"disk swap"})");
  for (const char* verb : {"remove", "drain", "release"})
    gateway_.script(std::string("POST /v1/pairs/a/workers/w%3A1:") + verb, 200,
                    R"({"name":"a","worker":null,"workers":{}})");
  EXPECT_FALSE(client_.remove_worker("a", "w:1")->worker);
  EXPECT_TRUE(client_.drain_worker("a", "w:1"));
  EXPECT_TRUE(client_.release_worker("a", "w:1"));
  EXPECT_EQ(gateway_.requests().back().body, "{}");
  gateway_.script("POST /v1/pairs/a/workers:add", 0, "");
  const std::size_t before = gateway_.requests().size();
  EXPECT_FALSE(client_.add_worker("a", {{"url", "http://w:2"}}));
  EXPECT_EQ(gateway_.requests().size(), before + 1) << "nobody knows whether it was added";
}

TEST_F(ClientCalls, stored_versions_are_read_with_who_needs_them) {
  gateway_.script("GET /v1/pairs/a/versions", 200,
                  R"({"items":[{"lineage":1,"version":2,"directory":"/w/v2","state":"committed","handed_over":false,
                      "digest":null,"bytes":12,"leases":["committed","http://w:1"],"removable":false}],"next":null,
                      "committed":{"lineage":1,"version":2,"directory":"/w/v2"},"last_good":null,
                      "highest":{"lineage":1,"version":3,"directory":"/w/v3"}})");
  const Result<Versions> versions = client_.versions("a");
  ASSERT_TRUE(versions) << versions.error().text();
  ASSERT_EQ(versions->items.size(), 1u);
  EXPECT_EQ(versions->items[0].leases.size(), 2u);
  EXPECT_EQ(versions->items[0].bytes, 12);
  EXPECT_EQ(versions->committed, 2);
  EXPECT_FALSE(versions->last_good);
  EXPECT_EQ(versions->highest, 3);
  gateway_.script("GET /v1/pairs/a/versions", 200, R"({"items":[{"lineage":1}]})");
  EXPECT_EQ(client_.versions("a").error().code, ErrorCode::bad_answer);
}

TEST_F(ClientCalls, stored_versions_are_verified_and_collected) {
  gateway_.script("POST /v1/pairs/a/versions/2:verify", 200, R"({"ok":true,"digest":"d"})");
  EXPECT_EQ(find_string(*client_.verify_version("a", 2), "digest"), "d");
  gateway_.script("POST /v1/pairs/a/versions:collect", 200, R"({"dry_run":true,"directories":["/w/v1"]})");
  EXPECT_EQ(*client_.collect_versions("a", true), std::vector<std::string>{"/w/v1"});
  EXPECT_EQ(gateway_.requests().back().body, R"({"dry_run":true})");
}

TEST(Client, nobody_there_is_unreachable_and_says_what_to_start) {
  std::string url;
  {
    const ScriptedGateway gone;
    url = gone.url_text();
  }
  Client client(Settings{*parse_url(url), "", 5000ms});
  const Result<Pair> pair = client.pair("a");
  ASSERT_FALSE(pair);
  EXPECT_EQ(pair.error().code, ErrorCode::unreachable);
  EXPECT_NE(pair.error().message.find("weighlock serve"), std::string::npos);
}

TEST(Client, a_pair_name_is_one_path_segment) {
  EXPECT_EQ(escape_segment("a/b c?"), "a%2Fb%20c%3F");
  EXPECT_EQ(escape_segment("\xc3\xa9-_.~"), "%C3%A9-_.~");
}

TEST(Client, drawn_keys_differ) {
  EXPECT_EQ(draw_key().size(), 32u);
  EXPECT_NE(draw_key(), draw_key());
}

}  // namespace
}  // namespace weighlock::client
