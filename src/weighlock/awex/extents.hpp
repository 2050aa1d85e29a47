// Sizes or offsets of a tensor's dimensions, outermost first, without an allocation.
//
// Values; any thread. At most kDimensionsMax of them: convolutions over video have five.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "weighlock/core/check.hpp"

namespace weighlock::awex {

class Extents {
 public:
  static constexpr std::size_t kDimensionsMax = 8;

  Extents() = default;
  // `count` times `value`.
  Extents(std::size_t count, std::uint64_t value) {
    for (std::size_t i = 0; i < count; ++i) push_back(value);
  }

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kDimensionsMax; }
  std::uint64_t& operator[](std::size_t i) { return values_[i]; }
  std::uint64_t operator[](std::size_t i) const { return values_[i]; }
  const std::uint64_t* begin() const { return values_.data(); }
  const std::uint64_t* end() const { return values_.data() + size_; }
  void push_back(std::uint64_t value) {
    WEIGHLOCK_CHECK(!full(), "more dimensions than an Extents holds");
    values_[size_++] = value;
  }

  friend bool operator==(const Extents& a, const Extents& b) {
    return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
  }
  friend bool operator<(const Extents& a, const Extents& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::uint64_t, kDimensionsMax> values_{};
  std::uint32_t size_ = 0;
};

// Elements of that shape; 1 for no dimensions. The caller has seen that the product fits (report.hpp checks).
std::uint64_t elements(const Extents& shape);
// "[2,3]"
std::string text(const Extents& extents);

// The part [offset, offset + shape) of a tensor.
struct Box {
  Extents offset;
  Extents shape;
  friend bool operator==(const Box&, const Box&) = default;
  friend bool operator<(const Box& a, const Box& b) {
    return a.offset == b.offset ? a.shape < b.shape : a.offset < b.offset;
  }
};

// "[0,0]+[2,3]"
std::string text(const Box& box);
bool inside(const Box& part, const Box& whole);
// Elements that both have; 0 when they don't touch. Both have as many dimensions.
std::uint64_t overlap_elements(const Box& a, const Box& b);
// What both have; an empty shape in some dimension when they don't touch.
Box overlap(const Box& a, const Box& b);

}  // namespace weighlock::awex
