// `weighlock plan` on real files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "run.hpp"
#include "weighlock/awex/report_fixture.hpp"
#include "weighlock/io/temporary_directory.hpp"

namespace weighlock::cli {
namespace {

constexpr std::string_view kTrain = R"({"ranks":2,"tensors":[
  {"name":"w","dtype":"BF16","shape":[10,4],"shards":[
    {"rank":0,"offset":[0,0],"shape":[5,4]},{"rank":1,"offset":[5,0],"shape":[5,4]}]},
  {"name":"step","dtype":"F32","shape":[],"shards":[{"rank":0,"offset":[],"shape":[]}]}]})";
constexpr std::string_view kInfer =
    R"({"ranks":2,"hosts":[0,0],"buffers":[{"rank":1,"name":"w","elements":40}],"tensors":[
  {"name":"w","dtype":"BF16","shape":[10,4],"shards":[{"rank":0,"offset":[0,0],"shape":[10,4]},
    {"rank":1,"offset":[0,0],"shape":[10,4],"placement":{"buffer":0,"strides":[1,10]}}]},
  {"name":"step","dtype":"F32","shape":[],"shards":[{"rank":0,"offset":[],"shape":[]}]}]})";

class PlanCommand : public ::testing::Test {
 protected:
  int plan(std::string_view train, std::string_view infer, std::vector<std::string> more = {}) {
    std::ofstream(file("train.json")) << train;
    std::ofstream(file("infer.json")) << infer;
    std::vector<std::string> arguments{"plan", file("train.json"), file("infer.json")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  int run(const std::vector<std::string>& arguments) {
    out_.str("");
    err_.str("");
    Terminal terminal{out_, err_, false};
    return cli::run(arguments, {[](std::string_view) { return std::nullopt; }, {}}, terminal,
                    [](const config::ServeOptions&) { return 0; });
  }
  std::string file(const std::string& name) { return std::string(temporary_.path()) + "/" + name; }

  TemporaryDirectory temporary_;
  std::ostringstream out_, err_;
};

TEST_F(PlanCommand, tells_bytes_per_rank_balance_bound_and_digest) {
  EXPECT_EQ(plan(kTrain, kInfer), 0) << err_.str();
  EXPECT_NE(out_.str().find("2 tensors, 2 -> 2 ranks, 5 operations\n"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("sent 164 B of 164 B needed, redundancy 1.00\n"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("1.000 x the lower bound 84 B for these sources; 0 idle\n"), std::string::npos)
      << out_.str();
  EXPECT_NE(out_.str().find("0     84 B          84 B"), std::string::npos) << out_.str();
}

TEST_F(PlanCommand, of_layouts_without_an_element_says_that_there_is_nothing_and_proves_nothing) {
  EXPECT_EQ(plan(R"({"ranks":1,"tensors":[]})", R"({"ranks":1,"tensors":[]})"), 0) << err_.str();
  EXPECT_NE(out_.str().find("there is nothing to send"), std::string::npos) << out_.str();
  EXPECT_EQ(out_.str().find("proved"), std::string::npos) << out_.str();
}

TEST_F(PlanCommand, json_has_the_same_and_the_hosts_halve_what_is_sent) {
  EXPECT_EQ(plan(kTrain, kInfer, {"--json", "--one-copy-per-host"}), 0) << err_.str();
  const Result<json::value> told = parse_json(out_.str(), "out");
  ASSERT_TRUE(told) << out_.str();
  EXPECT_EQ(find_int(*told, "sent_bytes"), 84);
  EXPECT_EQ(find_int(*told, "fan_out_bytes"), 80);
  EXPECT_EQ(find_string(*told, "digest")->size(), 32u);
}

TEST_F(PlanCommand, what_cannot_be_planned_is_2_with_tensor_rank_and_hole) {
  std::string short_one(kTrain);
  short_one.replace(short_one.find(R"("offset":[5,0],"shape":[5,4])"), 28, R"("offset":[5,0],"shape":[3,4])");
  EXPECT_EQ(plan(short_one, kInfer), 2);
  EXPECT_NE(err_.str().find("infer tensor 'w' on rank 0: hole [8,10)x[0,4)"), std::string::npos) << err_.str();
  EXPECT_EQ(plan(short_one, kInfer, {"--json"}), 2);
  EXPECT_TRUE(out_.str().starts_with(R"({"error":{"code":"invalid_argument")")) << out_.str();
}

TEST_F(PlanCommand, bad_files_are_2_with_file_and_member) {
  const std::vector<std::pair<std::string, std::string>> bad{
      {"[]", "must be a JSON object"},
      {"{", "train.json"},
      {R"({"tensors":[]})", "'ranks' is missing"},
      {R"({"ranks":0,"tensors":[]})", "from 1 to"},
      {R"({"ranks":1})", "'tensors' must be a list"},
      {R"({"ranks":2,"hosts":[0],"tensors":[]})", "1 hosts are given for 2 ranks"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"bf16"}]})", "tensor 'w': 'dtype'"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"BF16","shape":[-1]}]})", "each of 'shape'"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"BF16","shape":[1],"shards":[{"offset":[0],"shape":[1]}]}]})",
       "'rank' is missing"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"BF16","shape":[1],"shards":[{"rank":1,"offset":[0],"shape":[1]}]}]})",
       "there are only 1 ranks"},
      {R"({"ranks":1,"tensors":[],"host":[0]})", "train.json: unknown member 'host'; did you mean 'hosts'?"},
      {R"({"ranks":1,"tensors":[],"buffers":[{"rank":0,"elements":4,"nam":"b"}]})", "buffer 0: unknown member 'nam'"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"BF16","shape":[1],"pad":[2],"shards":[]}]})",
       "tensor 'w': unknown member 'pad'"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"BF16","shape":[1],
          "shards":[{"rank":0,"offset":[0],"shape":[1],"placment":{}}]}]})",
       "tensor 'w': a shard: unknown member 'placment'; did you mean 'placement'?"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"BF16","shape":[1],
          "shards":[{"rank":0,"offset":[0],"shape":[1],"placement":{"buffer":0,"stride":[1]}}]}]})",
       "a placement: unknown member 'stride'"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"F4","shape":[2],"shards":[]}]})", "smaller than a byte"},
      {R"({"ranks":1,"tensors":[{"name":"w","dtype":"BF16","shape":[9223372036854775808,2],"shards":[]}]})",
       "tensor 'w'"},
  };
  for (const auto& [text, says] : bad) {
    EXPECT_EQ(plan(text, kInfer), 2) << text;
    EXPECT_NE(err_.str().find(says), std::string::npos) << err_.str();
  }
  EXPECT_EQ(run({"plan", file("none.json"), file("infer.json")}), 3);  // not_found
  EXPECT_NE(err_.str().find("none.json': No such file"), std::string::npos) << err_.str();
  EXPECT_EQ(run({"plan", file("train.json")}), 2);
}

