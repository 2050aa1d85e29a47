#include "weighlock/reshard/box.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/check.hpp"

namespace weighlock::reshard {

bool Box::empty() const {
  for (std::size_t i = 0; i < dimensions; ++i) {
    if (end[i] <= begin[i]) return true;
  }
  return false;
}

std::uint64_t Box::elements() const {
  std::uint64_t product = 1;
  for (std::size_t i = 0; i < dimensions; ++i) product *= end[i] > begin[i] ? extent(i) : 0;
  return product;
}

int Box::compare(const Box& a, const Box& b) {
  if (a.dimensions != b.dimensions) return a.dimensions < b.dimensions ? -1 : 1;
  for (std::size_t i = 0; i < a.dimensions; ++i) {
    if (a.begin[i] != b.begin[i]) return a.begin[i] < b.begin[i] ? -1 : 1;
    if (a.end[i] != b.end[i]) return a.end[i] < b.end[i] ? -1 : 1;
  }
  return 0;
}

Box whole(std::span<const std::uint64_t> shape) {
  WEIGHLOCK_CHECK(shape.size() <= kDimensionsMax, "more dimensions than a Box holds");
  Box box;
  box.dimensions = static_cast<std::uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), box.end.begin());
  return box;
}

Box box_at(std::span<const std::uint64_t> offset, std::span<const std::uint64_t> extent) {
  WEIGHLOCK_CHECK(offset.size() == extent.size() && extent.size() <= kDimensionsMax, "dimensions of a Box");
  Box box;
  box.dimensions = static_cast<std::uint32_t>(extent.size());
  for (std::size_t i = 0; i < extent.size(); ++i) {
    box.begin[i] = offset[i];
    box.end[i] = offset[i] + extent[i];
  }
  return box;
}

Box intersection(const Box& a, const Box& b) {
  WEIGHLOCK_CHECK(a.dimensions == b.dimensions, "boxes of different tensors");
  Box out;
  out.dimensions = a.dimensions;
  for (std::size_t i = 0; i < a.dimensions; ++i) {
    out.begin[i] = std::max(a.begin[i], b.begin[i]);
    out.end[i] = std::max(out.begin[i], std::min(a.end[i], b.end[i]));
  }
  return out;
}

bool overlap(const Box& a, const Box& b) {
  for (std::size_t i = 0; i < a.dimensions; ++i) {
    if (std::max(a.begin[i], b.begin[i]) >= std::min(a.end[i], b.end[i])) return false;
  }
  return true;
}

bool inside(const Box& part, const Box& of) {
  for (std::size_t i = 0; i < part.dimensions; ++i) {
    if (part.begin[i] < of.begin[i] || part.end[i] > of.end[i]) return false;
  }
  return true;
}

void subtract(const Box& from, const Box& taken, std::vector<Box>& rest) {
  if (from.empty()) return;
  if (!overlap(from, taken)) {
    rest.push_back(from);
    return;
  }
  // Slabs before and after `taken`, dimension by dimension; what stays between them goes on to the next one.
  Box middle = from;
  for (std::size_t i = 0; i < from.dimensions; ++i) {
    Box slab = middle;
    if (middle.begin[i] < taken.begin[i]) {
      slab.end[i] = taken.begin[i];
      rest.push_back(slab);
      middle.begin[i] = taken.begin[i];
    }
    if (taken.end[i] < middle.end[i]) {
      slab = middle;
      slab.begin[i] = taken.end[i];
      rest.push_back(slab);
      middle.end[i] = taken.end[i];
    }
  }
}

std::optional<Box> first_hole(const Box& of, std::span<const Box> parts) {
  std::vector<Box> left, next;
  if (!of.empty()) left.push_back(of);
  for (const Box& part : parts) {
    next.clear();
    for (const Box& piece : left) subtract(piece, part, next);
    left.swap(next);
    if (left.empty()) break;
  }
  if (left.empty()) return std::nullopt;
  return *std::min_element(left.begin(), left.end());
}

std::string text(const Box& box) {
  if (box.dimensions == 0) return "scalar";
  std::string out;
  for (std::size_t i = 0; i < box.dimensions; ++i)
    out += fmt::format("{}[{},{})", i == 0 ? "" : "x", box.begin[i], box.end[i]);
  return out;
}

Interval chunk(std::uint64_t size, std::uint64_t parts, std::uint64_t index, Chunks rule) {
  WEIGHLOCK_CHECK(index < parts, "a part beyond the parts");
  if (rule == Chunks::ceiling) {
    const std::uint64_t each = size / parts + (size % parts != 0 ? 1 : 0);
    if (each == 0) return {0, 0};
    const std::uint64_t begin = index > size / each ? size : std::min(index * each, size);
    return {begin, size - begin < each ? size : begin + each};
  }
  const std::uint64_t each = size / parts, longer = size % parts;
  const std::uint64_t begin = index * each + std::min(index, longer);
  return {begin, begin + each + (index < longer ? 1 : 0)};
}

}  // namespace weighlock::reshard
