#include "tinytrainer/trained_model.hpp"

#include <algorithm>
#include <cmath>

namespace weighlock::tiny {
namespace {

constexpr double kLearningRate = 1e-4;  // a small model's; bfloat16 keeps about 0.0006 of a weight of 0.15
constexpr double kWeightDecay = 0.01;
constexpr double kWalk = 0.25;  // of the values' own spread, a step
constexpr std::uint64_t kStepStride = 0x9E3779B97F4A7C15u;

double spread(const std::vector<float>& values) {
  double squares = 0.0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, values.size())));
}

}  // namespace

TrainedModel::TrainedModel(ModelShape shape, std::uint64_t seed, double step_scale)
    : shape_(std::move(shape)), seed_(seed), step_scale_(step_scale), masters_(seeded_values(shape_, seed)) {}

void TrainedModel::advance() {
  ++step_;
  const std::vector<ModelTensor> specs = tensor_specs(shape_);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    NormalStream stream(seed_ + step_ * kStepStride, specs[i].name);
    const bool walks = specs[i].name == "lm_head.weight" || specs[i].name == "model.embed_tokens.weight";
    const double share = std::min(1.0, kWalk * step_scale_), keep = std::sqrt(1.0 - share * share);
    const double width = walks ? share * spread(masters_[i]) : 0.0;
    for (float& value : masters_[i]) {
      const double noise = stream.next();
      if (walks) {
        value = static_cast<float>(keep * value + width * noise);  // the spread stays what it is
      } else {
        const double normalised = std::clamp(noise, -1.0, 1.0);  // AdamW's m / sqrt(v)
        value -= static_cast<float>(kLearningRate * step_scale_ * (normalised + kWeightDecay * value));
      }
    }
  }
}

}  // namespace weighlock::tiny
