#include "weighlock/core/json.hpp"

#include <gtest/gtest.h>

namespace weighlock {
namespace {

std::string failure_of(std::string_view text) {
  const Result<json::value> parsed = parse_json(text, "body");
  return parsed ? "" : parsed.error().message;
}

TEST(Json, duplicate_key_is_refused_by_name) {
  EXPECT_NE(failure_of(R"({"a":1,"a":2})").find("'a' appears twice"), std::string::npos);
  EXPECT_NE(failure_of(R"({"x":{"":1,"":2}})").find("'' appears twice"), std::string::npos);
  EXPECT_EQ(failure_of(R"({"a":{"b":1},"b":{"b":1}})"), "");
}

TEST(Json, text_cut_inside_a_key_is_not_called_a_duplicate) {
  EXPECT_EQ(failure_of(R"({"ab)").find("twice"), std::string::npos);
  EXPECT_NE(failure_of(R"({"ab)"), "");
}

TEST(Json, what_is_not_json_is_refused) {
  for (const char* text : {"", "NaN", "[1,]", "{\"a\":Infinity}", "1 2", "{} x", "\"\xff\"", "nul", "'a'"})
    EXPECT_NE(failure_of(text), "") << text;
}

TEST(Json, nesting_beyond_the_limit_is_refused) {
  EXPECT_EQ(failure_of(std::string(60, '[') + std::string(60, ']')), "");
  EXPECT_NE(failure_of(std::string(100'000, '[')), "");
}

TEST(Json, more_values_than_the_limit_are_refused) {
  EXPECT_TRUE(parse_json("[1,{\"a\":null}]", "body", {.values_max = 4}));
  for (const char* text : {"[1,{\"a\":null},2]", "[[],[],[],[]]", "[{},{},{},{}]", "[\"\",\"\",\"\",\"\"]",
                           "[true,1.5,18446744073709551615,0]"}) {
    const Result<json::value> refused = parse_json(text, "body", {.values_max = 4});
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::too_large);
    EXPECT_EQ(refused.error().message, "body: more than 4 values");
  }
}

TEST(Json, a_long_key_is_not_repeated_in_full) {
  const std::string key(100'000, 'k');
  EXPECT_LT(failure_of("{\"" + key + "\":1,\"" + key + "\":2}").size(), 300u);
}

TEST(Json, members_are_found_only_with_their_type) {
  const json::value value = *parse_json(R"({"n":5,"s":"x","b":true,"f":5.0})", "body");
  EXPECT_EQ(find_int(value, "n"), 5);
  EXPECT_EQ(find_string(value, "s"), "x");
  EXPECT_EQ(find_bool(value, "b"), true);
  EXPECT_FALSE(find_int(value, "f").has_value());
  EXPECT_FALSE(find_string(value, "n").has_value());
}

TEST(Json, what_is_found_in_an_object_is_the_objects_own_and_no_copy) {
  const json::object object{{"s", "longer than what a value keeps in itself"}, {"a", json::array{1}}, {"n", 5}};
  EXPECT_EQ(find(object, "a"), &object.at("a"));
  EXPECT_EQ(find_string(object, "s")->data(), object.at("s").get_string().data());
  EXPECT_EQ(find_int(object, "n"), 5);
  EXPECT_FALSE(find_bool(object, "n").has_value());
  EXPECT_EQ(find(json::value(5), "n"), nullptr);
}

TEST(Json, zero_stays_zero_whatever_its_exponent) {
  for (const char* text : {"0E0777", "0e777", "0.0e999", "-0e400"}) {
    const Result<json::value> value = parse_json(text, "body");
    ASSERT_TRUE(value) << text;
    EXPECT_EQ(value->to_number<double>(), 0.0) << text;
  }
}

}  // namespace
}  // namespace weighlock
