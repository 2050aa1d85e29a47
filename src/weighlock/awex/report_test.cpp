#include "weighlock/awex/report.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "weighlock/awex/report_fixture.hpp"

namespace weighlock::awex {
namespace {

const Origin kTrainer{Side::train, 3, "http://t:3"};

Told usual() {
  return fsdp_of("model.embed_tokens.weight", {10, 4}, 1, 4);
}

std::string refusal(const std::string& text, const ReportLimits& limits = {}) {
  const Result<Report> report = parse_report(kTrainer, text, limits);
  return report ? "accepted" : report.error().text();
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

TEST(Report, a_rank_reports_its_part_of_a_tensor) {
  const Result<Report> report = parse_report(kTrainer, body(Side::train, {usual()}));
  ASSERT_TRUE(report) << report.error().text();
  ASSERT_EQ(report->tensors.size(), 1u);
  ASSERT_EQ(report->shards.size(), 1u);
  EXPECT_EQ(report->strings[report->tensors[0].name], "model.embed_tokens.weight");
  EXPECT_EQ(report->strings[report->tensors[0].dtype], "torch.bfloat16");
  EXPECT_EQ(text(report->tensors[0].shape), "[10,4]");
  EXPECT_EQ(text(report->shards[0].box), "[2,0]+[3,4]");
  const ShardFrame& frame = report->shard_frames[report->shards[0].frame];
  EXPECT_EQ(frame.global_rank, 1);
  EXPECT_EQ(frame.world_size, 4);
  EXPECT_EQ(frame.num_shards, 4);
}

TEST(Report, an_engine_reports_all_its_ranks_in_one_list) {
  const Result<Report> report =
      parse_report({Side::infer, 0, "http://i"},
                   body(Side::infer, {split_of("w", {4, 4}, 1, 0, 2), split_of("w", {4, 4}, 1, 1, 2)}));
  ASSERT_TRUE(report) << report.error().text();
  ASSERT_EQ(report->shards.size(), 2u);
  EXPECT_EQ(text(report->shards[1].box), "[0,2]+[4,2]");
  EXPECT_EQ(report->tensors[0].name, report->tensors[1].name);
}

TEST(Report, several_shards_in_a_replica_and_several_replicas_are_all_read) {
  const std::string one = shard_json(fsdp_of("w", {4}, 0, 2)), two = shard_json(fsdp_of("w", {4}, 1, 2));
  std::string text = body(Side::train, {fsdp_of("w", {4}, 0, 2)});
  const std::size_t in_replica = text.rfind(one);
  text.replace(in_replica, one.size(), one + "," + two);
  const Result<Report> report = parse_report(kTrainer, text);
  ASSERT_TRUE(report) << report.error().text();
  EXPECT_EQ(report->tensors[0].shards, 2u);
}

TEST(Report, members_of_newer_releases_are_kept_as_they_came) {
  Told told = usual();
  told.shard_more = R"(,"placement":{"v":1.0,"list":[1e22,"\u00e9"]})";
  told.tensor_more = R"(,"converter": null)";
  const Result<Report> report = parse_report(kTrainer, body(Side::train, {told}));
  ASSERT_TRUE(report) << report.error().text();
  EXPECT_NE(report->shard_frames[0].members.find(R"("placement":{"v":1.0,"list":[1e22,"\u00e9"]})"), std::string::npos);
  EXPECT_EQ(report->tensor_frames[0].members, R"("converter":null)");
}

TEST(Report, class_paths_are_kept_and_not_understood) {
  const std::string text = replaced(body(Side::train, {usual()}), "awex.meta.weight_meta.ParameterMeta", "os.system");
  const Result<Report> report = parse_report(kTrainer, text);
  ASSERT_TRUE(report) << report.error().text();
  EXPECT_EQ(report->tensor_frames[0].outer, R"("type":"dataclass","class_path":"os.system")");
}

TEST(Report, names_are_the_same_however_they_are_escaped) {
  Told plain = usual(), escaped = usual();
  plain.name = "caf\xc3\xa9";
  escaped.name = R"(caf\u00e9)";
  const auto name_of = [](const Told& told) {
    const Result<Report> report = parse_report(kTrainer, body(Side::train, {told}));
    return report ? report->strings[report->tensors[0].name] : report.error().text();
  };
  EXPECT_EQ(name_of(plain), "caf\xc3\xa9");
  EXPECT_EQ(name_of(escaped), "caf\xc3\xa9");
}

TEST(Report, a_failed_report_is_told_in_the_workers_own_words) {
  const std::string text = refusal(R"({"status":"error","error":"Engine not initialized"})");
  EXPECT_NE(text.find("train worker 3 (http://t:3)"), std::string::npos) << text;
  EXPECT_NE(text.find("Engine not initialized"), std::string::npos) << text;
}

TEST(Report, what_is_wrong_is_named_by_worker_tensor_and_member) {
  const std::string good = body(Side::train, {whole_of("first", {2}, 3, 4), usual()});
  const struct {
    std::string_view what, with, told;
  } kCases[] = {
      {R"("shape":[3,4])", R"("shape":[3,-4])", "'shape': not a whole number"},
      {R"("shape":[3,4])", R"("shape":[3,4.0])", "'shape': not a whole number"},
      {R"("shape":[3,4])", R"("shape":"3,4")", "'shape': not a list"},
      {R"("shape":[3,4])", R"("shape":[1,1,1,1,1,1,1,1,1])", "more than 8 dimensions"},
      {R"("shape":[3,4])", R"("shape":[1125899906842624,4])", "more than 2^50 elements"},
      {R"("shape":[3,4])", R"("shape":[99999999999999999999])", "a number above 10^18"},
      {R"("shape":[3,4],)", "", "'shape': is missing"},
      {R"("numel":12)", R"("numel":13)", "'numel': is 13, and the shape [3,4] has 12"},
      {R"("global_offset":[2,0])", R"("global_offset":[])", "have different dimensions"},
      {R"("global_offset":[2,0],)", "", "'global_offset': is missing"},
      {R"("global_rank":1,)", "", "'global_rank': is missing"},
      {R"("global_rank":1)", R"("global_rank":-1)", "'global_rank': is -1"},
      {R"("global_rank":1)", R"("global_rank":1,"global_rank":1)", "'global_rank': appears twice"},
      {R"("global_rank":1)", R"("global\u005frank":1)", "an escape in a key"},
      {R"("global_shape":[10,4])", R"("global_shape":[10])", "'global_numel'"},
      {R"("name":"model.embed_tokens.weight","shape")", R"("name":"other","shape")", "is other, not its tensor's"},
      {R"("torch.bfloat16"},"global_offset":[2,0])", R"("torch.float32"},"global_offset":[2,0])",
       "not its tensor's torch.bfloat16"},
  };
  for (const auto& one : kCases) {
    // The second tensor's shard is the one that is wrong: in `shards`, before its twin in `replicas`.
    const std::size_t second = good.find("model.embed_tokens.weight");
    const std::string text = refusal(good.substr(0, second) + replaced(good.substr(second), one.what, one.with));
    EXPECT_NE(text.find("train worker 3 (http://t:3)"), std::string::npos) << text;
    EXPECT_NE(text.find("tensor 1 ('model.embed_tokens.weight')"), std::string::npos) << text;
    EXPECT_NE(text.find(one.told), std::string::npos) << one.with << "\n" << text;
  }
}

TEST(Report, every_prefix_of_a_report_is_refused) {
  const std::string good = body(Side::train, {usual()});
  for (std::size_t length = 0; length < good.size(); ++length)
    ASSERT_NE(refusal(good.substr(0, length)), "accepted") << length;
  EXPECT_NE(refusal(good + "x"), "accepted");
  EXPECT_EQ(refusal(good + " \n"), "accepted");
}

TEST(Report, a_byte_that_changes_never_crashes_the_reader) {
  const std::string good = body(Side::train, {usual()});
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char byte : {'"', '\\', '{', '}', '[', ']', ',', ':', '0', '-', '\0', '\x1f', '\x80', '\xff'}) {
      std::string text = good;
      text[at] = byte;
      const std::string told = refusal(text);
      EXPECT_LT(told.size(), 4096u);
    }
  }
}

TEST(Report, limits_are_told) {
  const std::string two = body(Side::train, {usual(), whole_of("w", {2}, 1, 4)});
  ReportLimits limits;
  limits.tensors_max = 1;
  EXPECT_NE(refusal(two, limits).find("more than 1 tensors"), std::string::npos);
  limits = {};
  limits.shards_max = 1;
  EXPECT_NE(refusal(two, limits).find("more than 1 shards"), std::string::npos);
  limits = {};
  limits.name_bytes_max = 10;
  EXPECT_NE(refusal(two, limits).find("a name of 25 bytes; 1 to 10 are right"), std::string::npos);
  limits = {};
  limits.frames_max = 1;
  EXPECT_NE(refusal(two, limits).find("more than 1 ways"), std::string::npos);
  limits = {};
  limits.frame_bytes_max = 100;
  EXPECT_NE(refusal(two, limits).find("more than 100 bytes"), std::string::npos);
  limits = {};
  limits.depth_max = 5;
  EXPECT_NE(refusal(two, limits).find("nested too deeply"), std::string::npos);
  Told deep = usual();
  deep.shard_more = ",\"x\":" + std::string(100, '[') + std::string(100, ']');
  EXPECT_NE(refusal(body(Side::train, {deep})).find("nested too deeply"), std::string::npos);
}

}  // namespace
}  // namespace weighlock::awex
