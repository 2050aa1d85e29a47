// A connect whose policy a worker can't satisfy, where its dialect is known by then: refused in both APIs, and nothing
// is left of it.
#include "weighlock/gateway/awex_pair_fixture.hpp"

namespace weighlock::test {
namespace {

class UnfitConnectTest : public NativeTest {
 protected:
  void expect_told(const Reply& reply, std::string_view member, std::string_view what) {
    EXPECT_EQ(reply.status, 400) << reply.body;
    const json::value told = reply.json();
    const auto text = find_string(told, member);
    ASSERT_TRUE(text) << reply.body;
    EXPECT_NE(text->find(engines[0]->url()), std::string::npos) << reply.body;
    EXPECT_NE(text->find(what), std::string::npos) << reply.body;
  }
};

TEST_F(UnfitConnectTest, a_compatible_connect_again_is_refused_in_areals_form_and_the_pair_stays_as_it_was) {
  start();
  json::object wanted = connect_body();
  wanted["settings"] = {{"evidence", "label"}};
  ASSERT_EQ(call("POST", "/connect", wanted).status, 200);
  ASSERT_EQ(update(7).json().at("status").as_string(), "ok");
  wanted["settings"] = {{"evidence", "checksum"}};
  const Reply refused = call("POST", "/connect", wanted);
  expect_told(refused, "error", "settings.evidence");
  EXPECT_EQ(refused.json().as_object().size(), 1u);
  wanted["settings"] = {{"evidence", "label"}, {"pause_mode", "wait"}};
  expect_told(call("POST", "/connect", wanted), "error", "settings.pause_mode");
  const json::value pair = call("GET", "/v1/pairs/actor").json();
  EXPECT_EQ(pair.at("settings").at("evidence").as_string(), "label");
  EXPECT_EQ(pair.at("settings").at("pause_mode").as_string(), "abort");
  EXPECT_EQ(pair.at("lineage").as_int64(), 1);
  EXPECT_EQ(update(8).json().at("status").as_string(), "ok");
}

TEST_F(UnfitConnectTest, a_first_connect_that_names_the_dialect_leaves_no_pair_and_no_worker) {
  start();
  json::object wanted = connect_body();
  wanted["settings"] = {{"dialect", "sglang"}, {"evidence", "checksum"}};
  expect_told(call("POST", "/connect", wanted), "error", "settings.evidence");
  EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404);
  EXPECT_TRUE(call("GET", "/v1/pairs").json().at("items").as_array().empty());
  for (const auto& engine : engines) EXPECT_EQ(engine->requests, 0);
  ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
  EXPECT_EQ(update(1).json().at("status").as_string(), "ok");
}

TEST_F(UnfitConnectTest, a_native_pair_and_a_worker_that_is_added_are_refused_with_the_code) {
  start();
  json::object wanted = body();
  wanted["settings"] = {{"evidence", "checksum"}};
  const Reply refused = call("PUT", "/v1/pairs/actor", wanted);
  expect_told(refused, "detail", "settings.evidence");
  EXPECT_EQ(refused.json().at("code").as_string(), "not_supported");
  EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404);
  wanted["settings"] = {{"evidence", "label"}, {"pause_mode", "wait"}};
  json::array vllm_only{json::object{{"url", json::string(engines[1]->url())}, {"dialect", "vllm"}}};
  wanted["workers"] = vllm_only;
  ASSERT_EQ(call("PUT", "/v1/pairs/actor", wanted).status, 201);
  const json::object added{{"url", json::string(engines[0]->url())}, {"dialect", "sglang"}};
  const Reply add = call("POST", "/v1/pairs/actor/workers:add", added);
  expect_told(add, "detail", "settings.pause_mode");
  EXPECT_EQ(call("GET", "/v1/pairs/actor/workers").json().at("items").as_array().size(), 1u);
}

class UnfitAwexConnectTest : public AwexPairTest {};

TEST_F(UnfitAwexConnectTest, no_member_of_a_transfer_group_is_called_for_a_pair_that_is_refused) {
  json::object wanted = awex_body();
  wanted["settings"] = {{"dialect", "sglang"}, {"evidence", "spot"}};
  const Reply refused = call("POST", "/connect", wanted);
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_NE(refused.body.find(engines[0]->url()), std::string::npos) << refused.body;
  EXPECT_NE(refused.body.find("where no files can be compared"), std::string::npos) << refused.body;
  on_loop([&] { EXPECT_TRUE(log.empty()); });
  EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404);
  EXPECT_EQ(connect().status, 200);
}

}  // namespace
}  // namespace weighlock::test
