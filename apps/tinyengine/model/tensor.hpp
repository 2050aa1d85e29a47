// One tensor as a checkpoint holds it, and its values as floats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/result.hpp"

namespace weighlock::tiny {

struct Tensor {
  std::string name;
  std::string dtype;  // as safetensors spells it; BF16, F16 and F32 have values here
  std::vector<std::uint64_t> shape;
  std::string bytes;  // little-endian, C order
};

// The number of elements; 1 for a scalar.
std::uint64_t element_count(const std::vector<std::uint64_t>& shape);

// Bytes <-> floats. Encoding rounds to nearest even, as torch's cast does. Other dtypes than BF16, F16, F32 are an
// error.
Result<std::vector<float>> decode_values(std::string_view dtype, std::string_view bytes);
Result<std::string> encode_values(std::string_view dtype, const std::vector<float>& values);

}  // namespace weighlock::tiny
