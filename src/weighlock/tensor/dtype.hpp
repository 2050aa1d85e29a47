// The element types of safetensors, and how many bytes a tensor of them takes.
//
// Names are case-sensitive, as in the format. F4 and F6 are smaller than a byte: shapes count logical elements, and a
// tensor must fill whole bytes. Source of the table and its order: the reference implementation's enum (its writer
// sorts by it).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "weighlock/core/result.hpp"

namespace weighlock {

enum class Dtype : std::uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64,
};

inline constexpr int kDtypes = 22;

std::string_view name(Dtype dtype);  // as the format spells it: "BF16"
std::uint32_t bits(Dtype dtype);     // of one element
std::optional<Dtype> dtype_from(std::string_view name);

// Bytes of a C-order tensor; `[]` is one element. Fails where a product passes 64 bits, even if a later dimension is 0
// (as the reference does), and where the last byte would be filled in part.
Result<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::uint64_t> shape);

// "[2,3]"
std::string shape_text(std::span<const std::uint64_t> shape);

}  // namespace weighlock
