// The table: each call of an update, made to go wrong in each way; and one case of it, run and judged.
//
// A case is a pair of its own: two good updates, one in which engine 0 (or rank 1) fails as planned, one without
// faults.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lab.hpp"

namespace weighlock::fault {

struct Row {
  std::string_view name;
  DialectKind dialect = DialectKind::sglang;
  std::string_view route;
  std::vector<std::string_view> phases;  // one of these is in the text when the fault had a consequence
  std::string_view pause_mode = "abort";
  std::string_view evidence = {};  // "" = the default
  bool first_update = false;       // the fault strikes the pair's first update: last good is the start model
  bool stale_health = false;       // /ready stays 503 after the continue, until /health
  bool trainer = false;
};

const std::vector<Row>& rows();

struct Case {
  std::size_t row = 0;
  Fault fault = Fault::none;
  bool always = false;  // at each call, and all workers are asked for (rollback_all); else once, and the update may go
                        // on without it
  std::string name() const;
};

std::vector<Case> all_cases();

struct Report {
  std::vector<std::string> problems;
  std::string answer;  // of the update with the fault
  Milliseconds took{0};
};

// Blocking; safe to run several at once in one lab, with different names.
Report run_case(Lab& lab, const Case& one);

}  // namespace weighlock::fault
