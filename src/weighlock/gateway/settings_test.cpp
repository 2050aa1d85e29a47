#include "weighlock/gateway/settings.hpp"

#include <gtest/gtest.h>

#include "weighlock/core/words.hpp"

namespace weighlock {
namespace {

std::optional<FieldError> read(const char* text, Settings& into, SettingsPlace place = SettingsPlace::pair) {
  return read_settings(*parse_json(text, "test"), "settings", place, into);
}

TEST(Settings, every_name_of_the_policy_is_taken) {
  Settings settings;
  const auto failure = read(
      R"({"quorum":3,"on_failure":"rollback_all","canary":1,"max_lag":2,"pause":"caller","pause_mode":"keep","load_window":4,
      "straggler":2.5,"evidence":"spot","digest":"before","keep_versions":5,"label_format":"step-{version}",
      "allow_layout_change":true,"coalesce":true,"pair_lease_ms":90,
      "deadlines_ms":{"save":1000,"pause":2,"load":3,"verify":4,"resume":5,"restore":6,"whole":7}})",
      settings);
  ASSERT_FALSE(failure) << failure->error.message;
  const protocol::Policy& policy = settings.policy;
  EXPECT_EQ(policy.quorum.count, 3);
  EXPECT_EQ(policy.on_failure, protocol::OnFailure::rollback_all);
  EXPECT_EQ(policy.canary, 1);
  EXPECT_EQ(policy.max_lag, 2);
  EXPECT_EQ(policy.pause, protocol::PauseOwner::caller);
  EXPECT_EQ(policy.pause_mode, PauseMode::keep);
  EXPECT_EQ(policy.load_window, 4);
  EXPECT_EQ(policy.straggler, 2.5);
  EXPECT_EQ(policy.evidence, Evidence::spot);
  EXPECT_EQ(policy.digest, protocol::DigestPolicy::before);
  EXPECT_EQ(policy.keep_versions, 5);
  EXPECT_EQ(policy.label_format, "step-{version}");
  EXPECT_TRUE(policy.allow_layout_change);
  EXPECT_TRUE(policy.coalesce);
  EXPECT_EQ(policy.pair_lease.count(), 90);
  EXPECT_EQ(policy.deadlines.save, Milliseconds(1000));
  EXPECT_EQ(policy.deadlines.whole, Milliseconds(7));
}

TEST(Settings, what_is_not_named_stays_as_it_was) {
  Settings settings;
  settings.policy.canary = 7;
  ASSERT_FALSE(read(R"({"max_lag":1})", settings));
  EXPECT_EQ(settings.policy.canary, 7);
}

TEST(Settings, the_view_is_read_back_as_the_same_policy) {
  Settings settings;
  ASSERT_FALSE(read(R"({"quorum":"all","evidence":"checksum","straggler":4})", settings));
  const json::object view = settings_view(settings.policy);
  Settings again;
  const auto failure = read_settings(view, "settings", SettingsPlace::pair, again);
  ASSERT_FALSE(failure) << failure->error.message;
  EXPECT_EQ(settings_view(again.policy), view);
}

TEST(Settings, the_view_of_the_longest_deadlines_can_be_read_back) {
  Settings settings;
  ASSERT_FALSE(read(R"({"deadlines_ms":{"save":86400000,"pause":86400000,"load":86400000,"verify":86400000,
      "resume":86400000}})",
                    settings));
  Settings again;
  const auto failure = read_settings(settings_view(settings.policy), "settings", SettingsPlace::pair, again);
  ASSERT_FALSE(failure) << failure->error.message;
  EXPECT_EQ(settings_view(again.policy), settings_view(settings.policy));
}

TEST(Settings, an_error_shows_whole_characters_of_what_was_sent) {
  std::string text = R"({"quorum":")";
  for (int i = 0; i < 99; ++i) text += "x\xc3\xa9";
  Settings settings;
  const auto failure = read((text + "\"}").c_str(), settings);
  ASSERT_TRUE(failure);
  EXPECT_TRUE(is_utf8(failure->error.text())) << failure->error.text();
}

struct Refused {
  const char* text;
  const char* field;
  const char* says;
};

class RefusedSettings : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedSettings, name_the_field_and_the_remedy) {
  Settings settings;
  const auto failure = read(GetParam().text, settings);
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->field, GetParam().field);
  EXPECT_NE(failure->error.message.find(GetParam().says), std::string::npos) << failure->error.message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, RefusedSettings,
    ::testing::Values(Refused{"[]", "settings", "object"},
                      Refused{R"({"quorun":"all"})", "settings.quorun", "did you mean 'quorum'"},
                      Refused{R"({"quorum":"most"})", "settings.quorum", "\"most\""},
                      Refused{R"({"quorum":0})", "settings.quorum", "from 1 to"},
                      Refused{R"({"canary":"1"})", "settings.canary", "whole number"},
                      Refused{R"({"canary":1.5})", "settings.canary", "1.5"},
                      Refused{R"({"max_lag":-1})", "settings.max_lag", "-1"},
                      Refused{R"({"straggler":0.5})", "settings.straggler", "from 1"},
                      Refused{R"({"pause":"no"})", "settings.pause", "'caller'"},
                      Refused{R"({"evidence":"none"})", "settings.evidence", "'label'"},
                      Refused{R"({"keep_versions":0})", "settings.keep_versions", "from 1"},
                      Refused{R"({"label_format":"v"})", "settings.label_format", "{version}"},
                      Refused{R"({"label_format":"loading:{version}"})", "settings.label_format", "loading:"},
                      Refused{R"({"coalesce":1})", "settings.coalesce", "true or false"},
                      Refused{R"({"deadlines_ms":{"lod":1}})", "settings.deadlines_ms.lod", "'load'"},
                      Refused{R"({"deadlines_ms":{"load":0}})", "settings.deadlines_ms.load", "from 1"},
                      Refused{R"({"deadlines_ms":7})", "settings.deadlines_ms", "object"},
                      Refused{R"({"save_trigger":"all"})", "settings.save_trigger", "unknown key"}));

TEST(Settings, the_compatible_connect_has_two_names_more) {
  Settings settings;
  ASSERT_FALSE(read(R"({"save_trigger":"rank0","dialect":"vllm"})", settings, SettingsPlace::compatible_connect));
  EXPECT_EQ(settings.save_trigger, protocol::SaveTrigger::rank0);
  EXPECT_EQ(settings.dialect, DialectKind::vllm);
  EXPECT_TRUE(read(R"({"dialect":"trt"})", settings, SettingsPlace::compatible_connect));
}

}  // namespace
}  // namespace weighlock
