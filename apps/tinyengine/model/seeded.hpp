// Deterministic model values: the start of a training run, and the steps that follow.
//
// The same seed gives the same bytes on every machine with IEEE floats and the same math library.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tinyengine/model/shape.hpp"
#include "tinyengine/model/tensor.hpp"

namespace weighlock::tiny {

// Normal numbers, one stream for each (seed, name).
class NormalStream {
 public:
  NormalStream(std::uint64_t seed, std::string_view name);
  float next();

 private:
  double uniform();  // in (0, 1)
  std::uint64_t state_;
  double spare_ = 0.0;
  bool has_spare_ = false;
};

// Float32 values of each tensor of `tensor_specs(shape)`, scaled so that the model's greedy text is lively.
std::vector<std::vector<float>> seeded_values(const ModelShape& shape, std::uint64_t seed);

// The values in the shape's dtype, as a checkpoint has them. `values` must match `tensor_specs(shape)`.
std::vector<Tensor> tensors_from(const ModelShape& shape, const std::vector<std::vector<float>>& values);
std::vector<Tensor> seeded_model(const ModelShape& shape, std::uint64_t seed);

}  // namespace weighlock::tiny
