#include "weighlock/awex/parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "weighlock/awex/tiling.hpp"

namespace weighlock::awex {
namespace {

using Offsets = std::vector<Extents>;

bool is_empty(const Held& one) {
  return elements(one.box.shape) == 0;
}

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

// Running sums of the sizes in the order of places, of which there are at most `most`; `place_of` says a part's, from
// its reported box. Nothing if the places have a gap, or their sizes contradict or don't make the whole.
template <typename PlaceOf>
std::optional<Begins> by_places(std::span<const Held> held, std::uint64_t size, std::size_t d, std::uint64_t most,
                                PlaceOf&& place_of) {
  std::map<std::uint64_t, std::uint64_t> pieces;  // place -> size, then begin
  std::vector<std::uint64_t> places(held.size());
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (is_empty(held[i])) continue;
    const std::optional<std::uint64_t> place = place_of(held[i].box);
    if (!place || *place >= most) return std::nullopt;
    places[i] = *place;
    const auto [piece, added] = pieces.emplace(*place, held[i].box.shape[d]);
    if (!added && piece->second != held[i].box.shape[d]) return std::nullopt;
  }
  if (pieces.empty() || pieces.rbegin()->first + 1 != pieces.size()) return std::nullopt;
  std::uint64_t sum = 0;
  for (auto& [place, extent] : pieces) sum += std::exchange(extent, sum);
  if (sum != size) return std::nullopt;
  Begins begins(held.size());
  for (std::size_t i = 0; i < held.size(); ++i)
    if (!is_empty(held[i])) begins[i] = pieces.at(places[i]);
  return begins;
}

std::optional<std::uint64_t> quotient(std::uint64_t offset, std::uint64_t step) {
  if (offset % step != 0) return std::nullopt;
  return offset / step;
}

// offset = place x own size.
std::optional<Begins> by_own_sizes(std::span<const Held> held, std::uint64_t size, std::size_t d) {
  return by_places(held, size, d, size, [d](const Box& box) { return quotient(box.offset[d], box.shape[d]); });
}

// The number of pieces that all parts tell for this dimension; 0 if they tell none.
std::uint64_t told_pieces(std::span<const Held> held, std::size_t d, const Table& table) {
  const ShardFrame& first = *table.shard_frames[held.front().frame];
  const bool same = std::all_of(held.begin(), held.end(), [&](const Held& one) {
    const ShardFrame& frame = *table.shard_frames[one.frame];
    return frame.sharding_dim == first.sharding_dim && frame.num_shards == first.num_shards;
  });
  const bool told = same && first.sharding_dim == static_cast<std::int64_t>(d) && first.num_shards > 1;
  return told ? static_cast<std::uint64_t>(first.num_shards) : 0;
}

// By ranks, among parts that lie alike in all other dimensions: for tensors with fewer rows than ranks, whose reported
// offsets are all 0. Copies of a line are whole lines one after the other, or the copies of each piece side by side.
std::optional<Begins> by_ranks(std::span<const Held> held, std::uint64_t size, std::size_t d, std::uint64_t told,
                               bool side_by_side) {
  std::map<Extents, std::vector<std::size_t>> lines;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (!is_empty(held[i]) && held[i].box.offset[d] != 0) return std::nullopt;
    Extents others = held[i].box.offset;
    others[d] = 0;
    lines[others].push_back(i);
  }
  Begins begins(held.size());
  for (const auto& [others, line] : lines) {
    const std::uint64_t pieces = told ? told : line.size();
    if (size >= pieces || line.size() % pieces != 0) return std::nullopt;
    const std::uint64_t copies = line.size() / pieces;
    for (std::uint64_t copy = 0; copy < copies; ++copy) {
      std::uint64_t sum = 0;
      for (std::uint64_t piece = 0; piece < pieces; ++piece) {
        const std::size_t i = line[side_by_side ? piece * copies + copy : copy * pieces + piece];
        const std::uint64_t own = held[i].box.shape[d];
        if (own == 0 && sum != size) return std::nullopt;  // only the last are empty
        begins[i] = sum;
        sum += own;
      }
      if (sum != size) return std::nullopt;
    }
  }
  return begins;
}

// offset = place x (size / pieces), rounded down. Where the number of pieces isn't told for this dimension, the
// second's offset tells the step.
std::optional<Begins> by_steps(std::span<const Held> held, std::uint64_t size, std::size_t d, const Table& table,
                               bool side_by_side) {
  const std::uint64_t told = told_pieces(held, d, table);
  std::uint64_t step = told ? size / told : 0;
  if (!told) {
    for (const Held& one : held) {
      const std::uint64_t offset = is_empty(one) ? 0 : one.box.offset[d];
      if (offset != 0 && (step == 0 || offset < step)) step = offset;
    }
  }
  if (step == 0) return by_ranks(held, size, d, told, side_by_side);
  const std::uint64_t pieces = told ? told : size / step;
  if (pieces == 0 || size / pieces != step) return std::nullopt;
  return by_places(held, size, d, pieces, [d, step](const Box& box) { return quotient(box.offset[d], step); });
}

enum class Guess : std::uint8_t { none, own_sizes, steps, steps_side_by_side };

