#include "weighlock/awex/parts.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "weighlock/awex/tiling.hpp"

namespace weighlock::awex {
namespace {

using Offsets = std::vector<Extents>;

// "" when the boxes, with copies counted once, fill the tensor.
std::string problem_of(std::span<const Held> held, const Offsets& offsets, const Extents& shape) {
  std::vector<Box> boxes;
  boxes.reserve(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) boxes.push_back({offsets[i], held[i].box.shape});
  std::sort(boxes.begin(), boxes.end());
  boxes.erase(std::unique(boxes.begin(), boxes.end()), boxes.end());
  return tiling_problem({Extents(shape.size(), 0), shape}, std::move(boxes));
}

// The parts as a grid: in each dimension the reported offsets say the order of the columns, the sizes where they begin.
std::optional<Offsets> by_columns(std::span<const Held> held, const Extents& shape) {
  Offsets offsets(held.size(), Extents(shape.size(), 0));
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::map<std::uint64_t, std::uint64_t> columns;  // reported offset -> size
    for (const Held& one : held) {
      if (elements(one.box.shape) == 0) continue;
      const auto [column, added] = columns.emplace(one.box.offset[d], one.box.shape[d]);
      if (!added && column->second != one.box.shape[d]) return std::nullopt;
    }
    std::uint64_t sum = 0;
    for (auto& [reported, size] : columns) {
      const std::uint64_t begin = sum;
      sum += size;
      size = begin;
    }
    if (sum != shape[d]) return std::nullopt;
    for (std::size_t i = 0; i < held.size(); ++i)
      if (elements(held[i].box.shape) != 0) offsets[i][d] = columns.at(held[i].box.offset[d]);
  }
  return offsets;
}

// The one dimension in which parts are smaller than the tensor.
std::optional<std::size_t> cut_dimension(std::span<const Held> held, const Extents& shape) {
  std::optional<std::size_t> cut;
  for (const Held& one : held) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      if (one.box.shape[d] == shape[d]) continue;
      if (cut && *cut != d) return std::nullopt;
      cut = d;
    }
  }
  return cut;
}

// Pieces in the order of ranks, in groups of num_shards: for tensors with fewer rows than ranks, whose reported offsets
// are all 0.
std::optional<Offsets> by_ranks(std::span<const Held> held, const Extents& shape, const Table& table) {
  const std::optional<std::size_t> d = cut_dimension(held, shape);
  const std::int64_t group = table.shard_frames[held.front().frame]->num_shards;
  if (!d || group < 1 || held.size() % static_cast<std::size_t>(group) != 0) return std::nullopt;
  Offsets offsets(held.size(), Extents(shape.size(), 0));
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (table.shard_frames[held[i].frame]->num_shards != group) return std::nullopt;
    if (i % static_cast<std::size_t>(group) == 0) sum = 0;
    offsets[i][*d] = sum;
    sum += held[i].box.shape[*d];
    const bool last = (i + 1) % static_cast<std::size_t>(group) == 0;
    if (last && sum != shape[*d]) return std::nullopt;
  }
  return offsets;
}

std::size_t move(std::span<Held> held, const Offsets& offsets) {
  std::size_t moved = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i].box.offset == offsets[i] || elements(held[i].box.shape) == 0) continue;
    held[i].box.offset = offsets[i];
    ++moved;
  }
  return moved;
}

}  // namespace

Settled settle(std::span<Held> held, const Extents& shape, const Table& table) {
  const Box whole{Extents(shape.size(), 0), shape};
  if (std::all_of(held.begin(), held.end(), [&](const Held& one) { return one.box == whole; })) return {};
  Offsets reported;
  for (const Held& one : held) reported.push_back(one.box.offset);
  std::string problem = problem_of(held, reported, shape);
  if (problem.empty()) return {};
  for (const auto& offsets : {by_columns(held, shape), by_ranks(held, shape, table)})
    if (offsets && problem_of(held, *offsets, shape).empty()) return {"", move(held, *offsets)};
  return {std::move(problem), 0};
}

}  // namespace weighlock::awex
