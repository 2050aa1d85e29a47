#include "weighlock/awex/parts.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
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

using Begins = std::vector<std::uint64_t>;  // in one dimension, by part

// The reported offsets say the order of the columns, the sizes where they begin.
std::optional<Begins> by_columns(std::span<const Held> held, std::uint64_t size, std::size_t d) {
  std::map<std::uint64_t, std::uint64_t> columns;  // reported offset -> size, then begin
  for (const Held& one : held) {
    if (elements(one.box.shape) == 0) continue;
    const auto [column, added] = columns.emplace(one.box.offset[d], one.box.shape[d]);
    if (!added && column->second != one.box.shape[d]) return std::nullopt;
  }
  std::uint64_t sum = 0;
  for (auto& [reported, extent] : columns) sum += std::exchange(extent, sum);
  if (sum != size) return std::nullopt;
  Begins begins(held.size());
  for (std::size_t i = 0; i < held.size(); ++i)
    if (elements(held[i].box.shape) != 0) begins[i] = columns.at(held[i].box.offset[d]);
  return begins;
}

// Pieces of one line in the order of ranks, as `copies` whole rows one after the other, or with the copies of a piece
// side by side.
bool place_line(std::span<const Held> held, const std::vector<std::size_t>& line, std::size_t copies, bool side_by_side,
                std::uint64_t size, std::size_t d, Begins& begins) {
  const std::size_t pieces = line.size() / copies;
  for (std::size_t copy = 0; copy < copies; ++copy) {
    std::uint64_t sum = 0;
    for (std::size_t piece = 0; piece < pieces; ++piece) {
      const std::size_t i = line[side_by_side ? piece * copies + copy : copy * pieces + piece];
      begins[i] = sum;
      sum += held[i].box.shape[d];
    }
    if (sum != size) return false;
  }
  return true;
}

// By ranks, among parts that lie alike in all other dimensions: for tensors with fewer rows than ranks, whose reported
// offsets are all 0.
std::optional<Begins> by_ranks(std::span<const Held> held, std::uint64_t size, std::size_t d, const Table& table) {
  std::map<Extents, std::vector<std::size_t>> lines;
  for (std::size_t i = 0; i < held.size(); ++i) {
    Extents others = held[i].box.offset;
    others[d] = 0;
    lines[others].push_back(i);
  }
  Begins begins(held.size());
  for (const auto& [others, line] : lines) {
    const std::int64_t told = table.shard_frames[held[line.front()].frame]->num_shards;
    const auto pieces = static_cast<std::size_t>(std::max<std::int64_t>(1, told));
    const std::size_t copies = line.size() % pieces == 0 ? line.size() / pieces : 1;
    if (!place_line(held, line, copies, false, size, d, begins) &&
        !place_line(held, line, copies, true, size, d, begins) && !place_line(held, line, 1, false, size, d, begins))
      return std::nullopt;
  }
  return begins;
}

// Dimension by dimension; nothing if one can't be put right.
std::optional<Offsets> true_offsets(std::span<const Held> held, const Extents& shape, const Table& table) {
  Offsets offsets(held.size(), Extents(shape.size(), 0));
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool is_cut =
        std::any_of(held.begin(), held.end(), [&](const Held& one) { return one.box.shape[d] != shape[d]; });
    if (!is_cut) continue;
    std::optional<Begins> begins = by_columns(held, shape[d], d);
    if (!begins) begins = by_ranks(held, shape[d], d, table);
    if (!begins) return std::nullopt;
    for (std::size_t i = 0; i < held.size(); ++i) offsets[i][d] = (*begins)[i];
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
  const std::optional<Offsets> offsets = true_offsets(held, shape, table);
  if (offsets && problem_of(held, *offsets, shape).empty()) return {"", move(held, *offsets)};
  return {std::move(problem), 0};
}

}  // namespace weighlock::awex
