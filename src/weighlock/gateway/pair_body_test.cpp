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
  out.failure = read_pair_body(*value, "actor", *confinement, nullptr, out.body);
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

protocol::PairSpec present_pair() {
  protocol::PairSpec out;
  out.name = "actor";
  out.policy.quorum = {protocol::Quorum::Kind::all, 0};
  out.policy.deadlines.load = Milliseconds(5000);
  out.policy.keep_versions = 7;
  out.save_trigger = protocol::SaveTrigger::rank0;
  out.workers = {{"http://10.0.0.1:1", DialectKind::vllm, R"({"admin_key":{"env":"A"}})"},
                 {"http://10.0.0.2:1", std::nullopt, R"({"admin_key":{"env":"B"}})"}};
  return out;
}

Read read_over(const protocol::PairSpec& present, const std::string& members) {
  Read out;
  const std::string text =
      R"({"mode":"disk","save_path":"/w","trainers":{"urls":["http://10.0.0.9:1"]},)"
      R"("workers":[{"url":"http://10.0.0.1:1"},{"url":"http://10.0.0.2:1","admin_key":{"file":"/k"}}],)" +
      members + "}";
  const Result<json::value> value = parse_json(text, "body");
  const Result<Confinement> confinement = Confinement::make({}, {});
  EXPECT_TRUE(value) << text;
  out.failure = read_pair_body(*value, "actor", *confinement, &present, out.body);
  return out;
}

TEST(PairBody, what_is_not_named_stays_as_it_is_only_when_that_is_asked_for) {
  const Read kept = read_over(present_pair(), R"("keep_unnamed":true,"settings":{"deadlines_ms":{"save":9}})");
  ASSERT_FALSE(kept.failure) << kept.failure->error.text();
  const protocol::PairSpec& spec = kept.body.spec;
  EXPECT_EQ(spec.policy.quorum.kind, protocol::Quorum::Kind::all);
  EXPECT_EQ(spec.policy.keep_versions, 7);
  EXPECT_EQ(spec.policy.deadlines.load, Milliseconds(5000));
  EXPECT_EQ(spec.policy.deadlines.save, Milliseconds(9));
  EXPECT_EQ(spec.save_trigger, protocol::SaveTrigger::rank0);
  EXPECT_EQ(spec.workers[0].key_references, R"({"admin_key":{"env":"A"}})");
  EXPECT_EQ(spec.workers[0].dialect, DialectKind::vllm);
  EXPECT_EQ(spec.workers[1].key_references, R"({"admin_key":{"file":"/k"}})") << "its key was named";
  for (const char* replaced : {R"("keep_unnamed":false)", R"("settings":{})"}) {
    const Read fresh = read_over(present_pair(), replaced);
    ASSERT_FALSE(fresh.failure) << fresh.failure->error.text();
    EXPECT_EQ(fresh.body.spec.policy.quorum.kind, protocol::Quorum::Kind::half) << replaced;
    EXPECT_EQ(fresh.body.spec.save_trigger, protocol::SaveTrigger::all) << replaced;
    EXPECT_EQ(fresh.body.spec.workers[0].key_references, "") << replaced;
  }
  EXPECT_EQ(read_over(present_pair(), R"("keep_unnamed":1)").failure->field, "keep_unnamed");
}

TEST(PairBody, the_window_of_adapters_and_their_quorum_stay_too) {
  protocol::PairSpec present = present_pair();
  present.lora = protocol::LoraSpec{"policy", 4};
  present.policy.quorum = {protocol::Quorum::Kind::count, 1};
  const Read kept = read_over(present, R"("keep_unnamed":true,"lora":{"name":"policy"})");
  ASSERT_FALSE(kept.failure) << kept.failure->error.text();
  EXPECT_EQ(kept.body.spec.lora->keep, 4);
  EXPECT_EQ(kept.body.spec.policy.quorum.kind, protocol::Quorum::Kind::count);
}

TEST(PairBody, a_pair_of_another_mode_is_kept_from_a_change_that_nobody_named) {
  protocol::PairSpec present = present_pair();
  present.awex = protocol::AwexSpec{};
  const Read refused = read_over(present, R"("keep_unnamed":true)");
  ASSERT_TRUE(refused.failure);
  EXPECT_EQ(refused.failure->field, "mode");
  EXPECT_EQ(refused.failure->error.code, ErrorCode::conflict);
  EXPECT_NE(refused.failure->error.text().find("--change-mode"), std::string::npos);
  EXPECT_FALSE(read_over(present, R"("settings":{})").failure) << "a whole replacement is what the body says";
}

}  // namespace
}  // namespace weighlock
