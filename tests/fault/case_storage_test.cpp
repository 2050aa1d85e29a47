// Cases in which what was saved is damaged: no engine is paused, and the client is told what is wrong with which file.
#include <filesystem>

#include "case_fixture.hpp"

namespace weighlock::fault {
namespace {

namespace fs = std::filesystem;

struct Damage {
  const char* name;
  std::function<void(const std::string& directory)> spoil;
  const char* told;
};

void rewrite(const std::string& directory, const std::function<std::string(std::string)>& change) {
  const std::string file = directory + "/model.safetensors";
  write_file(file, change(read_file(file)));
}

std::vector<Damage> damages() {
  return {
      {"shard_of_the_index_is_missing",
       [](const std::string& d) {
         write_sharded(d);
         fs::remove(d + "/model.safetensors");
         fs::remove(d + "/" + kShard2);
       },
       kShard2},
      {"last_byte_is_cut",
       [](const std::string& d) { rewrite(d, [](std::string bytes) { return bytes.substr(0, bytes.size() - 1); }); },
       "model.safetensors"},
      {"a_byte_too_much", [](const std::string& d) { rewrite(d, [](std::string bytes) { return bytes + "x"; }); },
       "model.safetensors"},
      {"header_of_gigabytes",
       [](const std::string& d) {
         rewrite(d, [](const std::string& bytes) { return std::string(8, '\xff') + bytes.substr(8); });
       },
       "model.safetensors"},
      {"a_second_set_of_weights",
       [](const std::string& d) { fs::copy_file(d + "/model.safetensors", d + "/consolidated.safetensors"); },
       "2 weights files"},
      {"half_of_the_tensors",
       [](const std::string& d) {
         std::vector<TensorSpec> half = tiny_tensors();
         half.resize(2);
         write_single(d, half, 9);
       },
       "model.norm.weight"},
      {"another_shape",
       [](const std::string& d) {
         std::vector<TensorSpec> tensors = tiny_tensors();
         tensors[3].shape = {16};
         write_single(d, tensors, 9);
       },
       "model.norm.weight"},
      {"no_config", [](const std::string& d) { fs::remove(d + "/config.json"); }, "config.json"},
  };
}

class DamagedSave : public CaseTest, public ::testing::WithParamInterface<Damage> {};

TEST_P(DamagedSave, reaches_no_engine_and_is_told_by_its_file_or_tensor) {
  const auto two = fleet(DialectKind::vllm, 2);
  ASSERT_EQ(state_of(two->update(1)), "succeeded");
  lab.on_peers([&] {
    for (std::size_t i = 0; i < two->engines(); ++i) two->engine(i).begin_script();
    two->trainer(0).spoil = GetParam().spoil;
  });
  const json::value ended = two->update(2);
  EXPECT_EQ(state_of(ended), "aborted") << json::serialize(ended);
  expect_in(told(ended), GetParam().told);
  EXPECT_EQ(count(*two, 0, "/pause") + count(*two, 1, "/pause"), 0);
  EXPECT_EQ(count(*two, 0, "/collective_rpc") + count(*two, 1, "/collective_rpc"), 0);
  expect_well(*two);
  lab.on_peers([&] { two->trainer(0).spoil = nullptr; });
  EXPECT_EQ(state_of(two->update(3)), "succeeded");
}

INSTANTIATE_TEST_SUITE_P(Kinds, DamagedSave, ::testing::ValuesIn(damages()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weighlock::fault
