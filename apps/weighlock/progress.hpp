// Progress of one update on `err`: a line that is written over on a terminal, one plain line for each phase elsewhere.
//
// `now_ms` is the caller's monotonic clock: the class itself reads none.
#pragma once

#include <cstdint>
#include <string>

#include "terminal.hpp"
#include "weighlock/client/values.hpp"

namespace weighlock::cli {

class Progress {
 public:
  explicit Progress(Terminal& terminal) : terminal_(terminal) {}
  void seen(const client::Update& update, std::int64_t now_ms);
  // Ends the line that is written over.
  void finish();

 private:
  std::string line(const client::Update& update, std::int64_t now_ms) const;
  Terminal& terminal_;
  std::string phase_;
  std::string shown_;
  std::int64_t phase_since_ms_ = 0;
};

}  // namespace weighlock::cli
