#include "weighlock/reshard/storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "weighlock/tensor/quote.hpp"

namespace weighlock::reshard {
namespace {

constexpr int kStepsMax = 1000;

struct Extent {
  BufferId buffer = kNone;
  std::int64_t first = 0;
  std::int64_t last = 0;
  ShardId shard = 0;
};

// One summand of the equation: `stride` times a whole number from low to high.
struct Term {
  std::int64_t stride = 0;
  std::int64_t low = 0;
  std::int64_t high = 0;
};

std::int64_t stride_of(const Side& side, ShardId shard, std::size_t dimension) {
  std::array<std::uint64_t, kDimensionsMax> coordinates{};
  const std::size_t dimensions = side.tensors()[side.shards()[shard].tensor].shape.size();
  const std::uint64_t at = side.position(shard, std::span(coordinates).first(dimensions));
  coordinates[dimension] = 1;
  return static_cast<std::int64_t>(side.position(shard, std::span(coordinates).first(dimensions)) - at);
}

// Coordinates of the first and the last element that counts, relative to the shard's box.
Extent extent_of(const Side& side, ShardId shard) {
  const Box stored = side.box(shard), logical = side.logical_box(shard);
  std::array<std::uint64_t, kDimensionsMax> first{}, last{};
  for (std::size_t d = 0; d < stored.dimensions; ++d) {
    first[d] = logical.begin[d] - stored.begin[d];
    last[d] = logical.end[d] - 1 - stored.begin[d];
  }
  return {side.buffer(shard),
          static_cast<std::int64_t>(side.position(shard, std::span(first).first(stored.dimensions))),
          static_cast<std::int64_t>(side.position(shard, std::span(last).first(stored.dimensions))), shard};
}

// No sum here passes 64 bits: a term stays below kBufferElementsMax. Whether the terms from `at` on can sum up to
// `wanted`; nothing when `steps` run out. Terms by stride, largest first.
std::optional<bool> can_sum(const std::vector<Term>& terms, std::size_t at, std::int64_t wanted, int& steps) {
  if (--steps < 0) return std::nullopt;
  if (at == terms.size()) return wanted == 0;
  std::int64_t low_rest = 0, high_rest = 0;
  for (std::size_t i = at + 1; i < terms.size(); ++i) {
    low_rest += terms[i].stride * terms[i].low;
    high_rest += terms[i].stride * terms[i].high;
  }
  const Term& term = terms[at];
  // stride * n must lie in [wanted - high_rest, wanted - low_rest].
  const std::int64_t from = wanted - high_rest, to = wanted - low_rest;
  const auto floor_div = [](std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); };
  const std::int64_t low = std::max<std::int64_t>(-floor_div(-from, term.stride), term.low);
  const std::int64_t high = std::min<std::int64_t>(floor_div(to, term.stride), term.high);
  for (std::int64_t n = low; n <= high; ++n) {
    const std::optional<bool> can = can_sum(terms, at + 1, wanted - n * term.stride, steps);
    if (!can || *can) return can;
  }
  return false;
}

std::optional<bool> share_an_element(const Side& side, const Extent& a, const Extent& b) {
  std::vector<Term> terms;
  const auto add = [&](ShardId shard, bool minus) {
    const Box logical = side.logical_box(shard);
    for (std::size_t d = 0; d < logical.dimensions; ++d) {
      const auto steps = static_cast<std::int64_t>(logical.extent(d)) - 1;
      if (steps > 0) terms.push_back({stride_of(side, shard, d), minus ? -steps : 0, minus ? 0 : steps});
    }
  };
  add(a.shard, false);
  add(b.shard, true);
  std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) { return x.stride > y.stride; });
  std::vector<Term> merged;  // equal strides are one term: candidates would multiply else
  for (const Term& term : terms) {
    if (merged.empty() || merged.back().stride != term.stride) {
      merged.push_back(term);
    } else {
      merged.back().low += term.low;
      merged.back().high += term.high;
    }
  }
  int steps = kStepsMax;
  return can_sum(merged, 0, b.first - a.first, steps);
}

}  // namespace

// The difference of two elements' positions, of which one coordinate is the first that isn't 0, and then greater.
std::optional<bool> meets_itself(std::span<const std::int64_t> strides, std::span<const std::uint64_t> extent) {
  std::vector<Term> terms;
  for (std::size_t d = 0; d < extent.size(); ++d) {
    const auto steps = static_cast<std::int64_t>(extent[d]) - 1;
    if (steps > 0) terms.push_back({strides[d], -steps, steps});
  }
  std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) { return x.stride > y.stride; });
  int steps = kStepsMax;
  for (std::size_t first = 0; first < terms.size(); ++first) {
    std::vector<Term> rest(terms.begin() + static_cast<std::ptrdiff_t>(first), terms.end());
    rest.front().low = 1;
    const std::optional<bool> meets = can_sum(rest, 0, 0, steps);
    if (!meets || *meets) return meets;
  }
  return false;
}

Status check_disjoint_storage(const Side& side) {
  std::vector<Extent> extents;
  for (ShardId shard = 0; shard < side.shards().size(); ++shard) {
    if (side.buffer(shard) != kNone && !side.logical_box(shard).empty()) extents.push_back(extent_of(side, shard));
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    if (a.buffer != b.buffer) return a.buffer < b.buffer;
    return a.first != b.first ? a.first < b.first : a.shard < b.shard;
  });
  for (std::size_t i = 0; i < extents.size(); ++i) {
    for (std::size_t j = i + 1; j < extents.size(); ++j) {
      if (extents[j].buffer != extents[i].buffer || extents[j].first > extents[i].last) break;
      const std::optional<bool> shared = share_an_element(side, extents[i], extents[j]);
      if (shared == false) continue;
      const std::string who =
          fmt::format("{} and {} {} in local tensor {}", side.describe(extents[i].shard),
                      side.describe_tensor(side.shards()[extents[j].shard].tensor),
                      text(side.logical_box(extents[j].shard)), quote_name(side.buffers()[extents[i].buffer].name));
      if (shared) return Error{ErrorCode::invalid_argument, who + " share elements: each must have a place of its own"};
      return Error{ErrorCode::too_large, who + " are too entangled to tell them apart: give them local tensors each"};
    }
  }
  return {};
}

}  // namespace weighlock::reshard
