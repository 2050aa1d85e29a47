// The 422 table: what pydantic says, literally (recorded from the Python gateway).
#include "weighlock/gateway/api/lax_body.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weighlock {
namespace {

HttpRequest request(std::string body, std::string type = "application/json") {
  HttpRequest out;
  out.body = std::move(body);
  if (!type.empty()) out.headers.push_back({"Content-Type", std::move(type)});
  return out;
}

std::string refusal_of_update(const HttpRequest& http) {
  LaxBody body(http);
  body.text("pair_name");
  body.whole("version", 0);
  const auto refusal = body.refusal();
  return refusal ? refusal->body : "";
}

// One entry of "detail", each part as JSON.
std::string entry(const std::string& type, const std::string& where, const std::string& message,
                  const std::string& input) {
  return R"({"type":")" + type + R"(","loc":)" + where + R"(,"msg":")" + message + R"(","input":)" + input + "}";
}
std::string detail(const std::string& entries) {
  return R"({"detail":[)" + entries + "]}";
}

constexpr const char* kNoObject = "Input should be a valid dictionary or object to extract fields from";
constexpr const char* kFraction = "Input should be a valid integer, got a number with a fractional part";
constexpr const char* kNoNumber = "Input should be a valid integer, unable to parse string as an integer";
constexpr const char* kNoFlag = "Input should be a valid boolean, unable to interpret input";
constexpr const char* kVersion = R"(["body","version"])";
constexpr const char* kPairName = R"(["body","pair_name"])";

struct Row {
  const char* sent;
  std::string entry;
};
class UpdateBodies : public ::testing::TestWithParam<Row> {};
TEST_P(UpdateBodies, are_refused_in_the_words_of_pydantic) {
  EXPECT_EQ(refusal_of_update(request(GetParam().sent)), detail(GetParam().entry));
}

INSTANTIATE_TEST_SUITE_P(
    Table, UpdateBodies,
    ::testing::Values(Row{"{}", entry("missing", kPairName, "Field required", "{}")},
                      Row{"", entry("missing", R"(["body"])", "Field required", "null")},
                      Row{"null", entry("missing", R"(["body"])", "Field required", "null")},
                      Row{"[1]", entry("model_attributes_type", R"(["body"])", kNoObject, "[1]")},
                      Row{R"({"pair_name":"x","version":1.5})", entry("int_from_float", kVersion, kFraction, "1.5")},
                      Row{R"({"pair_name":"x","version":null})",
                          entry("int_type", kVersion, "Input should be a valid integer", "null")},
                      Row{R"({"pair_name":"x","version":"a"})", entry("int_parsing", kVersion, kNoNumber, R"("a")")},
                      Row{R"({"pair_name":5})",
                          entry("string_type", kPairName, "Input should be a valid string", "5")}));

TEST(LaxBody, broken_json_nan_and_duplicates_are_json_invalid) {
  for (const char* text : {R"({"pair_name": )", R"({"pair_name":"x","version":NaN})",
                           R"({"pair_name":"x","version":Infinity})", R"({"pair_name":"x","pair_name":"y"})"})
    EXPECT_NE(refusal_of_update(request(text)).find("json_invalid"), std::string::npos) << text;
}

TEST(LaxBody, the_content_type_decides_as_in_fastapi) {
  EXPECT_EQ(refusal_of_update(request(R"({"pair_name":"x"})", "text/plain")),
            detail(entry("model_attributes_type", R"(["body"])", kNoObject, R"("{\"pair_name\":\"x\"}")")));
  EXPECT_EQ(refusal_of_update(request(R"({"pair_name":"x"})", "")), "");
  EXPECT_EQ(refusal_of_update(request(R"({"pair_name":"x"})", "application/json; charset=utf-8")), "");
  EXPECT_EQ(refusal_of_update(request(R"({"pair_name":"x"})", "application/vnd.x+json")), "");
}

// The type of the first failure, or what was read.
std::string read_as(bool flag, const std::string& text) {
  LaxBody body(request(R"({"x":)" + text + "}"));
  const std::string read = flag ? (body.flag("x", false) ? "true" : "false") : std::to_string(body.whole("x"));
  const auto refusal = body.refusal();
  if (!refusal) return read;
  const Result<json::value> told = parse_json(refusal->body, "refusal");
  return told ? std::string(told->at("detail").at(0).at("type").as_string()) : told.error().text() + refusal->body;
}

TEST(LaxBody, whole_numbers_are_taken_in_every_spelling_that_pydantic_takes) {
  for (const char* five :
       {"5", "5.0", "\"5\"", "\"5.0\"", "\" 5 \"", "\"+5\"", "\"005\"", "\"5.000\"", "\"5\\n\"", "0.5e1"})
    EXPECT_EQ(read_as(false, five), "5") << five;
  EXPECT_EQ(read_as(false, "\"-5.0\""), "-5");
  EXPECT_EQ(read_as(false, "\"-1_000\""), "-1000");
  EXPECT_EQ(read_as(false, "true"), "1");
  EXPECT_EQ(read_as(false, "false"), "0");
  EXPECT_EQ(read_as(false, "\"-0\""), "0");
  EXPECT_EQ(read_as(false, "1e3"), "1000");
  EXPECT_EQ(read_as(false, "9223372036854775807"), "9223372036854775807");
  for (const char* text :
       {"\"+-5\"", "\"--5\"", "\"5.\"", "\".0\"", "\"_1\"", "\"1_\"", "\"1__0\"", "\"1e3\"", "\"\"", "\" \"", "\"0x5\"",
        "\"5.5\"", "\"true\"", "\"nan\"", "\"5.0_0\"", "\"+ 5\"", "\"1 0\"", "\"-\""})
    EXPECT_EQ(read_as(false, text), "int_parsing") << text;
  for (const char* text : {"null", "[]", "{}"}) EXPECT_EQ(read_as(false, text), "int_type") << text;
  EXPECT_EQ(read_as(false, "5.5"), "int_from_float");
  EXPECT_EQ(read_as(false, "1e999"), "finite_number");
  EXPECT_EQ(read_as(false, "-1e999"), "finite_number");
}

TEST(LaxBody, whole_numbers_beyond_64_bits_become_the_nearest_that_fits) {
  for (const char* text : {"1180591620717411303424", "9223372036854775808", "\"9223372036854775808\""})
    EXPECT_EQ(read_as(false, text), "9223372036854775807") << text;
  EXPECT_EQ(read_as(false, "\"-99999999999999999999\""), "-9223372036854775808");
}

TEST(LaxBody, flags_are_taken_in_every_spelling_that_pydantic_takes) {
  for (const char* text : {"true", "1", "1.0", "1e0", "\"1\"", "\"yes\"", "\"Y\"", "\"t\"", "\"oN\"", "\"TRUE\""})
    EXPECT_EQ(read_as(true, text), "true") << text;
  for (const char* text : {"false", "0", "0.0", "\"0\"", "\"no\"", "\"N\"", "\"f\"", "\"off\"", "\"False\""})
    EXPECT_EQ(read_as(true, text), "false") << text;
  for (const char* text : {"2", "-1", "2.0", "\" true\"", "\"\"", "\"maybe\"", "\"1.0\"", "\"true\\n\""})
    EXPECT_EQ(read_as(true, text), "bool_parsing") << text;
  for (const char* text : {"0.5", "null", "[]", "{}", "9223372036854775808", "1e999"})
    EXPECT_EQ(read_as(true, text), "bool_type") << text;
  LaxBody maybe(request(R"({"f":"maybe","g":null})"));
  maybe.flag("f", false);
  maybe.flag("g", false);
  EXPECT_EQ(maybe.refusal()->body,
            detail(entry("bool_parsing", R"(["body","f"])", kNoFlag, R"("maybe")") + "," +
                   entry("bool_type", R"(["body","g"])", "Input should be a valid boolean", "null")));
}

TEST(LaxBody, a_refusal_does_not_repeat_a_large_body) {
  const std::string large = R"({"b":[0)" + std::string(30'000, ' ') + "]}";
  LaxBody body(request(large));
  body.text("a");
  EXPECT_EQ(body.refusal()->body, detail(entry("missing", R"(["body","a"])", "Field required", "null")));
  EXPECT_LT(refusal_of_update(request("[" + large + "]")).size(), 1000u);
  EXPECT_LT(refusal_of_update(request(large, "text/plain")).size(), 1000u);
  std::string many = R"({"a":[0)";
  for (int i = 0; i < 100'000; ++i) many += ",0";
  LaxBody items(request(many + "]}"));
  EXPECT_TRUE(items.texts("a").empty());
  EXPECT_EQ(parse_json(items.refusal()->body, "refusal")->at("detail").as_array().size(), 100u);
}

TEST(LaxBody, lists_name_the_item) {
  LaxBody body(request(R"({"a":"x","b":[1,"y"]})"));
  body.texts("a");
  EXPECT_EQ(body.texts("b"), std::vector<std::string>{"y"});
  EXPECT_EQ(body.refusal()->body,
            R"({"detail":[{"type":"list_type","loc":["body","a"],"msg":"Input should be a valid list","input":"x"},)"
            R"({"type":"string_type","loc":["body","b",0],"msg":"Input should be a valid string","input":1}]})");
}

}  // namespace
}  // namespace weighlock
