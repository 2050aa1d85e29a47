#include "weighlock/awex/extents.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weighlock::awex {

std::uint64_t elements(const Extents& shape) {
  std::uint64_t product = 1;
  for (const std::uint64_t extent : shape) product *= extent;
  return product;
}

std::string text(const Extents& extents) {
  return fmt::format("[{}]", fmt::join(extents.begin(), extents.end(), ","));
}

std::string text(const Box& box) {
  return text(box.offset) + "+" + text(box.shape);
}

bool inside(const Box& part, const Box& whole) {
  for (std::size_t i = 0; i < whole.shape.size(); ++i) {
    if (part.offset[i] < whole.offset[i]) return false;
    if (part.offset[i] + part.shape[i] > whole.offset[i] + whole.shape[i]) return false;
  }
  return true;
}

std::uint64_t overlap_elements(const Box& a, const Box& b) {
  std::uint64_t product = 1;
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    const std::uint64_t begin = std::max(a.offset[i], b.offset[i]);
    const std::uint64_t end = std::min(a.offset[i] + a.shape[i], b.offset[i] + b.shape[i]);
    if (begin >= end) return 0;
    product *= end - begin;
  }
  return product;
}

Box overlap(const Box& a, const Box& b) {
  Box both;
  for (std::size_t i = 0; i < a.shape.size(); ++i) {
    const std::uint64_t begin = std::max(a.offset[i], b.offset[i]);
    const std::uint64_t end = std::min(a.offset[i] + a.shape[i], b.offset[i] + b.shape[i]);
    both.offset.push_back(begin);
    both.shape.push_back(begin < end ? end - begin : 0);
  }
  return both;
}

}  // namespace weighlock::awex
