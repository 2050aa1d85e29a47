// A tensor's values as floats, to compare with what an engine prints. Bytes may lie at any alignment.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "weighlock/tensor/dtype.hpp"

namespace weighlock {

// Whether `floats_from` knows the dtype: F16, BF16, F32.
bool has_floats(Dtype dtype);

// The values in `bytes`, little-endian, C order; a rest smaller than an element is left out. `dtype` must be one of the
// above.
std::vector<float> floats_from(Dtype dtype, std::string_view bytes);

}  // namespace weighlock
