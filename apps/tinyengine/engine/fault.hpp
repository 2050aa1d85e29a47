// Faults that tests and demos switch on, by route and for a number of calls.
//
// Values and one list; loop thread only. JSON:
// {"route":"/pause_generation","fault":"status_500","times":1,"delay_ms":0, "message":"..."}. Route "*" is every route
// but /_tiny. `times` -1 is for ever.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::tiny {

enum class FaultKind {
  refuse,         // route "*": the port is closed for delay_ms, at once; another route: reset, not applied
  reset_before,   // reset, not applied
  reset_after,    // applied, then reset instead of the answer
  hang,           // not applied, never answered
  hang_after,     // applied, never answered
  drip,           // applied, answered one byte each delay_ms
  status,         // not applied, answered with a status: "status_400", "status_500", "status_503", ...
  success_false,  // not applied, 200 with success false
  garbage,        // not applied, 200 with a body that isn't what it should be
  partial_load,   // a load applies half of its tensors and reports success
  half_unload,    // SGLang: an adapter's unload takes the name away and then fails
  die,            // the engine dies instead of applying
  die_after,      // applied, then it dies instead of answering
  slow,           // a load takes delay_ms longer, in its turn; any other call is applied, and answered delay_ms later
};

struct Fault {
  FaultKind kind = FaultKind::reset_before;
  std::string word;  // as it was given
  std::string route = "*";
  int status = 500;  // of FaultKind::status
  int times = 1;
  Milliseconds delay{0};
  std::string message = "injected failure";
};

Result<Fault> parse_fault(const json::value& body);

class FaultBoard {
 public:
  void add(Fault fault) { faults_.push_back(std::move(fault)); }
  void clear() { faults_.clear(); }
  // The oldest fault that fits the route, counted down.
  std::optional<Fault> take(std::string_view route);
  json::array listing() const;

 private:
  std::vector<Fault> faults_;
};

}  // namespace weighlock::tiny