TEST_F(PlanCommand, byte_sums_near_64_bits_are_refused_at_once_with_the_tensor_named) {
  const auto layout = [](int ranks) {
    std::string tensors;
    for (int t = 0; t < 400; ++t) {
      std::string shards;
      for (int rank = 0; rank < ranks; ++rank)
        shards += fmt::format(R"({}{{"rank":{},"offset":[0],"shape":[1125899906842624]}})", rank ? "," : "", rank);
      tensors += fmt::format(R"({}{{"name":"t{}","dtype":"BF16","shape":[1125899906842624],"shards":[{}]}})",
                             t ? "," : "", t, shards);
    }
    return fmt::format(R"({{"ranks":{},"tensors":[{}]}})", ranks, tensors);
  };
  EXPECT_EQ(plan(layout(1), layout(1)), 0) << err_.str();
  EXPECT_EQ(plan(layout(1), layout(40)), 2);
  EXPECT_NE(err_.str().find("with infer tensor 't51' on rank 7 all ranks together would receive 2^62 bytes"),
            std::string::npos)
      << err_.str();
}

TEST_F(PlanCommand, dtypes_of_two_sizes_in_one_local_tensor_are_refused) {
  constexpr std::string_view kTwo = R"({"ranks":1,"buffers":[{"rank":0,"name":"both","elements":8}],"tensors":[
    {"name":"a","dtype":"BF16","shape":[4],"shards":[{"rank":0,"offset":[0],"shape":[4],
      "placement":{"buffer":0,"strides":[1]}}]},
    {"name":"b","dtype":"F32","shape":[4],"shards":[{"rank":0,"offset":[0],"shape":[4],
      "placement":{"buffer":0,"offset":4,"strides":[1]}}]}]})";
  EXPECT_EQ(plan(kTwo, kTwo), 2);
  EXPECT_NE(
      err_.str().find("tensor 'b' on rank 0 in local tensor 'both' is of dtype F32, and tensor 'a' in it of BF16"),
      std::string::npos)
      << err_.str();
  std::string alike(kTwo);
  alike.replace(alike.find("F32"), 3, "F16");
  EXPECT_EQ(plan(alike, alike), 0) << err_.str();
}

