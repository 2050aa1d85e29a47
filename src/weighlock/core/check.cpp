#include "weighlock/core/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace weighlock {

void check_failed(const char* condition, const char* meaning, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s (%s)\n", file, line, meaning, condition);
  std::abort();
}

}  // namespace weighlock
