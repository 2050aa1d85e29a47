#include "weighlock/awex/serve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "weighlock/awex/scanner.hpp"

namespace weighlock::awex {
namespace {

void append(std::string& out, std::uint64_t number) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
  out.append(digits, end);
}

void append(std::string& out, const Extents& extents) {
  out.push_back('[');
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (i > 0) out.push_back(',');
    append(out, extents[i]);
  }
  out.push_back(']');
}

void append_wrapper(std::string& out, std::string_view outer, std::string_view members) {
  out.push_back('{');
  out += outer;
  out += ",\"data\":{";
  out += members;
  if (!members.empty()) out.push_back(',');
}

// `name` and `dtype` are the members as they are written, with a comma after each.
void append_shard(std::string& out, const Metadata& side, const Shard& shard, std::string_view name,
                  std::string_view dtype) {
  const ShardFrame& frame = side.shard_frames[shard.frame];
  append_wrapper(out, frame.outer, frame.members);
  out += name;
  out += "\"shape\":";
  append(out, shard.box.shape);
  out += ",\"numel\":";
  append(out, elements(shard.box.shape));
  out.push_back(',');
  out += dtype;
  out += "\"global_offset\":";
  append(out, shard.box.offset);
  out += "}}";
}

void append_tensor(std::string& out, const Metadata& side, const Tensor& tensor) {
  std::string name = "\"name\":\"", dtype = "\"dtype\":{\"type\":\"torch_dtype\",\"value\":\"";
  append_escaped(name, tensor.name);
  name += "\",";
  append_escaped(dtype, tensor.dtype);
  dtype += "\"},";
  const Frame& frame = side.tensor_frames[tensor.frame];
  append_wrapper(out, frame.outer, frame.members);
  out += name;
  out += "\"global_numel\":";
  append(out, elements(tensor.shape));
  out += ",\"global_shape\":";
  append(out, tensor.shape);
  out.push_back(',');
  out += dtype;
  out += "\"shards\":[],\"replicas\":[";
  const Frame& replica_frame = side.replica_frames[tensor.replica_frame];
  for (std::uint32_t r = 0; r < tensor.replicas; ++r) {
    if (r > 0) out.push_back(',');
    append_wrapper(out, replica_frame.outer, replica_frame.members);
    out += "\"shards\":[";
    const Replica& replica = side.replicas[tensor.first_replica + r];
    for (std::uint32_t s = 0; s < replica.shards; ++s) {
      if (s > 0) out.push_back(',');
      append_shard(out, side, side.shards[replica.first_shard + s], name, dtype);
    }
    out += "]}}";
  }
  out += "]}}";
}

// Stops soon after `bytes_max`.
std::string answer(const Metadata& side, std::size_t bytes_max) {
  constexpr std::size_t kShardBytes = 640, kTensorBytes = 512;  // about what they take: one allocation, or two
  std::string out;
  out.reserve(std::min(bytes_max, side.shards.size() * kShardBytes + side.tensors.size() * kTensorBytes));
  out += "{\"value\":[";
  for (const Tensor& tensor : side.tensors) {
    if (&tensor != &side.tensors.front()) out.push_back(',');
    append_tensor(out, side, tensor);
    if (out.size() > bytes_max) return out;
  }
  out += "]}";
  out.shrink_to_fit();
  return out;
}

Error too_large(const Repaired& repaired, std::size_t bytes_max) {
  std::uint64_t weights = 0;
  for (const Tensor& tensor : repaired.train.tensors) weights += elements(tensor.shape) * tensor.element_bytes;
  return Error{
      ErrorCode::too_large,
      fmt::format("the lists by which AWEX workers plan would have more than {} bytes, all that a gateway keeps for "
                  "them: the model has {} tensors ({} bytes), listed in {} parts for trainers and {} for engines; let "
                  "trainers hold tensors in fewer parts (shard over fewer ranks), connect fewer engines to a pair, or "
                  "use mode \"disk\"",
                  bytes_max, repaired.train.tensors.size(), weights, repaired.train.shards.size(),
                  repaired.infer.shards.size())};
}

}  // namespace

Result<Served> serialise(const Repaired& repaired, std::size_t bytes_max) {
  Served served;
  served.train = answer(repaired.train, bytes_max);
  if (served.train.size() <= bytes_max) served.infer = answer(repaired.infer, bytes_max - served.train.size());
  if (served.train.size() + served.infer.size() > bytes_max) return too_large(repaired, bytes_max);
  return served;
}

}  // namespace weighlock::awex
