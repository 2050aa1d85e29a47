// For tests: workers' reports as AReaL's adapters write them.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "weighlock/awex/repair.hpp"

namespace weighlock::awex {

using Sizes = std::vector<std::uint64_t>;

// One rank's part of one tensor, as it is told.
struct Told {
  std::string name;
  Sizes whole;
  Sizes shape;
  Sizes offset;
  int rank = 0;
  int world = 1;
  int shards = 1;
  int dim = 0;
  int pp_rank = 0;
  std::string dtype = "torch.bfloat16";
  std::int64_t tp_rank = -1;  // -1: the rank
  int cp_size = 1;
  std::string shard_more = "";   // further members of the shard's data, with a comma before: ,"x":1
  std::string tensor_more = "";  // of the tensor's data
};

inline std::uint64_t product(const Sizes& sizes) {
  std::uint64_t all = 1;
  for (const std::uint64_t size : sizes) all *= size;
  return all;
}

inline std::string list(const Sizes& sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ","));
}

inline std::string dtype_json(const std::string& dtype) {
  return fmt::format(R"({{"type":"torch_dtype","value":"{}"}})", dtype);
}

inline std::string shard_json(const Told& t) {
  return fmt::format(
      R"({{"type":"dataclass","class_path":"awex.meta.weight_meta.ParameterShardMeta","data":{{"tp_rank":{12},)"
      R"("attn_tp_rank":{12},"pp_rank":{1},"ep_rank":0,"ep_tp_rank":0,"global_rank":{0},"world_size":{2},"engine_rank":0,)"
      R"("name":"{3}","shape":{4},"numel":{5},"dtype":{6},"global_offset":{7},"sharding_type":{{"type":"enum",)"
      R"("class_path":"awex.sharding.param_sharding.ShardingType","value":"{8}"}},"num_shards":{9},"sharding_dim":{10},)"
      R"("cp_rank":0,"cp_size":{13},"cp_mode":"none"{11}}}}})",
      t.rank, t.pp_rank, t.world, t.name, list(t.shape), product(t.shape), dtype_json(t.dtype), list(t.offset),
      t.shards > 1 ? "TP_SHARDING" : "NO_SHARDING", t.shards, t.dim, t.shard_more, t.tp_rank < 0 ? t.rank : t.tp_rank,
      t.cp_size);
}

inline std::string tensor_json(const Told& t) {
  const std::string shard = shard_json(t);
  return fmt::format(
      R"({{"type":"dataclass","class_path":"awex.meta.weight_meta.ParameterMeta","data":{{"name":"{}","global_numel":{},)"
      R"("global_shape":{},"dtype":{},"shards":[{}],"replicas":[{{"type":"dataclass",)"
      R"("class_path":"awex.meta.weight_meta.ParameterReplicaMeta","data":{{"shards":[{}]}}}}]{}}}}})",
      t.name, product(t.whole), list(t.whole), dtype_json(t.dtype), shard, shard, t.tensor_more);
}

inline std::string body(Side side, const std::vector<Told>& told) {
  std::vector<std::string> tensors;
  for (const Told& one : told) tensors.push_back(tensor_json(one));
  return (side == Side::train ? R"({"status":"success","result":[)" : R"({"status":"ok","meta":[)") +
         fmt::format("{}", fmt::join(tensors, ",")) + "]}";
}

// The reports of one side: `workers[i]` is what URL i tells.
inline Result<std::vector<Report>> reports(Side side, const std::vector<std::vector<Told>>& workers) {
  std::vector<Report> all;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    Result<Report> report = parse_report({side, i, fmt::format("http://{}:{}", side == Side::train ? "t" : "i", i)},
                                         body(side, workers[i]));
    if (!report) return std::move(report).error();
    all.push_back(std::move(*report));
  }
  return all;
}

inline Told whole_of(const std::string& name, const Sizes& shape, int rank, int world) {
  return {name, shape, shape, Sizes(shape.size(), 0), rank, world};
}

// A piece of rows as torch cuts it, with the offset as the FSDP adapter reports it.
inline Told fsdp_of(const std::string& name, const Sizes& shape, int rank, int world) {
  const auto ranks = static_cast<std::uint64_t>(world), place = static_cast<std::uint64_t>(rank);
  const std::uint64_t piece = (shape[0] + ranks - 1) / ranks;
  const std::uint64_t begin = std::min(place * piece, shape[0]), end = std::min((place + 1) * piece, shape[0]);
  Told told{name, shape, shape, Sizes(shape.size(), 0), rank, world, world};
  told.shape[0] = end - begin;
  told.offset[0] = place * (shape[0] / ranks);
  return told;
}

// A tensor-parallel rank's piece along `dim`, even.
inline Told split_of(const std::string& name, const Sizes& shape, int dim, int rank, int world) {
  Told told{name, shape, shape, Sizes(shape.size(), 0), rank, world, world, dim};
  const auto d = static_cast<std::size_t>(dim);
  told.shape[d] = shape[d] / static_cast<std::uint64_t>(world);
  told.offset[d] = told.shape[d] * static_cast<std::uint64_t>(rank);
  return told;
}

}  // namespace weighlock::awex
