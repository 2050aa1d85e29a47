// An N-dimensional box of elements, [begin, end) in each dimension: a part of a tensor in global coordinates.
//
// Values; any thread. A box without dimensions is a scalar and holds one element. A box is empty when some dimension
// is. Coordinates are elements, outermost dimension first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weighlock::reshard {

// Convolutions over video have five dimensions; what has more is refused by name.
inline constexpr std::size_t kDimensionsMax = 8;

struct Box {
  std::array<std::uint64_t, kDimensionsMax> begin{};
  std::array<std::uint64_t, kDimensionsMax> end{};
  std::uint32_t dimensions = 0;

  std::uint64_t extent(std::size_t dimension) const { return end[dimension] - begin[dimension]; }
  bool empty() const;
  std::uint64_t elements() const;  // a Side has seen that the product fits in 64 bits

  friend bool operator==(const Box& a, const Box& b) { return compare(a, b) == 0; }
  friend bool operator<(const Box& a, const Box& b) { return compare(a, b) < 0; }

 private:
  // By dimensions, then begin and end of each dimension, outermost first.
  static int compare(const Box& a, const Box& b);
};

// [0, shape) of a whole tensor. At most kDimensionsMax dimensions.
Box whole(std::span<const std::uint64_t> shape);
// [offset, offset + extent). Both have the same number of dimensions, at most kDimensionsMax; no sum passes 64 bits.
Box box_at(std::span<const std::uint64_t> offset, std::span<const std::uint64_t> extent);

// What both have; empty where they don't touch. Both have as many dimensions.
Box intersection(const Box& a, const Box& b);
bool overlap(const Box& a, const Box& b);  // at least one element is in both
bool inside(const Box& part, const Box& of);

// Appends what `from` has and `taken` hasn't, as at most two boxes a dimension that don't touch each other.
void subtract(const Box& from, const Box& taken, std::vector<Box>& rest);
// The first part of `of` that none of `parts` has, in the order of coordinates.
std::optional<Box> first_hole(const Box& of, std::span<const Box> parts);

// "[8,10)" or "[0,4)x[8,16)"; "scalar" for no dimensions.
std::string text(const Box& box);

// Which of two ways of cutting `size` elements into `parts`.
enum class Chunks {
  ceiling,  // torch.chunk and FSDP: parts of ceil(size/parts), the last ones short or empty: 10 over 3 = 4, 4, 2
  even,     // the first size % parts have one more: 10 over 3 = 4, 3, 3
};
struct Interval {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
// Part `index` of `parts`, both as of a layout: index < parts.
Interval chunk(std::uint64_t size, std::uint64_t parts, std::uint64_t index, Chunks rule);

}  // namespace weighlock::reshard
