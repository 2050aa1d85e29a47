// Sizes of torch's element types, by the words of AWEX's metadata.
#pragma once

#include <cstdint>
#include <string_view>

namespace weighlock::awex {

// Of "torch.bfloat16": 2. A type that isn't known counts 4, as in AWEX's own statistics: sizes only weigh loads.
std::uint32_t element_bytes(std::string_view dtype);

}  // namespace weighlock::awex
