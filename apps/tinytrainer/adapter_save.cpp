#include "tinytrainer/adapter_save.hpp"

#include <filesystem>

#include "tinyengine/model/checkpoint.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::uint64_t kStepStride = 0x9E3779B97F4A7C15u;
constexpr std::string_view kPrefix = "base_model.model.";

std::string zeros(std::uint64_t count) {
  return encode_values("F32", std::vector<float>(count, 0.01f)).value();
}

void spoil(std::vector<Tensor>& tensors, AdapterConfig& config, const ModelShape& shape, RankFaultKind fault) {
  if (fault == RankFaultKind::partial) tensors.resize(tensors.size() / 2);
  if (fault == RankFaultKind::wrong_rank) config.rank *= 2;  // of the config; the tensors stay
  if (fault == RankFaultKind::wrong_shape) {
    tensors[0].shape[1] /= 2;
    tensors[0].bytes.resize(tensors[0].bytes.size() / 2);
  }
  if (fault == RankFaultKind::wrong_prefix) {
    for (Tensor& tensor : tensors) tensor.name.replace(0, kPrefix.size(), "base_model.model.language_model.");
  }
  if (fault == RankFaultKind::modules_to_save) {
    config.modules_to_save = {"lm_head"};
    tensors.push_back({std::string(kPrefix) + "lm_head.weight",
                       "F32",
                       {shape.vocabulary, shape.hidden},
                       zeros(shape.vocabulary * shape.hidden)});
  }
  if (fault != RankFaultKind::dora) return;
  config.dora = true;
  for (const AdapterSpec& spec : adapter_specs(shape, config.target_modules)) {
    tensors.push_back(
        {std::string(kPrefix) + spec.module + ".lora_magnitude_vector", "F32", {spec.outputs}, zeros(spec.outputs)});
  }
}

}  // namespace

Status write_trained_adapter(const std::string& directory, const ModelShape& shape, AdapterConfig config,
                             std::uint64_t seed, std::uint64_t step, RankFaultKind fault) {
  std::vector<Tensor> tensors = seeded_adapter(shape, config, seed + step * kStepStride);
  spoil(tensors, config, shape, fault);
  if (Status wrote = write_adapter(directory, config, tensors); !wrote) return wrote;
  const std::string file = directory + "/adapter_model.safetensors";
  std::error_code failed;
  if (fault == RankFaultKind::truncated)
    std::filesystem::resize_file(file, std::filesystem::file_size(file, failed) * 6 / 10, failed);
  return {};
}

}  // namespace weighlock::tiny
