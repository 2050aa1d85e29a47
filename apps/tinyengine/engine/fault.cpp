#include "tinyengine/engine/fault.hpp"

#include <fmt/format.h>

#include <utility>

namespace weighlock::tiny {
namespace {

constexpr std::pair<std::string_view, FaultKind> kWords[] = {
    {"refuse", FaultKind::refuse},
    {"reset_before", FaultKind::reset_before},
    {"reset_after", FaultKind::reset_after},
    {"hang", FaultKind::hang},
    {"hang_after", FaultKind::hang_after},
    {"drip", FaultKind::drip},
    {"garbage", FaultKind::garbage},
    {"success_false", FaultKind::success_false},
    {"partial_load", FaultKind::partial_load},
    {"half_unload", FaultKind::half_unload},
    {"die", FaultKind::die},
    {"die_after", FaultKind::die_after},
    {"slow", FaultKind::slow},
};
constexpr std::string_view kStatusPrefix = "status_";

std::optional<int> status_of(std::string_view word) {
  if (!word.starts_with(kStatusPrefix) || word.size() != kStatusPrefix.size() + 3) return std::nullopt;
  int status = 0;
  for (const char c : word.substr(kStatusPrefix.size())) {
    if (c < '0' || c > '9') return std::nullopt;
    status = status * 10 + (c - '0');
  }
  return status >= 200 && status < 600 ? std::optional<int>(status) : std::nullopt;
}

}  // namespace

Result<Fault> parse_fault(const json::value& body) {
  const auto word = find_string(body, "fault");
  if (!word)
    return Error{ErrorCode::invalid_argument, "a fault needs 'fault': refuse, reset_before, status_500, slow, ..."};
  Fault fault;
  fault.word = *word;
  if (const auto status = status_of(*word)) {
    fault.kind = FaultKind::status;
    fault.status = *status;
  } else {
    bool known = false;
    for (const auto& [name, kind] : kWords) {
      if (name != *word) continue;
      fault.kind = kind;
      known = true;
    }
    if (!known) {
      std::string names = "status_NNN";
      for (const auto& [name, kind] : kWords) names += fmt::format(", {}", name);
      return Error{ErrorCode::invalid_argument, fmt::format("fault '{}' is not one of {}", *word, names)};
    }
  }
  fault.route = find_string(body, "route").value_or("*");
  fault.message = find_string(body, "message").value_or(fault.message);
  fault.times = static_cast<int>(find_int(body, "times").value_or(1));
  fault.delay = Milliseconds{find_int(body, "delay_ms").value_or(0)};
  if (fault.times < -1 || fault.delay.count() < 0) {
    return Error{ErrorCode::invalid_argument, "'times' is -1 or more, 'delay_ms' 0 or more"};
  }
  return fault;
}

std::optional<Fault> FaultBoard::take(std::string_view route) {
  for (auto fault = faults_.begin(); fault != faults_.end(); ++fault) {
    if (fault->route != "*" && fault->route != route) continue;
    Fault taken = *fault;
    if (fault->times > 0 && --fault->times == 0) faults_.erase(fault);
    return taken;
  }
  return std::nullopt;
}

json::array FaultBoard::listing() const {
  json::array list;
  for (const Fault& fault : faults_) {
    list.push_back(json::object{
        {"route", fault.route}, {"fault", fault.word}, {"times", fault.times}, {"delay_ms", fault.delay.count()}});
  }
  return list;
}

}  // namespace weighlock::tiny
