// What a run throws when the specification was broken.
#pragma once

#include <string>

namespace weighlock::sim {

struct Violation {
  int invariant = 0;  // number in design/protocol.md section 13; 0: the machine's interface
  std::string text;
};

}  // namespace weighlock::sim