std::string_view meaning(Guess guess) {
  switch (guess) {
    case Guess::none:
      return "as reported";
    case Guess::own_sizes:
      return "if offsets are place x own size";
    case Guess::steps:
      return "if offsets are place x (size / ranks)";
    case Guess::steps_side_by_side:
      return "if copies are on neighbouring ranks";
  }
  return "";
}

// Dimension by dimension; nothing if one isn't as that guess makes it.
std::optional<Offsets> offsets_by(Guess guess, std::span<const Held> held, const Extents& shape, const Table& table) {
  Offsets offsets(held.size(), Extents(shape.size(), 0));
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool is_cut = std::any_of(held.begin(), held.end(),
                                    [&](const Held& one) { return !is_empty(one) && one.box.shape[d] != shape[d]; });
    if (!is_cut) continue;
    const std::optional<Begins> begins = guess == Guess::own_sizes
                                             ? by_own_sizes(held, shape[d], d)
                                             : by_steps(held, shape[d], d, table, guess == Guess::steps_side_by_side);
    if (!begins) return std::nullopt;
    for (std::size_t i = 0; i < held.size(); ++i) offsets[i][d] = (*begins)[i];
  }
  return offsets;
}

std::size_t move(std::span<Held> held, const Offsets& offsets) {
  std::size_t moved = 0;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i].box.offset == offsets[i] || is_empty(held[i])) continue;
    held[i].box.offset = offsets[i];
    ++moved;
  }
  return moved;
}

// The first part that lies elsewhere.
std::optional<std::size_t> difference(std::span<const Held> held, const Offsets& a, const Offsets& b) {
  for (std::size_t i = 0; i < held.size(); ++i)
    if (!is_empty(held[i]) && !(a[i] == b[i])) return i;
  return std::nullopt;
}

// FSDP of what tensor parallelism has cut along the same dimension: torch's outer cut is tensor parallelism's, AReaL's
// adapter computes offsets as if FSDP's were. Its parts fill the tensor in an order that the report doesn't decide.
// Such parts are all along one dimension, as many as are told, and their tp_rank counts up again and again; that of
// sequence parallelism does too, which cuts nothing.
std::string cut_twice(std::span<const Held> held, const Extents& shape, const Table& table) {
  const auto frame = [&](const Held& one) -> const ShardFrame& { return *table.shard_frames[one.frame]; };
  std::int64_t tp_ranks = 1;
  for (const Held& one : held) tp_ranks = std::max(tp_ranks, frame(one).tp_rank + 1);
  const ShardFrame& first = frame(held.front());
  const std::int64_t cutting = tp_ranks / std::max<std::int64_t>(1, first.cp_size);
  if (cutting < 2 || cutting >= first.num_shards || first.num_shards != static_cast<std::int64_t>(held.size()))
    return "";
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < held.size(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return held[a].box.offset < held[b].box.offset; });
  for (std::size_t place = 0; place < order.size(); ++place) {
    const Held& one = held[order[place]];
    if (frame(one).tp_rank != static_cast<std::int64_t>(place) % tp_ranks) return "";
    for (std::size_t d = 0; d < shape.size(); ++d)
      if (static_cast<std::int64_t>(d) != first.sharding_dim && one.box.shape[d] != shape[d]) return "";
  }
  return fmt::format(
      "{} parts along dimension {} whose tp_rank counts to {} and begins again: FSDP and tensor parallelism have both "
      "cut it, and offsets are told as if FSDP had cut first, which torch doesn't",
      held.size(), first.sharding_dim, tp_ranks - 1);
}

}  // namespace

Settled settle(std::span<Held> held, const Extents& shape, const Table& table) {
  const Box whole{Extents(shape.size(), 0), shape};
  if (std::all_of(held.begin(), held.end(), [&](const Held& one) { return one.box == whole; })) return {};
  Offsets reported;
  for (const Held& one : held) reported.push_back(one.box.offset);
  std::string problem = problem_of(held, reported, shape);
  std::vector<std::pair<Guess, Offsets>> readings;
  if (problem.empty()) readings.emplace_back(Guess::none, std::move(reported));
  for (const Guess guess : {Guess::own_sizes, Guess::steps, Guess::steps_side_by_side}) {
    std::optional<Offsets> offsets = offsets_by(guess, held, shape, table);
    if (!offsets || (!readings.empty() && !difference(held, readings.front().second, *offsets))) continue;
    if (problem_of(held, *offsets, shape).empty()) readings.emplace_back(guess, std::move(*offsets));
  }
  if (readings.empty()) return {std::move(problem), false, 0};
  const auto& [guess, offsets] = readings.front();
  if (readings.size() > 1) {
    const auto& [other_guess, others] = readings[1];
    const std::size_t i = difference(held, offsets, others).value_or(0);
    return {fmt::format("rank {} holds {} {}, and {} {}", held[i].rank, text(Box{offsets[i], held[i].box.shape}),
                        meaning(guess), text(Box{others[i], held[i].box.shape}), meaning(other_guess)),
            true, 0};
  }
  if (std::string twice = cut_twice(held, shape, table); !twice.empty()) return {std::move(twice), true, 0};
  return {"", false, move(held, offsets)};
}

}  // namespace weighlock::awex
