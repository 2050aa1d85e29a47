// WEIGHLOCK_CHECK(condition, "what it means"): an assertion that stays on in release builds. It prints the place and
// aborts. For programmer errors only; whatever a peer, a file or a user can cause is an Error.
#pragma once

namespace weighlock {

[[noreturn]] void check_failed(const char* condition, const char* meaning, const char* file, int line);

}  // namespace weighlock

#define WEIGHLOCK_CHECK(condition, meaning) \
  ((condition) ? (void)0 : ::weighlock::check_failed(#condition, meaning, __FILE__, __LINE__))
