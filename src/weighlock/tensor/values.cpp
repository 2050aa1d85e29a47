#include "weighlock/tensor/values.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "weighlock/core/check.hpp"

namespace weighlock {
namespace {

float from_half(std::uint32_t half) {
  const std::uint32_t exponent = half >> 10 & 0x1f;
  const std::uint32_t fraction = half & 0x3ff;
  float magnitude = 0;
  if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);  // subnormal: fraction x 2^-24
  } else if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction | 0x400), static_cast<int>(exponent) - 25);
  }
  return half >> 15 != 0 ? -magnitude : magnitude;
}

}  // namespace

bool has_floats(Dtype dtype) {
  return dtype == Dtype::f16 || dtype == Dtype::bf16 || dtype == Dtype::f32;
}

std::vector<float> floats_from(Dtype dtype, std::string_view bytes) {
  WEIGHLOCK_CHECK(has_floats(dtype), "a dtype that can be shown as float");
  const std::size_t width = bits(dtype) / 8;
  std::vector<float> values;
  values.reserve(bytes.size() / width);
  for (std::size_t at = 0; at + width <= bytes.size(); at += width) {
    std::uint32_t raw = 0;
    for (std::size_t i = width; i-- > 0;) raw = raw << 8 | static_cast<unsigned char>(bytes[at + i]);
    if (dtype == Dtype::f32) values.push_back(std::bit_cast<float>(raw));
    if (dtype == Dtype::bf16) values.push_back(std::bit_cast<float>(raw << 16));
    if (dtype == Dtype::f16) values.push_back(from_half(raw));
  }
  return values;
}

}  // namespace weighlock
