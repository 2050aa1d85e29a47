#include "weighlock/reshard/fused.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace weighlock::reshard {
namespace {

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

std::uint64_t row_elements(const Tensor& tensor) {
  std::uint64_t elements = 1;
  for (std::size_t d = 1; d < tensor.shape.size(); ++d) elements *= tensor.shape[d];
  return elements;
}

// Adds rows of a tensor at element `offset` of a buffer, one row right after the other.
Status add_rows(Side& side, Rank rank, BufferId buffer, std::uint64_t offset, const Rows& part, std::uint32_t owner) {
  const std::vector<std::uint64_t>& shape = side.tensors()[part.tensor].shape;
  if (shape.empty()) return bad(side.describe_tensor(part.tensor) + " is a scalar and has no rows");
  std::vector<std::uint64_t> at(shape.size()), extent = shape;
  std::vector<std::int64_t> strides(shape.size());
  at[0] = part.rows.begin;
  extent[0] = part.rows.end - part.rows.begin;
  std::uint64_t stride = 1;
  for (std::size_t d = shape.size(); d-- > 0; stride *= d > 0 ? shape[d] : 1)
    strides[d] = static_cast<std::int64_t>(stride);
  return side.add_shard(part.tensor, rank, at, extent, owner, Placement{buffer, offset, strides});
}

}  // namespace

Status add_transposed(Side& side, TensorId tensor, Rank rank, const Box& box, std::uint32_t owner) {
  if (box.dimensions != 2) return bad(side.describe_tensor(tensor) + " isn't a matrix: give strides");
  const std::array<std::uint64_t, 2> offset{box.begin[0], box.begin[1]}, extent{box.extent(0), box.extent(1)};
  if (box.empty()) return side.add_shard(tensor, rank, offset, extent, owner);
  const BufferId buffer = side.add_buffer(rank, box.elements(), side.tensors()[tensor].name);
  const std::array<std::int64_t, 2> strides{1, static_cast<std::int64_t>(extent[0])};
  return side.add_shard(tensor, rank, offset, extent, owner, Placement{buffer, 0, strides});
}

Status add_stacked(Side& side, Rank rank, std::string buffer, std::span<const Rows> parts, std::uint32_t owner) {
  std::uint64_t elements = 0;
  for (const Rows& part : parts)
    elements += (part.rows.end - part.rows.begin) * row_elements(side.tensors()[part.tensor]);
  const BufferId into = side.add_buffer(rank, elements, std::move(buffer));
  std::uint64_t offset = 0;
  for (const Rows& part : parts) {
    if (part.rows.begin == part.rows.end) continue;
    if (Status ok = add_rows(side, rank, into, offset, part, owner); !ok) return ok;
    offset += (part.rows.end - part.rows.begin) * row_elements(side.tensors()[part.tensor]);
  }
  return {};
}

Status add_grouped_heads(Side& side, Rank rank, std::string buffer, const GroupedHeads& heads, TensorId query,
                         TensorId key, TensorId value, Interval rows, std::uint32_t owner) {
  if (heads.key_value_heads == 0 || heads.query_heads % heads.key_value_heads != 0)
    return bad(fmt::format("{}: {} query heads don't share {} key-value heads evenly", side.describe_tensor(query),
                           heads.query_heads, heads.key_value_heads));
  if (rows.begin >= rows.end || rows.end > heads.rows())
    return bad(fmt::format("{} on rank {}: rows [{},{}) of the fused tensor, which has {}", side.describe_tensor(query),
                           rank, rows.begin, rows.end, heads.rows()));
  const std::uint64_t query_rows = heads.query_heads / heads.key_value_heads * heads.head_rows;
  std::vector<Rows> parts;
  // `first`: where those rows of the group are in the fused tensor; `at`: where they are in their own.
  const auto add = [&](TensorId tensor, std::uint64_t first, std::uint64_t at, std::uint64_t count) {
    const std::uint64_t begin = std::max(first, rows.begin), end = std::min(first + count, rows.end);
    if (begin < end) parts.push_back({tensor, {at + begin - first, at + end - first}});
  };
  for (std::uint64_t group = 0; group < heads.key_value_heads; ++group) {
    const std::uint64_t first = group * (query_rows + 2 * heads.head_rows);
    add(query, first, group * query_rows, query_rows);
    add(key, first + query_rows, group * heads.head_rows, heads.head_rows);
    add(value, first + query_rows + heads.head_rows, group * heads.head_rows, heads.head_rows);
  }
  return add_stacked(side, rank, std::move(buffer), parts, owner);
}

Status add_packed_experts(Side& side, Rank rank, std::string buffer, std::span<const TensorId> gate,
                          std::span<const TensorId> up, Interval experts, Interval rows, std::uint32_t owner) {
  if (experts.begin >= experts.end || experts.end > gate.size() || gate.size() != up.size())
    return bad(
        fmt::format("local tensor '{}' on rank {} is for experts [{},{}), and there are {} (up: {}): an empty "
                    "or out-of-range slice, as of a global rank taken for one among the expert-parallel ranks",
                    buffer, rank, experts.begin, experts.end, gate.size(), up.size()));
  std::vector<Rows> parts;
  for (std::uint64_t expert = experts.begin; expert < experts.end; ++expert) {
    parts.push_back({gate[expert], rows});
    parts.push_back({up[expert], rows});
  }
  return add_stacked(side, rank, std::move(buffer), parts, owner);
}

}  // namespace weighlock::reshard