// Reports of AWEX workers, a file for each.
class PlanOfReports : public PlanCommand {
 protected:
  using Told = awex::Told;
  void SetUp() override {
    std::filesystem::create_directory(file("train"));
    std::filesystem::create_directory(file("infer"));
  }
  void write(awex::Side side, const std::string& name, const std::vector<Told>& told) {
    std::ofstream(file((side == awex::Side::train ? "train/" : "infer/") + name)) << awex::body(side, told);
  }
  int plan_reports(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"plan", file("train"), file("infer")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
};

TEST_F(PlanOfReports, is_that_of_the_workers_with_uneven_offsets_put_right_and_ranks_in_the_order_of_numbers) {
  for (int rank = 0; rank < 11; ++rank)  // ten before two, if names were compared as text
    write(awex::Side::train, fmt::format("rank-{}.json", rank), {awex::fsdp_of("w", {25, 4}, rank, 11)});
  for (int engine = 0; engine < 2; ++engine)
    write(awex::Side::infer, fmt::format("{}.json", engine),
          {awex::split_of("w", {25, 4}, 1, 0, 2), awex::split_of("w", {25, 4}, 1, 1, 2)});
  std::ofstream(file("train/notes.txt")) << "not a report";
  ASSERT_EQ(plan_reports(), 0) << err_.str();
  EXPECT_NE(out_.str().find("it is what AWEX workers do"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("1 tensors, 11 -> 4 ranks"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("sent 400 B of 400 B needed, redundancy 1.00"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("1.000 x the lower bound 48 B"), std::string::npos) << out_.str();
  ASSERT_EQ(plan_reports({"--json"}), 0) << err_.str();
  const Result<json::value> told = parse_json(out_.str(), "out");
  ASSERT_TRUE(told) << out_.str();
  EXPECT_EQ(find_string(*told, "planned_by"), "awex");
  EXPECT_GT(*find_int(*told, "repaired_offsets"), 0);
  EXPECT_EQ(find_int(*told, "busiest_sender_bytes"), 48);
}

TEST_F(PlanOfReports, what_awex_cannot_transfer_is_2_with_tensor_and_file) {
  write(awex::Side::train, "0.json", {awex::whole_of("w", {4}, 0, 1)});
  EXPECT_EQ(plan_reports(), 2);
  EXPECT_NE(err_.str().find("infer: no file ends in .json"), std::string::npos) << err_.str();
  write(awex::Side::infer, "0.json", {awex::whole_of("w", {5}, 0, 1)});
  EXPECT_EQ(plan_reports(), 2);
  EXPECT_NE(err_.str().find("tensor 'w'"), std::string::npos) << err_.str();
  std::ofstream(file("infer/0.json")) << R"({"status":"ok","meta":[{]})";
  EXPECT_EQ(plan_reports(), 2);
  EXPECT_NE(err_.str().find("infer/0.json"), std::string::npos) << err_.str();
  EXPECT_EQ(plan_reports({"--allow-unused"}), 2);
  EXPECT_NE(err_.str().find("are for layouts"), std::string::npos) << err_.str();
  EXPECT_EQ(run({"plan", file("train"), file("infer/0.json")}), 2);
  EXPECT_NE(err_.str().find("give two layouts, or two directories"), std::string::npos) << err_.str();
}

TEST_F(PlanCommand, a_file_that_is_none_is_named) {
  std::ofstream(file("infer.json")) << kInfer;
  EXPECT_NE(run({"plan", "/dev/zero", file("infer.json")}), 0);
  EXPECT_NE(err_.str().find("/dev/zero"), std::string::npos) << err_.str();
}

}  // namespace
}  // namespace weighlock::cli
