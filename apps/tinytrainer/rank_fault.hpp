// Faults of one training rank's /save. JSON: {"fault":"status_500","times":1,"delay_ms":0,"message":"No space left on
// device"}.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::tiny {

enum class RankFaultKind {
  // The rank doesn't enter the collective: the others wait for it.
  status,   // "status_400", "status_500", ...: answers at once, with the message
  hang,     // never answers
  reset,    // closes by RST
  garbage,  // 200 with a body that isn't what it should be
  refuse,   // the port is closed for delay_ms, from the moment the fault is set
  // The rank takes part.
  reset_after,  // writes, then closes by RST
  hang_after,   // writes, and never answers
  write_error,  // answers 500 instead of writing; the others stay in the last barrier
  slow,         // writes delay_ms later
  silent,       // writes nothing and says success
  partial,      // half of its tensors
  truncated,    // its file is cut at 60 %
  wrong_shape,  // its first matrix has half of its rows
  stray,        // another file besides, with other values
  no_index,     // rank 0: no index
  // Rank 0 of a trainer of adapters.
  wrong_prefix,     // names that belong to no module of the base
  wrong_rank,       // the config says another rank than the tensors have
  modules_to_save,  // a whole lm_head besides
  dora,             // magnitude vectors besides
};

struct RankFault {
  RankFaultKind kind = RankFaultKind::status;
  std::string word;
  int status = 500;
  int times = 1;  // -1: for ever
  Milliseconds delay{0};
  std::string message = "injected failure";
};

Result<RankFault> parse_rank_fault(const json::value& body);

}  // namespace weighlock::tiny
