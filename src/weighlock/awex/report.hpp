// What one worker says of its tensors (the answer to POST /awex/report_weight_meta), parsed.
//
//   train: {"status":"success","result":[ParameterMeta...]}     infer: {"status":"ok","meta":[ParameterMeta...]}
//
// Values are encoded as AReaL's serialize_value does. Nothing is decoded by its class path: paths, and every member
// that isn't understood here, are kept as they came and served again (serve.hpp), so that newer releases find what they
// sent. A parameter's shards are taken from its `replicas`, which is all that AWEX's planner reads; from `shards` where
// there are no replicas. A shard that is written in both is read once.
//
// Pure; any thread; a Report owns all it has, so the body may go. Time: one pass, some 0.5 GB/s. Memory: about 220
// bytes a shard, and each name once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/awex/extents.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::awex {

enum class Side : std::uint8_t { train, infer };

// Whose report it is, for errors: "train worker 3 (http://10.0.0.4:8003)". `index` counts the URLs of its side.
struct Origin {
  Side side = Side::train;
  std::size_t index = 0;
  std::string url;
};
std::string text(const Origin& origin);

// All that a shard's text has beside its name, place and dtype, and what repair.cpp reads of it. Ranks of one worker
// share few frames: one for each way of sharding.
struct ShardFrame {
  std::string outer;    // "type":"dataclass","class_path":"..." and further members of the wrapper
  std::string members;  // of "data", without name, shape, numel, dtype, global_offset: as they came
  std::int64_t tp_rank = 0;
  std::int64_t pp_rank = 0;
  std::int64_t global_rank = 0;
  std::int64_t world_size = 0;
  std::int64_t num_shards = 1;
  std::int64_t sharding_dim = 0;
  std::int64_t cp_size = 1;
};

struct ReportedShard {
  Box box;  // as reported; trainers report wrong offsets for uneven shards
  std::uint32_t frame = 0;
};

struct ReportedTensor {
  std::uint32_t name = 0;     // into Report::strings
  std::uint32_t dtype = 0;    // into Report::strings: "torch.bfloat16"
  std::uint32_t frame = 0;    // into Report::tensor_frames
  std::uint32_t replica = 0;  // into Report::replica_frames
  Extents shape;              // global
  std::uint32_t first_shard = 0;
  std::uint32_t shards = 0;
};

// As ShardFrame, of the tensor itself and of its replicas.
struct Frame {
  std::string outer;
  std::string members;
};

struct Report {
  Origin origin;
  std::vector<std::string> strings;
  std::vector<ReportedTensor> tensors;
  std::vector<ReportedShard> shards;
  std::vector<ShardFrame> shard_frames;
  std::vector<Frame> tensor_frames;
  std::vector<Frame> replica_frames;
};

// Defaults: what a model of a trillion parameters in the finest layout stays below by a factor of ten.
struct ReportLimits {
  std::size_t tensors_max = 1'000'000;
  std::size_t shards_max = 16'000'000;
  std::size_t name_bytes_max = 1024;
  std::size_t frames_max = 65'536;     // a worker writes some ten; each ends up in memory
  std::size_t frame_bytes_max = 4096;  // known members take 350
  std::size_t depth_max = 64;
};

// Errors: bad_answer, naming the worker, the tensor by index and name, the member, and the byte; too_large for a limit.
// "status" is read too: anything but success or ok is an error with the worker's own text.
Result<Report> parse_report(const Origin& origin, std::string_view body, const ReportLimits& limits = {});

}  // namespace weighlock::awex
