// The metadata store over real sockets.
#include <chrono>
#include <thread>

#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

class MetaTest : public GatewayTest {
 protected:
  void SetUp() override {
    GatewayTest::SetUp();
    start();
  }
  Reply put(const std::string& target, const std::string& body, const std::string& type = "application/json") {
    return raw_call("PUT", target, body, {{"Authorization", std::string("Bearer ") + kKey}, {"Content-Type", type}});
  }
  Reply get(const std::string& target) { return raw_call("GET", target, "", {}); }
  Reply keyed(const std::string& method, const std::string& target) { return call(method, target); }
};

TEST_F(MetaTest, a_value_comes_back_as_the_bytes_that_were_sent) {
  for (const char* value : {"1180591620717411303424", "[1.0,1e+22,0.1,1e22]", R"({"b":1,"a":[1,2.5,null,"\u00e9"]})",
                            "\"\xc3\xa9\"", "false", "[ 1 ,\n2 ]", "{}", "-0.0"}) {
    for (const std::string& body :
         {std::string("{\"value\":") + value + "}", std::string(" { \"x\" : [1] , \"value\" : ") + value + " } ",
          std::string("{\"value\":0,\"value\": ") + value + ",\"y\":{\"value\":null}}"}) {
      EXPECT_EQ(put("/weight_meta/p/k", body).body, R"({"status":"ok"})") << body;
      const Reply reply = get("/weight_meta/p/k");
      EXPECT_EQ(reply.status, 200);
      EXPECT_NE(reply.head.find("Content-Type: application/json"), std::string::npos) << reply.head;
      EXPECT_EQ(reply.body, std::string("{\"value\":") + value + "}");
    }
  }
}

TEST_F(MetaTest, an_absent_key_and_a_null_are_not_found) {
  const std::string none = R"({"error":"Key not found"})";
  EXPECT_EQ(get("/weight_meta/p/k").body, none);
  for (const char* body : {R"({"value":null})", "{}", R"({"Value":1})", R"({"value":1,"value": null })"}) {
    EXPECT_EQ(put("/weight_meta/p/k", body).body, R"({"status":"ok"})");
    const Reply reply = get("/weight_meta/p/k");
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(reply.body, none);
    EXPECT_EQ(keyed("DELETE", "/weight_meta/p/k").body, R"({"status":"ok","deleted":true})");
    EXPECT_EQ(keyed("DELETE", "/weight_meta/p/k").body, R"({"status":"ok","deleted":false})");
  }
}

TEST_F(MetaTest, sets_have_sizes_and_are_no_keys) {
  EXPECT_EQ(keyed("GET", "/weight_meta/p/set/s/size").body, R"({"size":0})");
  for (const char* body : {R"({"value":"a"})", R"({"value":"a","x":1})", R"({"value":"b"})", "{}"})
    EXPECT_EQ(put("/weight_meta/p/set/s", body).body, R"({"status":"ok"})");
  EXPECT_EQ(keyed("GET", "/weight_meta/p/set/s/size").body, R"({"size":3})");
  EXPECT_EQ(get("/weight_meta/p/s").status, 404);
  const Reply wrong = put("/weight_meta/p/set/s", R"({"value":1})");
  EXPECT_EQ(wrong.status, 422);
  EXPECT_EQ(
      wrong.body,
      R"({"detail":[{"type":"string_type","loc":["body","value"],"msg":"Input should be a valid string","input":1}]})");
}

