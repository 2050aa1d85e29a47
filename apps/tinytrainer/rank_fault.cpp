#include "tinytrainer/rank_fault.hpp"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace weighlock::tiny {
namespace {

constexpr std::pair<std::string_view, RankFaultKind> kWords[] = {
    {"hang", RankFaultKind::hang},
    {"reset", RankFaultKind::reset},
    {"garbage", RankFaultKind::garbage},
    {"refuse", RankFaultKind::refuse},
    {"reset_after", RankFaultKind::reset_after},
    {"hang_after", RankFaultKind::hang_after},
    {"write_error", RankFaultKind::write_error},
    {"slow", RankFaultKind::slow},
    {"silent", RankFaultKind::silent},
    {"partial", RankFaultKind::partial},
    {"truncated", RankFaultKind::truncated},
    {"wrong_shape", RankFaultKind::wrong_shape},
    {"stray", RankFaultKind::stray},
    {"no_index", RankFaultKind::no_index},
    {"wrong_prefix", RankFaultKind::wrong_prefix},
    {"wrong_rank", RankFaultKind::wrong_rank},
    {"modules_to_save", RankFaultKind::modules_to_save},
    {"dora", RankFaultKind::dora},
};
constexpr std::string_view kStatusPrefix = "status_";

}  // namespace

Result<RankFault> parse_rank_fault(const json::value& body) {
  const std::string word(find_string(body, "fault").value_or(""));
  RankFault fault;
  fault.word = word;
  bool known = false;
  if (word.starts_with(kStatusPrefix)) {
    const char* end = word.data() + word.size();
    const auto parsed = std::from_chars(word.data() + kStatusPrefix.size(), end, fault.status);
    known = parsed.ec == std::errc{} && parsed.ptr == end && fault.status >= 200 && fault.status < 600;
  }
  std::string names = "status_NNN";
  for (const auto& [name, kind] : kWords) {
    names += fmt::format(", {}", name);
    if (name != word) continue;
    fault.kind = kind;
    known = true;
  }
  if (!known) return Error{ErrorCode::invalid_argument, fmt::format("fault '{}' is not one of {}", word, names)};
  fault.times = static_cast<int>(find_int(body, "times").value_or(1));
  fault.delay = Milliseconds{find_int(body, "delay_ms").value_or(0)};
  fault.message = find_string(body, "message").value_or(fault.message);
  if (fault.times < -1 || fault.delay.count() < 0) {
    return Error{ErrorCode::invalid_argument, "'times' is -1 or more, 'delay_ms' 0 or more"};
  }
  return fault;
}

}  // namespace weighlock::tiny
