// What the log tells of an ordinary day: who asked for what, what was refused, and what others do to engines behind our
// back. How an update ended is in ended_text.hpp.
//
// Loop thread only.
#pragma once

#include <cstddef>
#include <string>

#include "weighlock/core/http.hpp"
#include "weighlock/core/time.hpp"
#include "weighlock/protocol/record.hpp"

namespace weighlock {

// A line for a record that somebody on call wants to see; the journal has the others.
void tell(const protocol::Record& record);

// Requests that were to change something and were refused. A client in a loop must not fill the disk: of each second
// kToldPerSecond are told, and how many more there were.
class Refusals {
 public:
  static constexpr std::size_t kToldPerSecond = 10;  // a person reads no more

  // Status below 400: nothing.
  void tell(const std::string& request, const HttpResponse& answer, Instant now);

 private:
  Instant second_{};
  std::size_t told_ = 0;
  std::size_t held_back_ = 0;
};

}  // namespace weighlock
