#include "awex.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weighlock::bench {
namespace {

constexpr int kRows = 4096;
constexpr int kColumns = 1024;

std::string shard_meta(const std::string& name, int rank, int world) {
  const int chunk = (kRows + world - 1) / world;
  const int begin = std::min(rank * chunk, kRows);
  const int rows = std::min(begin + chunk, kRows) - begin;
  return fmt::format(
      R"({{"type":"dataclass","class_path":"awex.meta.weight_meta.ParameterShardMeta","data":{{"tp_rank":0,)"
      R"("attn_tp_rank":0,"pp_rank":0,"ep_rank":0,"ep_tp_rank":0,"global_rank":{},"world_size":{},"engine_rank":0,)"
      R"("name":"{}","shape":[{},{}],"numel":{},"dtype":{{"type":"torch_dtype","value":"torch.bfloat16"}},)"
      R"("global_offset":[{},0],"sharding_type":{{"type":"enum","class_path":"awex.sharding.param_sharding.ShardingType",)"
      R"("value":"{}"}},"num_shards":{},"sharding_dim":0,"cp_rank":0,"cp_size":1,"cp_mode":"none"}}}})",
      rank, world, name, rows, kColumns, rows * kColumns, begin, world > 1 ? "TP_SHARDING" : "NO_SHARDING", world);
}

}  // namespace

std::string awex_parallelism(bool trainer, int world) {
  if (!trainer) return R"({"world_size":1,"tp_size":1,"pp_size":1,"dp_size":1,"ep_size":1,"num_engines":1})";
  return fmt::format(R"({{"world_size":{0},"tp_size":1,"pp_size":1,"dp_size":{0},"ep_size":1,"dp_replicated":false}})",
                     world);
}

std::string awex_weight_meta(int rank, int world, int tensors) {
  std::string out = "[";
  for (int i = 0; i < tensors; ++i) {
    const std::string name = fmt::format("model.layers.{}.mlp.{}_proj.weight", i / 2, i % 2 == 0 ? "gate" : "up");
    const std::string shard = shard_meta(name, rank, world);
    out += fmt::format(
        R"({}{{"type":"dataclass","class_path":"awex.meta.weight_meta.ParameterMeta","data":{{"name":"{}","global_numel":{},)"
        R"("global_shape":[{},{}],"dtype":{{"type":"torch_dtype","value":"torch.bfloat16"}},"shards":[{}],"replicas":[{{"type":)"
        R"("dataclass","class_path":"awex.meta.weight_meta.ParameterReplicaMeta","data":{{"shards":[{}]}}}}]}}}})",
        i == 0 ? "" : ",", name, kRows * kColumns, kRows, kColumns, shard, shard);
  }
  return out + "]";
}

}  // namespace weighlock::bench
