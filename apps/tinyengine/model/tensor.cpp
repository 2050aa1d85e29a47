#include "tinyengine/model/tensor.hpp"

#include <bit>
#include <cmath>
#include <cstring>

namespace weighlock::tiny {
namespace {

float from_half(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = (half >> 10) & 0x1Fu, mantissa = half & 0x3FFu;
  if (exponent == 0) {
    const float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide = exponent == 31 ? 0xFFu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

std::uint16_t to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7E00u);
  if (magnitude >= 65520.0f) return static_cast<std::uint16_t>(sign | 0x7C00u);
  if (magnitude < 0x1p-14f) {  // subnormal: a multiple of 2^-24; nearbyint rounds to even
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(std::ldexp(magnitude, 24))));
  }
  std::uint32_t rounded = (bits & 0x7FFFFFFFu) + 0xFFFu + ((bits >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>((rounded - (112u << 23)) >> 13));
}

std::uint16_t to_bfloat(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

std::uint16_t read_16(std::string_view bytes, std::size_t index) {
  std::uint16_t value = 0;
  std::memcpy(&value, bytes.data() + 2 * index, 2);
  return value;
}

}  // namespace

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian and copied as they are");

std::uint64_t element_count(const std::vector<std::uint64_t>& shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t dimension : shape) count *= dimension;
  return count;
}

Result<std::vector<float>> decode_values(std::string_view dtype, std::string_view bytes) {
  std::vector<float> values;
  if (dtype == "F32") {
    values.resize(bytes.size() / 4);
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * 4);
    return values;
  }
  if (dtype != "BF16" && dtype != "F16") {
    return Error{ErrorCode::not_supported, "dtype '" + std::string(dtype) + "' is not one of BF16, F16, F32"};
  }
  values.resize(bytes.size() / 2);
  const bool bfloat = dtype == "BF16";
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t raw = read_16(bytes, i);
    values[i] = bfloat ? std::bit_cast<float>(static_cast<std::uint32_t>(raw) << 16) : from_half(raw);
  }
  return values;
}

Result<std::string> encode_values(std::string_view dtype, const std::vector<float>& values) {
  if (dtype == "F32") return std::string(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  if (dtype != "BF16" && dtype != "F16") {
    return Error{ErrorCode::not_supported, "dtype '" + std::string(dtype) + "' is not one of BF16, F16, F32"};
  }
  std::string bytes(values.size() * 2, '\0');
  const bool bfloat = dtype == "BF16";
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t raw = bfloat ? to_bfloat(values[i]) : to_half(values[i]);
    std::memcpy(bytes.data() + 2 * i, &raw, 2);
  }
  return bytes;
}

}  // namespace weighlock::tiny
