#include "tinyengine/model/seeded.hpp"

#include <cmath>
#include <numbers>

#include "weighlock/core/check.hpp"

namespace weighlock::tiny {
namespace {

// Standard deviations of the tiny models of contracts/vllm.md: with these the logits spread over a few units, so that
// greedy text isn't one repeated character and two versions differ by more than rounding.
constexpr float kEmbeddingScale = 0.5f;
constexpr float kHeadScale = 0.2f;
constexpr float kLinearScale = 0.15f;
constexpr float kNormScale = 0.05f;
constexpr float kLinearInputs = 64.0f;  // the linear scale is meant for this many inputs

std::uint64_t mix(std::uint64_t& state) {  // SplitMix64
  std::uint64_t z = (state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

NormalStream::NormalStream(std::uint64_t seed, std::string_view name) : state_(seed) {
  for (const char c : name) {
    state_ ^= static_cast<unsigned char>(c);
    state_ = mix(state_);
  }
}

double NormalStream::uniform() {
  return (static_cast<double>(mix(state_) >> 11) + 0.5) * 0x1p-53;
}

float NormalStream::next() {  // Box and Muller's pairs
  if (has_spare_) {
    has_spare_ = false;
    return static_cast<float>(spare_);
  }
  const double radius = std::sqrt(-2.0 * std::log(uniform())), angle = 2.0 * std::numbers::pi * uniform();
  spare_ = radius * std::sin(angle);
  has_spare_ = true;
  return static_cast<float>(radius * std::cos(angle));
}

std::vector<std::vector<float>> seeded_values(const ModelShape& shape, std::uint64_t seed) {
  std::vector<std::vector<float>> all;
  for (const ModelTensor& spec : tensor_specs(shape)) {
    NormalStream stream(seed, spec.name);
    const bool norm = spec.shape.size() == 1;
    float scale = kNormScale;
    if (spec.name == "model.embed_tokens.weight") {
      scale = kEmbeddingScale;
    } else if (spec.name == "lm_head.weight") {
      scale = kHeadScale * std::sqrt(kLinearInputs / static_cast<float>(shape.hidden));
    } else if (!norm) {
      scale = kLinearScale * std::sqrt(kLinearInputs / static_cast<float>(spec.shape[1]));
    }
    std::vector<float> values(element_count(spec.shape));
    for (float& value : values) value = scale * stream.next() + (norm ? 1.0f : 0.0f);
    all.push_back(std::move(values));
  }
  return all;
}

std::vector<Tensor> tensors_from(const ModelShape& shape, const std::vector<std::vector<float>>& values) {
  const std::vector<ModelTensor> specs = tensor_specs(shape);
  WEIGHLOCK_CHECK(specs.size() == values.size(), "one list of values a tensor");
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    auto bytes = encode_values(shape.dtype, values[i]);
    WEIGHLOCK_CHECK(bytes.has_value(), "a shape's dtype is one that has values");
    tensors.push_back({specs[i].name, shape.dtype, specs[i].shape, *std::move(bytes)});
  }
  return tensors;
}

std::vector<Tensor> seeded_model(const ModelShape& shape, std::uint64_t seed) {
  return tensors_from(shape, seeded_values(shape, seed));
}

}  // namespace weighlock::tiny
