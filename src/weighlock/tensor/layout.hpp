// What tensors a version holds, wherever they lie; and how two versions differ.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "weighlock/tensor/dtype.hpp"

namespace weighlock {

struct TensorLayout {
  Dtype dtype = Dtype::u8;
  std::vector<std::uint64_t> shape;
  std::uint64_t bytes = 0;
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// Tensors by name, in the order of names.
using Layout = std::map<std::string, TensorLayout, std::less<>>;

std::uint64_t total_bytes(const Layout& layout);

// Whether `lm_head.weight` is the embedding: from config.json's `tie_word_embeddings`.
enum class TiedHead { unknown, no, yes };

// For people: at most kNamedMax differences by name, and how many there are.
struct LayoutDifferences {
  static constexpr std::size_t kNamedMax = 8;
  std::vector<std::string> named;
  std::size_t count = 0;
  bool empty() const { return count == 0; }
  std::string text() const;  // "12 differences: ...; ...; and 4 more"
};

// What `actual` has otherwise than `expected`: missing and unexpected tensors, other shapes, other dtypes. A tied
// `lm_head.weight` may be absent on either side: where the model says that it is tied, or doesn't say and an
// `embed_tokens.weight` of the same shape and dtype stands beside it.
LayoutDifferences compare_layouts(const Layout& expected, const Layout& actual, TiedHead tied = TiedHead::unknown);

}  // namespace weighlock