TEST_F(MetaTest, a_key_or_pair_named_set_is_like_any_other) {
  EXPECT_EQ(put("/weight_meta/p/set", R"({"value":1})").status, 200);
  EXPECT_EQ(get("/weight_meta/p/set").body, R"({"value":1})");
  EXPECT_EQ(put("/weight_meta/set/set", R"({"value":2})").status, 200);
  EXPECT_EQ(get("/weight_meta/set/set").body, R"({"value":2})");
  EXPECT_EQ(put("/weight_meta/set/set/set", R"({"value":"m"})").status, 200);
  EXPECT_EQ(keyed("GET", "/weight_meta/set/set/set/size").body, R"({"size":1})");
  EXPECT_EQ(put("/weight_meta/p/set/size", R"({"value":"m"})").status, 200);
  EXPECT_EQ(keyed("GET", "/weight_meta/p/set/size/size").body, R"({"size":1})");
  const Reply verb = get("/weight_meta/p/set/size");
  EXPECT_EQ(verb.status, 405);
  EXPECT_NE(verb.head.find("Allow: PUT"), std::string::npos) << verb.head;
}

TEST_F(MetaTest, keys_are_decoded_and_an_encoded_slash_is_no_route) {
  EXPECT_EQ(put("/weight_meta/p%20q/k%C3%A9%25+", R"({"value":1})").status, 200);
  EXPECT_EQ(get("/weight_meta/p%20q/k%c3%a9%25%2B").body, R"({"value":1})");
  for (const char* target : {"/weight_meta/p/a%2Fb", "/weight_meta/p/a%2fb", "/weight_meta/p%2Fq/a",
                             "/weight_meta/p/set%2Fk", "/weight_meta/p", "/weight_meta/p/a/b", "/weight_meta//k"}) {
    EXPECT_EQ(put(target, R"({"value":1})").body, R"({"detail":"Not Found"})") << target;
    EXPECT_EQ(get(target).body, R"({"detail":"Not Found"})") << target;
  }
}

TEST_F(MetaTest, bodies_that_are_no_values_are_refused_as_the_python_service_refuses_them) {
  struct Row {
    const char* body;
    const char* type;
    const char* answer;
  };
  for (
      const Row& row : {
          Row{"", "application/json",
              R"({"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]})"},
          Row{" null ", "application/json",
              R"({"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]})"},
          Row{"[1]", "application/json",
              R"({"detail":[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":[1]}]})"},
          Row{R"({"value":1})", "text/plain",
              R"({"detail":[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":"{\"value\":1}"}]})"},
      }) {
    const Reply reply = put("/weight_meta/p/k", row.body, row.type);
    EXPECT_EQ(reply.status, 422);
    EXPECT_EQ(reply.body, row.answer);
  }
  for (const char* body : {R"({"value":NaN})", R"({"value":[-Infinity]})", R"({"value":1)", R"({"value":"\ud800"})",
                           "{\"value\":\"\xff\"}", "{\"value\":1}x"}) {
    const Reply reply = put("/weight_meta/p/k", body);
    EXPECT_EQ(reply.status, 422) << body;
    EXPECT_NE(reply.body.find(R"({"detail":[{"type":"json_invalid","loc":["body",)"), std::string::npos) << reply.body;
  }
  EXPECT_EQ(get("/weight_meta/p/k").status, 404);
}

