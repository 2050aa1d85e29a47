#include "weighlock/gateway/pair_body.hpp"

#include <gtest/gtest.h>

#include <string>

namespace weighlock {
namespace {

struct Read {
  PairBody body;
  std::optional<FieldError> failure;
};

Read read_with_lora(const std::string& lora) {
  Read out;
  const std::string text =
      R"({"mode":"disk","save_path":"/w","trainers":{"kind":"external"},"workers":[{"url":"http://10.0.0.1:1"}],"lora":)" +
      lora + "}";
  const Result<json::value> value = parse_json(text, "body");
  const Result<Confinement> confinement = Confinement::make({}, {});
  EXPECT_TRUE(value) << text;
  EXPECT_TRUE(confinement);
  out.failure = read_pair_body(*value, "actor", *confinement, out.body);
  return out;
}

TEST(PairBody, lora_is_null_or_a_name_and_how_many_stay) {
  EXPECT_FALSE(read_with_lora("null").body.spec.lora);
  const Read both = read_with_lora(R"({"name":"policy","keep":3})");
  ASSERT_FALSE(both.failure) << both.failure->error.text();
  EXPECT_EQ(both.body.spec.lora->name, "policy");
  EXPECT_EQ(both.body.spec.lora->keep, 3);
  EXPECT_EQ(read_with_lora(R"({"name":"policy"})").body.spec.lora->keep, 0);
}

TEST(PairBody, a_wrong_lora_is_refused_by_its_field) {
  const auto field = [](const std::string& lora) {
    const Read read = read_with_lora(lora);
    EXPECT_FALSE(read.body.spec.lora) << lora;
    if (!read.failure) return std::string("taken");
    EXPECT_NE(read.failure->error.text().find(read.failure->field), std::string::npos) << read.failure->error.text();
    return read.failure->field;
  };
  for (const char* lora : {"[]", "\"policy\"", "5"}) EXPECT_EQ(field(lora), "lora") << lora;
  EXPECT_EQ(field(R"({"name":"policy","kep":3})"), "lora.kep");
  for (const char* keep : {"-1", "1.5", "\"2\"", "null", "true", "99999999999999999999", "1000000"})
    EXPECT_EQ(field(std::string(R"({"name":"policy","keep":)") + keep + "}"), "lora.keep") << keep;
  for (const char* name :
       {"null", "5", "\"\"", "\"a/b\"", "\"../x\"", "\"a\\\\b\"", "\"..\"", "\".\"", "\"a\\u0000\"", "\"a\\nb\""})
    EXPECT_EQ(field(std::string(R"({"name":)") + name + "}"), "lora.name") << name;
  EXPECT_EQ(field(R"({"keep":1})"), "lora.name");
  EXPECT_EQ(field("{\"name\":\"" + std::string(201, 'x') + "\"}"), "lora.name");
  EXPECT_FALSE(read_with_lora("{\"name\":\"" + std::string(200, 'x') + "\"}").failure);
}

}  // namespace
}  // namespace weighlock
