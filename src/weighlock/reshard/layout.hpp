// What one side of a transfer holds: tensors, and which rank has which part of them, and how it lies in that rank's
// memory.
//
//   Side train("train", 256);
//   Result<std::uint32_t> tensor = train.add_tensor({"model.norm.weight", Dtype::bf16, {7168}});
//   Status added = train.add_shard(*tensor, rank, {0}, {7168});
//
// All coordinates are those of the whole tensor, in the dimension order that both sides call it by. How a rank stores
// its part (transposed, fused with others, with gaps) is a Placement; without one the part is a contiguous tensor of
// its own. A rank may hold several parts of a tensor, none, or empty ones.
//
// What is added is checked at once; what only both sides together show (holes, names that one side lacks) is for
// plan.hpp. Errors: invalid_argument or not_supported, naming the side, the tensor, the rank, the value and the remedy.
//
// Owns all it has; any thread, one at a time. Compact: a shard takes 20 bytes and 16 bytes a dimension (with a
// placement 8 more a dimension, and 8), a tensor its name; nothing is allocated for a shard alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/box.hpp"
#include "weighlock/tensor/dtype.hpp"

namespace weighlock::reshard {

// By the side's own numbers: from 0 in each side.
using TensorId = std::uint32_t;
using ShardId = std::uint32_t;
using Rank = std::uint32_t;
using BufferId = std::uint32_t;

inline constexpr std::uint32_t kNone = 0xffffffff;
// Of one local tensor: far above any memory, and low enough that sums of positions stay below 64 bits.
inline constexpr std::uint64_t kBufferElementsMax = std::uint64_t{1} << 56;

struct Tensor {
  std::string name;
  Dtype dtype = Dtype::bf16;         // of whole bytes: F4 and F6 are to be given as the U8 that they are packed in
  std::vector<std::uint64_t> shape;  // logical: what both sides agree on
  // As this side pads it (vocabularies): empty, or at least `shape` in each dimension. Shards may reach into the
  // padding; it is neither read nor written.
  std::vector<std::uint64_t> padded = {};
  // Target side: the source's name, where it isn't `name` (a tied lm_head reads model.embed_tokens.weight).
  std::string source = {};
};

// How a shard lies in a local tensor of its rank. Strides are in elements, one for each dimension of the tensor (not of
// the local tensor: a transposed matrix [rows, columns] has strides {1, rows}).
struct Placement {
  BufferId buffer = kNone;
  std::uint64_t offset = 0;  // of the shard's first element, in elements
  std::span<const std::int64_t> strides;
};

// A local tensor that shards of one rank lie in. Positions in it are in elements, so all of them have one size.
struct Buffer {
  std::string name;  // for errors
  Rank rank = 0;
  std::uint64_t elements = 0;
  std::optional<TensorId> first = {};  // that was placed in it
};

struct Shard {
  TensorId tensor = 0;
  Rank rank = 0;
  // Who produces these bytes: shards of one owner that hold the same elements are copies of each other. Ranks that only
  // by mistake use one name for different weights (pipeline stages with local layer numbers) have different owners, and
  // are refused where they meet. Sources only.
  std::uint32_t owner = 0;
  std::uint32_t placement = kNone;  // into the side's own table
  std::uint32_t at = 0;             // of its box, likewise
};

class Side {
 public:
  // `name` is for errors: "train", "infer".
  Side(std::string name, std::uint32_t ranks) : name_(std::move(name)), ranks_(ranks) {}

  // Refused: a name that is there, more than kDimensionsMax dimensions, a size beyond 64 bits, padding below the shape,
  // dtypes below a byte.
  Result<TensorId> add_tensor(Tensor tensor);
  BufferId add_buffer(Rank rank, std::uint64_t elements, std::string name);
  // The part [offset, offset + extent). Refused: a rank or a part that isn't there ("an out-of-range slice"), another
  // number of dimensions, strides below 1, strides that place two elements in one spot, a placement that leaves its
  // buffer, an empty part of a buffer that isn't, dtypes of two sizes in one buffer.
  Status add_shard(TensorId tensor, Rank rank, std::span<const std::uint64_t> offset,
                   std::span<const std::uint64_t> extent, std::uint32_t owner = 0,
                   const std::optional<Placement>& placement = std::nullopt);
  // The host of each rank, by number; as many as there are ranks. Without hosts each rank is on one of its own.
  Status set_hosts(std::vector<std::uint32_t> hosts);
  void reserve(std::size_t tensors, std::size_t shards, std::size_t dimensions);

  std::optional<TensorId> find(std::string_view name) const;
  const std::string& name() const { return name_; }
  std::uint32_t ranks() const { return ranks_; }
  std::span<const Tensor> tensors() const { return tensors_; }
  std::span<const Shard> shards() const { return shards_; }
  std::span<const Buffer> buffers() const { return buffers_; }
  std::span<const std::uint32_t> hosts() const { return hosts_; }

  // As it was added; it may reach into the padding.
  Box box(ShardId shard) const;
  // Without the padding; empty if nothing else is there.
  Box logical_box(ShardId shard) const;
  // Where an element lies: buffer, and the position in it. `coordinates` are relative to the shard's box. A shard
  // without a placement has no buffer (kNone) and is contiguous.
  BufferId buffer(ShardId shard) const;
  std::uint64_t position(ShardId shard, std::span<const std::uint64_t> coordinates) const;

  // "train tensor 'x' on rank 3", "train tensor 'x'": how errors call them.
  std::string describe(ShardId shard) const;
  std::string describe_tensor(TensorId tensor) const;

 private:
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  Status check_box(TensorId tensor, Rank rank, std::span<const std::uint64_t> offset,
                   std::span<const std::uint64_t> extent) const;
  Status check_placement(TensorId tensor, Rank rank, std::span<const std::uint64_t> extent,
                         const Placement& placement) const;
  std::string describe(TensorId tensor, Rank rank) const;

  std::string name_;
  std::uint32_t ranks_ = 0;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, TensorId, NameHash, std::equal_to<>> by_name_;
  std::vector<Shard> shards_;
  std::vector<Buffer> buffers_;
  std::vector<std::uint32_t> hosts_;
  std::vector<std::uint64_t> boxes_;       // begin and end of each dimension
  std::vector<std::uint64_t> placements_;  // buffer, offset, strides
};

}  // namespace weighlock::reshard
