#include "weighlock/tensor/dtype.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstddef>

namespace weighlock {
namespace {

struct Row {
  std::string_view name;
  std::uint32_t bits;
};

constexpr std::array<Row, kDtypes> kTable = {{
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
}};

const Row& row(Dtype dtype) {
  return kTable.at(static_cast<std::size_t>(dtype));
}

}  // namespace

std::string_view name(Dtype dtype) {
  return row(dtype).name;
}

std::uint32_t bits(Dtype dtype) {
  return row(dtype).bits;
}

std::optional<Dtype> dtype_from(std::string_view name) {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (kTable[i].name == name) return static_cast<Dtype>(i);
  }
  return std::nullopt;
}

Result<std::uint64_t> tensor_bytes(Dtype dtype, std::span<const std::uint64_t> shape) {
  std::uint64_t product = 1;
  bool overflow = false;
  for (const std::uint64_t extent : shape) overflow |= __builtin_mul_overflow(product, extent, &product);
  overflow |= __builtin_mul_overflow(product, std::uint64_t{bits(dtype)}, &product);
  if (overflow) {
    return Error{ErrorCode::checkpoint_invalid,
                 fmt::format("the size of {} of {} passes 64 bits", shape_text(shape), name(dtype))};
  }
  if (product % 8 != 0) {
    return Error{ErrorCode::checkpoint_invalid, fmt::format("{} of {} is {} bits, which doesn't fill whole bytes",
                                                            shape_text(shape), name(dtype), product)};
  }
  return product / 8;
}

std::string shape_text(std::span<const std::uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

}  // namespace weighlock
