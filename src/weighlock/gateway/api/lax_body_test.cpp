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

struct Row {
  const char* sent;
  const char* answer;
};
class UpdateBodies : public ::testing::TestWithParam<Row> {};
TEST_P(UpdateBodies, are_refused_in_the_words_of_pydantic) { EXPECT_EQ(refusal_of_update(request(GetParam().sent)), GetParam().answer); }

INSTANTIATE_TEST_SUITE_P(
    Table, UpdateBodies,
    ::testing::Values(
        Row{R"({})", R"({"detail":[{"type":"missing","loc":["body","pair_name"],"msg":"Field required","input":{}}]})"},
        Row{"", R"({"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]})"},
        Row{"null", R"({"detail":[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]})"},
        Row{"[1]", R"({"detail":[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":[1]}]})"},
        Row{R"({"pair_name":"x","version":1.5})",
            R"({"detail":[{"type":"int_from_float","loc":["body","version"],"msg":"Input should be a valid integer, got a number with a fractional part","input":1.5}]})"},
        Row{R"({"pair_name":"x","version":null})", R"({"detail":[{"type":"int_type","loc":["body","version"],"msg":"Input should be a valid integer","input":null}]})"},
        Row{R"({"pair_name":"x","version":"a"})",
            R"({"detail":[{"type":"int_parsing","loc":["body","version"],"msg":"Input should be a valid integer, unable to parse string as an integer","input":"a"}]})"},
        Row{R"({"pair_name":5})", R"({"detail":[{"type":"string_type","loc":["body","pair_name"],"msg":"Input should be a valid string","input":5}]})"}));

TEST(LaxBody, broken_json_nan_and_duplicates_are_json_invalid) {
  for (const char* text : {R"({"pair_name": )", R"({"pair_name":"x","version":NaN})", R"({"pair_name":"x","version":Infinity})", R"({"pair_name":"x","pair_name":"y"})"})
    EXPECT_NE(refusal_of_update(request(text)).find("json_invalid"), std::string::npos) << text;
}

TEST(LaxBody, the_content_type_decides_as_in_fastapi) {
  EXPECT_EQ(refusal_of_update(request(R"({"pair_name":"x"})", "text/plain")),
            R"({"detail":[{"type":"model_attributes_type","loc":["body"],"msg":"Input should be a valid dictionary or object to extract fields from","input":"{\"pair_name\":\"x\"}"}]})");
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
  EXPECT_EQ(maybe.refusal()->body,
            R"({"detail":[{"type":"bool_parsing","loc":["body","f"],"msg":"Input should be a valid boolean, unable to interpret input","input":"maybe"},)"
            R"({"type":"bool_type","loc":["body","g"],"msg":"Input should be a valid boolean","input":null},)"
            R"({"type":"bool_parsing","loc":["body","h"],"msg":"Input should be a valid boolean, unable to interpret input","input":2}]})");
}

TEST(LaxBody, lists_name_the_item) {
  LaxBody body(request(R"({"a":"x","b":[1,"y"]})"));
  body.texts("a");
  EXPECT_EQ(body.texts("b"), std::vector<std::string>{"y"});
  EXPECT_EQ(body.refusal()->body, R"({"detail":[{"type":"list_type","loc":["body","a"],"msg":"Input should be a valid list","input":"x"},)"
                                  R"({"type":"string_type","loc":["body","b",0],"msg":"Input should be a valid string","input":1}]})");
}

}  // namespace
}  // namespace weighlock
