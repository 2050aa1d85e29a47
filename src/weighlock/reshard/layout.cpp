#include "weighlock/reshard/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "weighlock/core/check.hpp"
#include "weighlock/reshard/storage.hpp"
#include "weighlock/tensor/quote.hpp"

namespace weighlock::reshard {
namespace {

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

const std::vector<std::uint64_t>& stored_shape(const Tensor& tensor) {
  return tensor.padded.empty() ? tensor.shape : tensor.padded;
}

std::string strides_text(std::span<const std::int64_t> strides) {
  std::string out;
  for (const std::int64_t stride : strides) out += fmt::format("{}{}", out.empty() ? "" : ",", stride);
  return "(" + out + ")";
}

}  // namespace

std::string Side::describe_tensor(TensorId tensor) const {
  return fmt::format("{} tensor {}", name_, quote_name(tensors_[tensor].name));
}

std::string Side::describe(TensorId tensor, Rank rank) const {
  return fmt::format("{} on rank {}", describe_tensor(tensor), rank);
}

std::string Side::describe(ShardId shard) const {
  return describe(shards_[shard].tensor, shards_[shard].rank);
}

void Side::reserve(std::size_t tensors, std::size_t shards, std::size_t dimensions) {
  tensors_.reserve(tensors);
  by_name_.reserve(tensors);
  shards_.reserve(shards);
  boxes_.reserve(shards * 2 * dimensions);
}

Result<TensorId> Side::add_tensor(Tensor tensor) {
  const std::string who = fmt::format("{} tensor {}", name_, quote_name(tensor.name));
  if (by_name_.contains(tensor.name)) return bad(who + " is described twice");
  if (tensor.shape.size() > kDimensionsMax)
    return Error{ErrorCode::not_supported, fmt::format("{} has {} dimensions, more than {}: describe it as a matrix",
                                                       who, tensor.shape.size(), kDimensionsMax)};
  if (bits(tensor.dtype) % 8 != 0)
    return Error{ErrorCode::not_supported,
                 fmt::format("{} is of dtype {}, whose elements are smaller than a byte: describe it as the U8 that it "
                             "is packed in",
                             who, weighlock::name(tensor.dtype))};
  if (!tensor.padded.empty()) {
    const bool fits = tensor.padded.size() == tensor.shape.size() &&
                      std::equal(tensor.shape.begin(), tensor.shape.end(), tensor.padded.begin(), std::less_equal<>());
    if (!fits)
      return bad(fmt::format("{} has the padded shape {}, which doesn't hold its shape {}", who,
                             shape_text(tensor.padded), shape_text(tensor.shape)));
  }
  if (Result<std::uint64_t> size = tensor_bytes(tensor.dtype, stored_shape(tensor)); !size)
    return wrap(who, std::move(size).error());
  if (tensors_.size() >= kNone) return Error{ErrorCode::too_large, who + " is one tensor too many"};
  const auto id = static_cast<TensorId>(tensors_.size());
  by_name_.emplace(tensor.name, id);
  tensors_.push_back(std::move(tensor));
  return id;
}

std::optional<TensorId> Side::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

BufferId Side::add_buffer(Rank rank, std::uint64_t elements, std::string name) {
  buffers_.push_back({std::move(name), rank, elements});
  return static_cast<BufferId>(buffers_.size() - 1);
}

Status Side::check_box(TensorId tensor, Rank rank, std::span<const std::uint64_t> offset,
                       std::span<const std::uint64_t> extent) const {
  const std::vector<std::uint64_t>& shape = stored_shape(tensors_[tensor]);
  if (rank >= ranks_) return bad(fmt::format("{}: there are only {} ranks", describe(tensor, rank), ranks_));
  if (offset.size() != shape.size() || extent.size() != shape.size())
    return bad(
        fmt::format("{} is described with an offset of {} and an extent of {} dimensions, the tensor has {}: "
                    "give one number for each",
                    describe(tensor, rank), offset.size(), extent.size(), shape.size()));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (offset[i] <= shape[i] && extent[i] <= shape[i] - offset[i]) continue;
    return bad(
        fmt::format("{} is said to be [{},{}+{}) in dimension {}, out of the tensor's {}: a rank that isn't "
                    "numbered as the layout has it, or padding that isn't declared",
                    describe(tensor, rank), offset[i], offset[i], extent[i], i, shape_text(shape)));
  }
  return {};
}

