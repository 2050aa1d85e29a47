#include "weighlock/tensor/layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "weighlock/tensor/quote.hpp"

namespace weighlock {
namespace {

constexpr std::string_view kHead = "lm_head.weight";

bool may_be_absent(const std::string& name, const Layout& where_present, TiedHead tied) {
  if (name != kHead || tied == TiedHead::no) return false;
  if (tied == TiedHead::yes) return true;
  const TensorLayout& head = where_present.at(name);
  for (const auto& [other, layout] : where_present) {
    if (other.ends_with("embed_tokens.weight") && layout == head) return true;
  }
  return false;
}

std::string describe(const TensorLayout& tensor) {
  return fmt::format("{} {}", name(tensor.dtype), shape_text(tensor.shape));
}

}  // namespace

std::uint64_t total_bytes(const Layout& layout) {
  std::uint64_t sum = 0;
  for (const auto& [name, tensor] : layout) sum += tensor.bytes;
  return sum;
}

std::string LayoutDifferences::text() const {
  std::string text = fmt::format("{} difference{}: {}", count, count == 1 ? "" : "s", fmt::join(named, "; "));
  if (count > named.size()) text += fmt::format("; and {} more", count - named.size());
  return text;
}

LayoutDifferences compare_layouts(const Layout& expected, const Layout& actual, TiedHead tied) {
  LayoutDifferences differences;
  const auto add = [&](std::string text) {
    ++differences.count;
    if (differences.named.size() < LayoutDifferences::kNamedMax) differences.named.push_back(std::move(text));
  };
  for (const auto& [name, tensor] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end()) {
      if (!may_be_absent(name, expected, tied)) add(fmt::format("{} is missing", quote_name(name)));
    } else if (found->second.shape != tensor.shape || found->second.dtype != tensor.dtype) {
      add(fmt::format("{} is {}, expected {}", quote_name(name), describe(found->second), describe(tensor)));
    }
  }
  for (const auto& [name, tensor] : actual) {
    if (expected.contains(name) || may_be_absent(name, actual, tied)) continue;
    add(fmt::format("{} ({}) is unexpected", quote_name(name), describe(tensor)));
  }
  return differences;
}

}  // namespace weighlock
