// Boxes of one tensor: finding those that meet a given one, and cutting those that overlap until they don't.
//
// Pure; any thread. Internal to the planner; the proof has a search of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weighlock/reshard/box.hpp"
#include "weighlock/reshard/layout.hpp"

namespace weighlock::reshard {

// A part of a tensor and all shards that hold all of it, in the order of their ranks.
struct Piece {
  Box box;
  std::vector<ShardId> shards;
};

// The shards' logical boxes, each different one once, in the order of boxes; empty ones are left out.
std::vector<Piece> distinct_pieces(const Side& side, std::span<const ShardId> shards);
// Cuts pieces that overlap in part, until each element is in one piece, with all the shards that hold it.
std::vector<Piece> disjoint_pieces(std::vector<Piece> pieces);

// Sorts boxes by where they begin in the dimension that tells most of them apart, so that only a few are looked at for
// each question: with n parts of a tensor on one side and m on the other about n + m steps, not n times m.
class BoxIndex {
 public:
  explicit BoxIndex(std::span<const Piece> pieces);
  // Numbers of the pieces that meet `box`, in the order of pieces.
  const std::vector<std::uint32_t>& meeting(const Box& box);
  bool any_two_meet() const;

 private:
  std::span<const Piece> pieces_;
  std::size_t dimension_ = 0;
  std::vector<std::uint32_t> order_;     // by begin in dimension_
  std::vector<std::uint64_t> farthest_;  // the largest end of this one and all before it in `order_`
  std::vector<std::uint32_t> found_;
};

}  // namespace weighlock::reshard
