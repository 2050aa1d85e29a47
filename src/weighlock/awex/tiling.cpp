#include "weighlock/awex/tiling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace weighlock::awex {
namespace {

// No layout of trainers or engines needs more: each dimension is cut once or twice.
constexpr std::size_t kIrregularMax = 2048;
constexpr int kDepthMax = 32;

std::string hole(std::uint64_t begin, std::uint64_t end, std::size_t dimension, const Box& where) {
  return fmt::format("hole [{},{}) in dimension {} of {}", begin, end, dimension, text(where));
}

std::string irregular_problem(const Box& whole, std::span<Box> parts) {
  if (parts.size() > kIrregularMax) return fmt::format("{} parts that no straight cut divides", parts.size());
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    sum += elements(parts[i].shape);
    for (std::size_t j = 0; j < i; ++j)
      if (overlap_elements(parts[i], parts[j]) > 0)
        return fmt::format("{} and {} overlap", text(parts[j]), text(parts[i]));
  }
  const std::uint64_t wanted = elements(whole.shape);
  return sum == wanted ? "" : fmt::format("hole of {} elements in {}", wanted - sum, text(whole));
}

// Cuts along one dimension where no part is cut, and looks at each piece alone. All parts lie inside `whole`.
std::string problem_in(const Box& whole, std::span<Box> parts, int depth) {
  if (parts.size() == 1 && parts[0] == whole) return "";
  for (std::size_t d = 0; d < whole.shape.size() && depth < kDepthMax; ++d) {
    std::sort(parts.begin(), parts.end(), [d](const Box& a, const Box& b) { return a.offset[d] < b.offset[d]; });
    std::uint64_t reached = whole.offset[d];
    const std::uint64_t end = whole.offset[d] + whole.shape[d];
    std::size_t begin = 0;
    while (begin < parts.size()) {
      if (parts[begin].offset[d] > reached) return hole(reached, parts[begin].offset[d], d, whole);
      std::uint64_t piece_end = reached;
      std::size_t next = begin;
      for (; next < parts.size() && (next == begin || parts[next].offset[d] < piece_end); ++next)
        piece_end = std::max(piece_end, parts[next].offset[d] + parts[next].shape[d]);
      if (begin == 0 && next == parts.size() && piece_end == end) break;  // this dimension cuts nothing
      Box piece = whole;
      piece.offset[d] = reached;
      piece.shape[d] = piece_end - reached;
      std::string problem = problem_in(piece, parts.subspan(begin, next - begin), depth + 1);
      if (!problem.empty()) return problem;
      reached = piece_end;
      begin = next;
    }
    if (begin == 0) continue;
    return reached == end ? "" : hole(reached, end, d, whole);
  }
  return irregular_problem(whole, parts);
}

}  // namespace

std::string tiling_problem(const Box& whole, std::vector<Box> parts) {
  std::erase_if(parts, [](const Box& part) { return elements(part.shape) == 0; });
  for (const Box& part : parts)
    if (!inside(part, whole)) return fmt::format("{} is outside of {}", text(part), text(whole));
  if (elements(whole.shape) == 0) return "";
  if (parts.empty()) return fmt::format("nobody holds any of {}", text(whole));
  return problem_in(whole, parts, 0);
}

}  // namespace weighlock::awex
