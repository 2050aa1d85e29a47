#include "weighlock/protocol/awex_blame.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weighlock::protocol {
namespace {

int place_of(const MemberEnd& end) {
  if (end.silent) return 1;
  return end.blames_a_peer ? 2 : 0;
}

}  // namespace

std::string blame_text(std::vector<MemberEnd> ends) {
  std::stable_sort(ends.begin(), ends.end(),
                   [](const MemberEnd& a, const MemberEnd& b) { return place_of(a) < place_of(b); });
  std::string text;
  for (const MemberEnd& end : ends) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", end.who, end.words);
  return text;
}

}  // namespace weighlock::protocol
