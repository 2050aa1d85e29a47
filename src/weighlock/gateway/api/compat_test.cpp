// The compatible routes' answers, literally: what the Python gateway was seen to answer, row by row. A row that differs
// on purpose says why.
#include <fmt/format.h>

#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

constexpr const char* kBearer = "Bearer secret-key";
constexpr const char* kMissingKey =
    R"({"detail":"Missing or malformed Authorization header. Expected 'Bearer <token>'."})";
constexpr const char* kNoObject = "Input should be a valid dictionary or object to extract fields from";

struct Row {
  const char* what;
  const char* method;
  const char* target;
  const char* authorization;  // "" = no header
  const char* type;           // "" = no header
  std::string body;
  int status;
  std::string answer;
  const char* instead_of = "";  // what the Python gateway answers, where ours differs on purpose, and why
};

std::string detail(const std::string& type, const std::string& where, const std::string& message,
                   const std::string& input) {
  return fmt::format(R"({{"detail":[{{"type":"{}","loc":{},"msg":"{}","input":{}}}]}})", type, where, message, input);
}

Row post(const char* what, const char* target, std::string body, int status, std::string answer,
         const char* instead_of = "") {
  return {what, "POST", target, kBearer, "application/json", std::move(body), status, std::move(answer), instead_of};
}

std::string disk_body(const std::string& more) {
  return R"({"pair_name":"z","train_worker_urls":["http://10.0.0.1:1"],"inference_worker_urls":["http://10.0.0.2:1"])" +
         more + "}";
}

const std::string kX = R"({"pair_name":"x"})";
const std::string kNoX = R"({"error":"Pair 'x' not found"})";