TEST_F(MetaTest, reading_a_value_needs_no_key_and_all_else_does_after_the_body_was_judged) {
  EXPECT_EQ(put("/weight_meta/p/k", R"({"value":1})").status, 200);
  EXPECT_EQ(get("/weight_meta/p/k").status, 200);
  for (const auto& [method, target, body] :
       {std::tuple("PUT", "/weight_meta/p/k", R"({"value":2})"), std::tuple("DELETE", "/weight_meta/p/k", ""),
        std::tuple("PUT", "/weight_meta/p/set/k", R"({"value":"2"})"),
        std::tuple("GET", "/weight_meta/p/set/k/size", "")}) {
    const Reply none = raw_call(method, target, body, {});
    EXPECT_EQ(none.status, 401) << target;
    EXPECT_EQ(none.body, R"({"detail":"Missing or malformed Authorization header. Expected 'Bearer <token>'."})");
    const Reply wrong = raw_call(method, target, body, {{"Authorization", "Bearer no"}});
    EXPECT_EQ(wrong.status, 403);
    EXPECT_EQ(wrong.body, R"({"detail":"Admin API key required."})");
  }
  EXPECT_EQ(raw_call("PUT", "/weight_meta/p/k", "[1]", {}).status, 422);
  EXPECT_EQ(raw_call("PUT", "/weight_meta/p/set/k", R"({"value":1})", {}).status, 422);
  // What would take a while to judge isn't, for a stranger.
  EXPECT_EQ(raw_call("PUT", "/weight_meta/p/k", std::string(100'000, '['), {}).status, 401);
  EXPECT_EQ(get("/weight_meta/p/k").body, R"({"value":1})");
}

TEST_F(MetaTest, a_pair_that_leaves_takes_its_metadata_along) {
  for (const bool native : {false, true}) {
    ASSERT_EQ(call("POST", "/connect", connect_body()).status, 200);
    for (const char* pair : {"actor", "other"}) {
      const std::string base = std::string("/weight_meta/") + pair;
      ASSERT_EQ(put(base + "/k", R"({"value":1})").status, 200);
      ASSERT_EQ(put(base + "/set/s", R"({"value":"1"})").status, 200);
    }
    const Reply left =
        native ? call("DELETE", "/v1/pairs/actor") : call("POST", "/disconnect", {{"pair_name", "actor"}});
    ASSERT_EQ(left.status, 200) << left.body;
    EXPECT_EQ(get("/weight_meta/actor/k").status, 404);
    EXPECT_EQ(keyed("GET", "/weight_meta/actor/set/s/size").body, R"({"size":0})");
    EXPECT_EQ(get("/weight_meta/other/k").status, 200);
    EXPECT_EQ(keyed("GET", "/weight_meta/other/set/s/size").body, R"({"size":1})");
  }
}

TEST_F(MetaTest, what_does_not_fit_is_told_with_the_remedy) {
  const std::string large = "{\"value\":\"" + std::string(60'000'000, 'x') + "\"}";
  for (int i = 0; i < 4; ++i) ASSERT_EQ(put("/weight_meta/p/k" + std::to_string(i), large).status, 200);
  const Reply full = put("/weight_meta/p/k4", large);
  EXPECT_EQ(full.status, 507);
  const std::string text(full.json().at("error").as_string());
  EXPECT_NE(text.find("key 'k4' of pair 'p' needs 60000"), std::string::npos) << text;
  EXPECT_NE(text.find("delete keys that nobody reads any more"), std::string::npos) << text;
  EXPECT_EQ(get("/weight_meta/p/k4").status, 404);
  EXPECT_EQ(keyed("DELETE", "/weight_meta/p/k0").status, 200);
  EXPECT_EQ(put("/weight_meta/p/k4", large).status, 200);
}

TEST_F(MetaTest, many_readers_of_a_large_value_get_it_whole_and_health_answers_meanwhile) {
  std::string value = "[";
  while (value.size() < 8'000'000)
    value += "{\"name\":\"model.layers.0.q_proj.weight\",\"shape\":[512,1024],\"x\":1.0},";
  value.back() = ']';
  ASSERT_EQ(put("/weight_meta/p/k", "{\"value\":" + value + "}").status, 200);
  std::atomic<int> whole = 0;
  std::atomic<int> open = 24;
  std::vector<std::thread> readers;
  for (int i = 0; i < 24; ++i) {
    readers.emplace_back([&] {
      const Reply reply = get("/weight_meta/p/k");
      if (reply.status == 200 && reply.body == "{\"value\":" + value + "}") ++whole;
      --open;
    });
  }
  // One that never reads holds nobody up.
  Connection idle(port);
  idle.send_request("GET", "/weight_meta/p/k", {}, "");
  int meanwhile = 0;
  while (open > 0) {
    EXPECT_EQ(get("/health").body, R"({"status":"healthy"})");
    ++meanwhile;
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(whole, 24);
  EXPECT_GT(meanwhile, 3);
}

}  // namespace
}  // namespace weighlock::test
