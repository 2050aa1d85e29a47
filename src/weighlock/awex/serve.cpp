#include "weighlock/awex/serve.hpp"

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

std::string answer(const Metadata& side) {
  constexpr std::size_t kShardBytes = 640, kTensorBytes = 512;  // about what they take: one allocation, or two
  std::string out;
  out.reserve(side.shards.size() * kShardBytes + side.tensors.size() * kTensorBytes);
  out += "{\"value\":[";
  for (const Tensor& tensor : side.tensors) {
    if (&tensor != &side.tensors.front()) out.push_back(',');
    append_tensor(out, side, tensor);
  }
  out += "]}";
  out.shrink_to_fit();
  return out;
}

}  // namespace

Served serialise(const Repaired& repaired) {
  return {answer(repaired.train), answer(repaired.infer)};
}

}  // namespace weighlock::awex
