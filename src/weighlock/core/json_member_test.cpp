#include "weighlock/core/json_member.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace weighlock {
namespace {

using Kind = JsonMember::Kind;

std::string found(std::string_view text) {
  const Result<JsonMember> member = find_member(text, "value", "body");
  if (!member) return member.error().text();
  return member->kind == Kind::found    ? std::string(member->value)
         : member->kind == Kind::absent ? "absent"
                                        : "no object: " + std::string(member->value);
}

TEST(FindMember, the_bytes_of_the_value_are_returned_as_they_came) {
  for (const char* value : {"1180591620717411303424", "[1.0, 1e22,0.1]", R"({"b":1,"a":2, "b":3})", "null",
                            "\"a\\u00e9\"", "-0.0", "true", "[]", "{ }", "1E400", R"("}]\"{")", "\"\xc3\xa9\""}) {
    EXPECT_EQ(found(std::string("{\"value\":") + value + "}"), value);
    EXPECT_EQ(found(std::string(" {\r\n \"value\" :\t") + value + " \n, \"other\":[1,{\"value\":2}]} "), value);
    EXPECT_EQ(found(std::string("{\"other\":{\"value\":3},\"value\":") + value + "}"), value);
  }
}

TEST(FindMember, the_last_of_equal_keys_counts_however_it_is_spelt) {
  EXPECT_EQ(found(R"({"value":1,"value":2})"), "2");
  EXPECT_EQ(found(R"({"value":1,"v\u0061lue":[2]})"), "[2]");
  EXPECT_EQ(found(R"({"v\u0061lue":[2],"value":1,"Value":3})"), "1");
}

TEST(FindMember, an_object_without_it_and_other_values_are_told_apart) {
  EXPECT_EQ(found("{}"), "absent");
  EXPECT_EQ(found(R"( { "val":1, "":2 } )"), "absent");
  for (const char* other : {"[1]", "\"value\"", "5", "null", "true"})
    EXPECT_EQ(found(std::string("\n ") + other + " "), std::string("no object: ") + other);
}

TEST(FindMember, what_is_not_json_is_refused_wherever_it_stands) {
  for (const std::string text : {"",
                                 " ",
                                 "{",
                                 "{\"value\"",
                                 "{\"value\":",
                                 "{\"value\":1",
                                 "{\"value\":1,",
                                 "{\"value\":1,}",
                                 "{\"value\" 1}",
                                 "{value:1}",
                                 "{'value':1}",
                                 "{\"value\":NaN}",
                                 "{\"value\":[Infinity]}",
                                 "{\"value\":-Infinity}",
                                 "{\"value\":01}",
                                 "{\"value\":1.}",
                                 "{\"value\":tru}",
                                 "{\"value\":[1,]}",
                                 "{\"value\":[1 2]}",
                                 "{\"value\":\"\xff\"}",
                                 "{\"value\":\"\xc0\xaf\"}",
                                 "{\"value\":\"\\ud800\"}",
                                 "{\"value\":\"a\nb\"}",
                                 "{\"value\":1}}",
                                 "{\"value\":1} x",
                                 "{\"value\":1}{\"value\":2}",
                                 "{\"value\":1,2}",
                                 "{,}",
                                 "[1",
                                 "nul",
                                 "{\"other\":NaN,\"value\":1}",
                                 "{\"value\":1,\"other\":nope}",
                                 "{\"a\":/**/1}"}) {
    const Result<JsonMember> member = find_member(text, "value", "body");
    ASSERT_FALSE(member) << text;
    EXPECT_EQ(member.error().code, ErrorCode::invalid_argument);
    EXPECT_NE(member.error().message.find("body: not JSON at byte "), std::string::npos) << member.error().message;
  }
  const std::string nul("{\"value\":1}\0", 12);
  EXPECT_FALSE(find_member(nul, "value", "body"));
}

TEST(FindMember, every_text_cut_short_is_refused) {
  const std::string text = R"({"a":[1.5,"x\n"],"value":{"b":[true,null,{"c":"\u00e9"}]}})";
  ASSERT_TRUE(find_member(text, "value", "body"));
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_FALSE(find_member(text.substr(0, length), "value", "body")) << length;
}

TEST(FindMember, nesting_beyond_the_limit_is_refused_and_up_to_it_taken) {
  const auto nested = [](std::size_t depth) {
    return "{\"value\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  EXPECT_TRUE(find_member(nested(8), "value", "body", {8}));
  EXPECT_FALSE(find_member(nested(9), "value", "body", {8}));
  EXPECT_FALSE(find_member(nested(1'000'000), "value", "body"));
}

TEST(FindMember, a_value_larger_than_any_buffer_keeps_its_bytes) {
  std::string value = "[";
  for (int i = 0; i < 200'000; ++i) value += "{\"name\":\"layers." + std::to_string(i) + "\",\"shape\":[512, 1024]},";
  value.back() = ']';
  EXPECT_EQ(found("{\"value\": " + value + "}"), value);
}

}  // namespace
}  // namespace weighlock