Status Side::check_placement(TensorId tensor, Rank rank, std::span<const std::uint64_t> extent,
                             const Placement& placement) const {
  if (placement.buffer >= buffers_.size() || buffers_[placement.buffer].rank != rank)
    return bad(fmt::format("{} lies in a local tensor that the rank doesn't have", describe(tensor, rank)));
  const Buffer& buffer = buffers_[placement.buffer];
  const std::string who = fmt::format("{} in local tensor {}", describe(tensor, rank), quote_name(buffer.name));
  if (buffer.elements > kBufferElementsMax)
    return Error{ErrorCode::too_large,
                 fmt::format("{}, which has {} elements, more than {}", who, buffer.elements, kBufferElementsMax)};
  if (buffer.first) {
    const Tensor& mine = tensors_[tensor];
    const Tensor& other = tensors_[*buffer.first];
    if (bits(mine.dtype) != bits(other.dtype))
      return bad(
          fmt::format("{} is of dtype {}, and tensor {} in it of {}: positions are in elements of one size, so "
                      "give tensors of another dtype a local tensor of their own",
                      who, weighlock::name(mine.dtype), quote_name(other.name), weighlock::name(other.dtype)));
  }
  if (placement.strides.size() != extent.size())
    return bad(fmt::format("{} has {} strides for {} dimensions", who, placement.strides.size(), extent.size()));
  if (std::find(extent.begin(), extent.end(), 0u) != extent.end()) {
    if (buffer.elements == 0) return {};
    return bad(fmt::format("{} is empty, though that has {} elements to be filled: its slice was taken out of range",
                           who, buffer.elements));
  }
  for (const std::int64_t stride : placement.strides) {
    if (stride < 1)
      return bad(fmt::format("{} has strides {}: each must be at least 1; make it contiguous first", who,
                             strides_text(placement.strides)));
  }
  // Where from the smallest stride on each steps over all that the smaller ones reach, no two elements meet.
  std::vector<std::size_t> order(extent.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return placement.strides[a] < placement.strides[b]; });
  std::uint64_t last = 0;  // the farthest element, from the first
  bool nested = true;
  for (std::size_t i = 0; i < extent.size(); ++i) {
    const std::uint64_t steps = extent[order[i]] - 1;
    const auto stride = static_cast<std::uint64_t>(placement.strides[order[i]]);
    if (steps == 0) continue;
    nested = nested && stride > last;
    std::uint64_t reach = 0;
    if (__builtin_mul_overflow(steps, stride, &reach) || __builtin_add_overflow(last, reach, &last))
      return bad(fmt::format("{}: its strides pass 64 bits", who));
  }
  const bool fits = placement.offset < buffer.elements && last < buffer.elements - placement.offset;
  if (fits && !nested) {
    const std::optional<bool> meets = meets_itself(placement.strides, extent);
    if (!meets)
      return Error{ErrorCode::too_large,
                   fmt::format("{} has strides {} for {} elements, too entangled to tell whether two "
                               "of them lie in one place: make it contiguous first",
                               who, strides_text(placement.strides), shape_text(extent))};
    if (*meets)
      return bad(fmt::format("{} has strides {} for {} elements: two of them lie in one place", who,
                             strides_text(placement.strides), shape_text(extent)));
  }
  if (fits) return {};
  return bad(
      fmt::format("{}: {} elements from element {} on with strides {} reach element {}, and there are only {}: "
                  "give the strides of the local tensor, not those of the whole one",
                  who, shape_text(extent), placement.offset, strides_text(placement.strides), placement.offset + last,
                  buffer.elements));
}

Status Side::add_shard(TensorId tensor, Rank rank, std::span<const std::uint64_t> offset,
                       std::span<const std::uint64_t> extent, std::uint32_t owner,
                       const std::optional<Placement>& placement) {
  WEIGHLOCK_CHECK(tensor < tensors_.size(), "a shard of a tensor that was added");
  if (Status ok = check_box(tensor, rank, offset, extent); !ok) return ok;
  if (placement) {
    if (Status ok = check_placement(tensor, rank, extent, *placement); !ok) return ok;
  }
  if (placement && !buffers_[placement->buffer].first) buffers_[placement->buffer].first = tensor;
  Shard shard{tensor, rank, owner, kNone, static_cast<std::uint32_t>(boxes_.size())};
  if (shards_.size() >= kNone || boxes_.size() + 2 * kDimensionsMax >= kNone ||
      placements_.size() + 2 + kDimensionsMax >= kNone)
    return Error{ErrorCode::too_large, fmt::format("{} is one shard too many", describe(tensor, rank))};
  for (std::size_t i = 0; i < extent.size(); ++i) {
    boxes_.push_back(offset[i]);
    boxes_.push_back(offset[i] + extent[i]);
  }
  if (placement) {
    shard.placement = static_cast<std::uint32_t>(placements_.size());
    placements_.push_back(placement->buffer);
    placements_.push_back(placement->offset);
    for (const std::int64_t stride : placement->strides) placements_.push_back(static_cast<std::uint64_t>(stride));
  }
  shards_.push_back(shard);
  return {};
}

Status Side::set_hosts(std::vector<std::uint32_t> hosts) {
  if (hosts.size() != ranks_)
    return bad(fmt::format("{}: {} hosts are given for {} ranks: one for each rank", name_, hosts.size(), ranks_));
  hosts_ = std::move(hosts);
  return {};
}

Box Side::box(ShardId shard) const {
  const Shard& it = shards_[shard];
  Box out;
  out.dimensions = static_cast<std::uint32_t>(tensors_[it.tensor].shape.size());
  for (std::size_t i = 0; i < out.dimensions; ++i) {
    out.begin[i] = boxes_[it.at + 2 * i];
    out.end[i] = boxes_[it.at + 2 * i + 1];
  }
  return out;
}

Box Side::logical_box(ShardId shard) const {
  const Tensor& tensor = tensors_[shards_[shard].tensor];
  const Box stored = box(shard);
  if (tensor.padded.empty()) return stored;
  return intersection(stored, whole(tensor.shape));
}

BufferId Side::buffer(ShardId shard) const {
  const std::uint32_t at = shards_[shard].placement;
  return at == kNone ? kNone : static_cast<BufferId>(placements_[at]);
}

std::uint64_t Side::position(ShardId shard, std::span<const std::uint64_t> coordinates) const {
  const std::uint32_t at = shards_[shard].placement;
  if (at != kNone) {
    std::uint64_t position = placements_[at + 1];
    for (std::size_t i = 0; i < coordinates.size(); ++i) position += coordinates[i] * placements_[at + 2 + i];
    return position;
  }
  const Box stored = box(shard);
  std::uint64_t position = 0;
  for (std::size_t i = 0; i < coordinates.size(); ++i) position = position * stored.extent(i) + coordinates[i];
  return position;
}

}  // namespace weighlock::reshard
