#include "weighlock/awex/element_bytes.hpp"

#include <utility>

namespace weighlock::awex {

std::uint32_t element_bytes(std::string_view dtype) {
  constexpr std::pair<std::string_view, std::uint32_t> kSizes[] = {
      {"torch.bfloat16", 2},       {"torch.float16", 2},     {"torch.float32", 4},         {"torch.float64", 8},
      {"torch.float8_e4m3fn", 1},  {"torch.float8_e5m2", 1}, {"torch.float8_e4m3fnuz", 1}, {"torch.float8_e5m2fnuz", 1},
      {"torch.float8_e8m0fnu", 1}, {"torch.int8", 1},        {"torch.uint8", 1},           {"torch.bool", 1},
      {"torch.int16", 2},          {"torch.uint16", 2},      {"torch.int32", 4},           {"torch.uint32", 4},
      {"torch.int64", 8},          {"torch.uint64", 8},      {"torch.complex64", 8},       {"torch.complex128", 16},
      {"torch.complex32", 4},
  };
  for (const auto& [name, bytes] : kSizes)
    if (name == dtype) return bytes;
  return 4;
}

}  // namespace weighlock::awex
