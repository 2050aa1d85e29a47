// The 422 table: what pydantic says, literally (recorded from the Python gateway).
#include "weighlock/gateway/api/lax_body.hpp"

#include <gtest/gtest.h>

#include <limits>

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

std::int64_t version_of(const char* text) {
  LaxBody body(request(std::string(R"({"version":)") + text + "}"));
  const std::int64_t out = body.whole("version");
  EXPECT_FALSE(body.refusal()) << text;
  return out;
}

TEST(LaxBody, whole_numbers_are_taken_in_every_spelling_that_pydantic_takes) {
  EXPECT_EQ(version_of("5"), 5);
  EXPECT_EQ(version_of("\"5\""), 5);
  EXPECT_EQ(version_of("\" -5 \""), -5);
  EXPECT_EQ(version_of("\"5.0\""), 5);
  EXPECT_EQ(version_of("5.0"), 5);
  EXPECT_EQ(version_of("true"), 1);
  EXPECT_EQ(version_of("1180591620717411303424"), std::numeric_limits<std::int64_t>::max());
}

TEST(LaxBody, flags_are_taken_in_every_spelling_that_pydantic_takes) {
  for (const char* text : {"true", "1", "1.0", "\"yes\"", "\"ON\"", "\"t\"", "\"1\""}) {
    LaxBody body(request(std::string(R"({"f":)") + text + "}"));
    EXPECT_TRUE(body.flag("f", false)) << text;
    EXPECT_FALSE(body.refusal());
  }
  LaxBody maybe(request(R"({"f":"maybe","g":null,"h":2})"));
  maybe.flag("f", false);
  maybe.flag("g", false);
  maybe.flag("h", false);
  const std::string wrong_type = entry("bool_type", R"(["body","g"])", "Input should be a valid boolean", "null");
  EXPECT_EQ(maybe.refusal()->body, detail(entry("bool_parsing", R"(["body","f"])", kNoFlag, R"("maybe")") + "," +
                                          wrong_type + "," + entry("bool_parsing", R"(["body","h"])", kNoFlag, "2")));
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
