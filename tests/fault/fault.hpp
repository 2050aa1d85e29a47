// The ways in which a call can go wrong, as the caller sees them on the wire.
#pragma once

#include <array>
#include <string_view>
#include <vector>

namespace weighlock::fault {

enum class Fault {
  none,
  refuse,        // nobody listens
  reset_before,  // the connection ends by RST, and nothing was done
  reset_after,   // ... and it was done
  hang,          // no answer ever, and nothing is done
  hang_after,    // no answer ever, and it was done
  freeze,        // it and all behind it in the engine's queue wait until after the caller's deadline, then all is done
  late,          // the same within the deadline
  drip,          // answered a byte at a time
  status_500,
  status_400,
  not_success,  // 200 {"success":false}
  garbage,      // done, and 200 with something that isn't JSON
  empty,        // done, and 200 with nothing
};

inline constexpr std::array kFaults{Fault::refuse,     Fault::reset_before, Fault::reset_after, Fault::hang,
                                    Fault::hang_after, Fault::freeze,       Fault::late,        Fault::drip,
                                    Fault::status_500, Fault::status_400,   Fault::not_success, Fault::garbage,
                                    Fault::empty};

std::string_view name(Fault fault);

// One of these stands in what the client is told when the fault was the cause.
std::vector<std::string_view> words_of_cause(Fault fault);

// A worker stays well whatever the fault's place: the call was answered rightly and in time.
inline bool harmless(Fault fault) {
  return fault == Fault::late || fault == Fault::drip;
}

// The caller hears nothing before its deadline.
inline bool silent(Fault fault) {
  return fault == Fault::hang || fault == Fault::hang_after || fault == Fault::freeze;
}

// What the imposters say of themselves in a fault's body.
inline constexpr const char* kWords = "disk on fire";

}  // namespace weighlock::fault
