#include "weighlock/runtime/random.hpp"

#include <sys/random.h>

#include <array>

#include "weighlock/core/check.hpp"

namespace weighlock {

std::string random_hex(std::size_t bytes) {
  // Up to 256 bytes getrandom is never interrupted and never short once the kernel's pool is ready (getrandom(2)).
  std::array<unsigned char, 256> raw{};
  WEIGHLOCK_CHECK(bytes <= raw.size(), "an id has at most 256 bytes");
  WEIGHLOCK_CHECK(getrandom(raw.data(), bytes, 0) == static_cast<ssize_t>(bytes), "the kernel gives random bytes");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    text.push_back(kDigits[raw[i] >> 4]);
    text.push_back(kDigits[raw[i] & 15]);
  }
  return text;
}

}  // namespace weighlock