const std::vector<Row> kRows = {
    {"no Authorization", "POST", "/update_weights", "", "application/json", kX, 401, kMissingKey},
    {"Basic", "POST", "/update_weights", "Basic eDp5", "application/json", kX, 401, kMissingKey},
    {"wrong key", "POST", "/update_weights", "Bearer nope", "application/json", kX, 403,
     R"({"detail":"Admin API key required."})"},
    {"lower-case scheme, padded key", "POST", "/update_weights", "bearer   secret-key  ", "application/json", kX, 404,
     kNoX},
    {"non-ASCII key", "POST", "/update_weights", "Bearer \xc3\xa9", "application/json", kX, 403,
     R"({"detail":"Admin API key required."})", "500: an uncaught error in its comparison"},
    {"no key and a bad body", "POST", "/update_weights", "", "application/json", "{}", 422,
     detail("missing", R"(["body","pair_name"])", "Field required", "{}")},
    post("empty body", "/update_weights", "", 422, detail("missing", R"(["body"])", "Field required", "null")),
    post("JSON array", "/update_weights", "[1]", 422, detail("model_attributes_type", R"(["body"])", kNoObject, "[1]")),
    {"text/plain", "POST", "/update_weights", kBearer, "text/plain", kX, 422,
     detail("model_attributes_type", R"(["body"])", kNoObject, R"("{\"pair_name\":\"x\"}")")},
    {"no content type", "POST", "/update_weights", kBearer, "", kX, 404, kNoX},
    post("unknown pair", "/update_weights", kX, 404, kNoX),
    post("version '5'", "/update_weights", R"({"pair_name":"x","version":"5"})", 404, kNoX),
    post("version 1.5", "/update_weights", R"({"pair_name":"x","version":1.5})", 422,
         detail("int_from_float", R"(["body","version"])",
                "Input should be a valid integer, got a number with a fractional part", "1.5")),
    post("version null", "/update_weights", R"({"pair_name":"x","version":null})", 422,
         detail("int_type", R"(["body","version"])", "Input should be a valid integer", "null")),
    post("pair_name 5", "/update_weights", R"({"pair_name":5})", 422,
         detail("string_type", R"(["body","pair_name"])", "Input should be a valid string", "5")),
    post("huge version", "/update_weights", R"({"pair_name":"x","version":1180591620717411303424})", 404, kNoX),
    post("extra keys", "/update_weights", R"({"pair_name":"x","x":{"y":[1]}})", 404, kNoX),
    post("disconnect, unknown pair", "/disconnect", kX, 404, kNoX),
    post(
        "urls a string", "/connect", R"({"pair_name":"z","train_worker_urls":"a","inference_worker_urls":[1]})", 422,
        R"({"detail":[{"type":"list_type","loc":["body","train_worker_urls"],"msg":"Input should be a valid list","input":"a"},)"
        R"({"type":"string_type","loc":["body","inference_worker_urls",0],"msg":"Input should be a valid string","input":1}]})"),
    post("missing all", "/connect", "{}", 422,
         R"({"detail":[{"type":"missing","loc":["body","pair_name"],"msg":"Field required","input":{}},)"
         R"({"type":"missing","loc":["body","train_worker_urls"],"msg":"Field required","input":{}},)"
         R"({"type":"missing","loc":["body","inference_worker_urls"],"msg":"Field required","input":{}}]})"),
    post("use_lora 'maybe'", "/connect", disk_body(R"(,"use_lora":"maybe")"), 422,
         detail("bool_parsing", R"(["body","use_lora"])", "Input should be a valid boolean, unable to interpret input",
                R"("maybe")")),
    post("lora_keep_versions null", "/connect", disk_body(R"(,"lora_keep_versions":null)"), 422,
         detail("int_type", R"(["body","lora_keep_versions"])", "Input should be a valid integer", "null")),
    post("empty save_path", "/connect", disk_body(R"(,"mode":"disk")"), 400,
         R"({"error":"save_path is required when mode='disk'"})"),
    post("relative save_path", "/connect", disk_body(R"(,"mode":"disk","save_path":"w")"), 400,
         R"({"error":"save_path must be an absolute path when mode='disk'"})"),
    post("LoRA without a name", "/connect", disk_body(R"(,"mode":"disk","save_path":"/w","use_lora":true)"), 400,
         R"({"error":"lora_name is required when use_lora=True"})"),
    post("awex with LoRA", "/connect", disk_body(R"(,"use_lora":"yes")"), 400,
         R"({"error":"awex weight update does not support LoRA; set actor.weight_update_mode=disk in your config."})"),
    post("mode 'bogus'", "/connect", disk_body(R"(,"mode":"bogus")"), 400,
         R"({"error":"mode must be 'awex' or 'disk', not 'bogus'"})", "200: any other word means awex"),
    post(
        "empty pair_name", "/connect",
        R"({"pair_name":"","train_worker_urls":["http://10.0.0.1:1"],"inference_worker_urls":["http://10.0.0.2:1"],"mode":"disk","save_path":"/w"})",
        400, R"({"error":"pair_name: must not be empty"})", "500: an uncaught error"),
    post(
        "no trainers", "/connect",
        R"({"pair_name":"z","train_worker_urls":[],"inference_worker_urls":["http://10.0.0.2:1"],"mode":"disk","save_path":"/w"})",
        400, R"({"error":"train_worker_urls: must not be empty"})",
        "200, and updates that load a directory nobody wrote"),
    {"unknown route", "GET", "/nowhere", "", "", "", 404, R"({"detail":"Not Found"})"},
    {"wrong verb", "GET", "/connect", "", "", "", 405, R"({"detail":"Method Not Allowed"})"},
    {"wrong verb of health", "POST", "/health", "", "", "", 405, R"({"detail":"Method Not Allowed"})"},
    {"OPTIONS", "OPTIONS", "/connect", "", "", "", 405, R"({"detail":"Method Not Allowed"})"},
    {"health", "GET", "/health", "", "", "", 200, R"({"status":"healthy"})"},
    {"trailing slash", "GET", "/health/", "", "", "", 200, R"({"status":"healthy"})",
     "307 to the address without the slash"},
};

class CompatTest : public GatewayTest {
 protected:
  static std::vector<HttpHeader> headers_of(const Row& row) {
    std::vector<HttpHeader> out;
    if (*row.authorization != '\0') out.push_back({"Authorization", row.authorization});
    if (*row.type != '\0') out.push_back({"Content-Type", row.type});
    return out;
  }
};

TEST_F(CompatTest, every_recorded_call_is_answered_literally_and_its_connection_goes_on) {
  start();
  // One connection for all: none of these answers may close it, or close it without saying so.
  Connection connection(port);
  for (const Row& row : kRows) {
    connection.send_request(row.method, row.target, headers_of(row), row.body);
    const Reply reply = connection.read_reply();
    EXPECT_EQ(reply.status, row.status) << row.what;
    EXPECT_EQ(reply.body, row.answer) << row.what;
    EXPECT_NE(reply.head.find("Content-Type: application/json"), std::string::npos) << row.what;
    EXPECT_NE(reply.head.find("Connection: keep-alive"), std::string::npos) << row.what;
    const bool allows = reply.head.find("\r\nAllow: ") != std::string::npos;
    EXPECT_EQ(allows, reply.status == 405) << reply.head;
  }
}

TEST_F(CompatTest, broken_json_names_the_byte) {
  start();
  for (const char* body : {R"({"pair_name": )", R"({"pair_name": })", R"({"pair_name":"x","version":NaN})"}) {
    const Reply reply = raw_call("POST", "/update_weights", body, {{"Authorization", kBearer}});
    EXPECT_EQ(reply.status, 422);
    const json::value failure = reply.json().at("detail").at(0);
    EXPECT_EQ(failure.at("type").as_string(), "json_invalid");
    EXPECT_EQ(failure.at("msg").as_string(), "JSON decode error");
    EXPECT_EQ(json::serialize(failure.at("input")), "{}");
    EXPECT_EQ(failure.at("loc").at(0).as_string(), "body");
    EXPECT_GE(failure.at("loc").at(1).as_int64(), 14) << reply.body;
    EXPECT_FALSE(failure.at("ctx").at("error").as_string().empty());
  }
}

TEST_F(CompatTest, head_is_a_wrong_verb_without_a_body) {
  start();
  Connection connection(port);
  connection.send_request("HEAD", "/health", {}, "");
  const std::string head =
      connection.read_until([](const std::string& t) { return t.find("\r\n\r\n") != std::string::npos; });
  EXPECT_TRUE(head.starts_with("HTTP/1.1 405 ")) << head;
  EXPECT_NE(head.find("\r\nAllow: GET\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST_F(CompatTest, a_control_body_that_is_too_large_is_told_the_limit) {
  start();
  const std::string large(8 * 1024 * 1024 + 1, ' ');
  const Reply reply = raw_call("POST", "/connect", large, {{"Authorization", kBearer}});
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.body, R"({"detail":"the body has 8388609 bytes; this route takes 8388608"})");
  const Reply native = raw_call("PUT", "/v1/pairs/x", large, {{"Authorization", kBearer}});
  EXPECT_EQ(native.status, 413);
  EXPECT_EQ(native.json().at("code").as_string(), "too_large");
}

TEST_F(CompatTest, connect_takes_the_fields_of_lora_and_the_pair_shows_them) {
  start();
  json::object body = connect_body();
  body["use_lora"] = true;
  body["lora_name"] = "policy";
  body["lora_keep_versions"] = "2";
  EXPECT_EQ(call("POST", "/connect", body).body, R"({"pair_name":"actor"})");
  EXPECT_EQ(json::serialize(call("GET", "/v1/pairs/actor").json().at("lora")), R"({"name":"policy","keep":2})");
  // Without use_lora the others are idle words, as in the Python gateway.
  ASSERT_EQ(call("POST", "/disconnect", {{"pair_name", "actor"}}).status, 200);
  body["use_lora"] = false;
  body["lora_name"] = "a/b";
  EXPECT_EQ(call("POST", "/connect", body).status, 200);
  EXPECT_TRUE(call("GET", "/v1/pairs/actor").json().at("lora").is_null());
  body["use_lora"] = true;
  EXPECT_EQ(call("POST", "/connect", body).json().at("error").as_string(), "lora_name: must not contain '/'");
  body["lora_name"] = "policy";
  for (const std::int64_t keep : {std::int64_t{-1}, limits::kAdapterWindowMax + 1}) {
    body["lora_keep_versions"] = keep;
    EXPECT_EQ(call("POST", "/connect", body).json().at("error").as_string(),
              fmt::format("lora_keep_versions: must be 0 (all versions stay loaded) to {}, not {}",
                          limits::kAdapterWindowMax, keep));
  }
}

TEST_F(CompatTest, a_native_pair_shows_its_lora) {
  start();
  json::object body = pair_body(urls_of(trainers), urls_of(engines), directory.path("w"));
  body["lora"] = {{"name", "policy"}, {"keep", 3}};
  const Reply made = call("PUT", "/v1/pairs/actor", body);
  EXPECT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(json::serialize(made.json().at("lora")), R"({"name":"policy","keep":3})");
}

}  // namespace
}  // namespace weighlock::test
