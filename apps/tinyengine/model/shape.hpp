// The shape of a Llama-architecture model: what config.json says, and which tensors follow from it.
//
// Values only. The defaults are those of the tiny models that the tests and the demo use (about 0.3 MB).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/result.hpp"

namespace weighlock::tiny {

struct ModelShape {
  std::size_t hidden = 64;
  std::size_t intermediate = 128;
  std::size_t layers = 2;
  std::size_t heads = 2;
  std::size_t kv_heads = 1;
  std::size_t head_dim = 32;  // vLLM's CPU attention takes 32, 64, 80, ...
  std::size_t vocabulary = 256;
  std::size_t positions_max = 4096;
  float norm_epsilon = 1e-5f;
  double rope_theta = 10000.0;
  bool tied = false;           // lm_head is the embedding, and absent from the files
  std::string dtype = "BF16";  // as safetensors spells it; what an engine casts to

  friend bool operator==(const ModelShape&, const ModelShape&) = default;
};

struct ModelTensor {
  std::string name;  // as Hugging Face checkpoints name it
  std::vector<std::uint64_t> shape;
};

// In the order of the checkpoint: embedding, layers, final norm, lm_head (absent when tied).
std::vector<ModelTensor> tensor_specs(const ModelShape& shape);

// Reads config.json. Refuses another architecture, sizes of zero, sizes beyond what a CPU program should be asked to
// hold, and a dtype other than bfloat16, float16 and float32.
Result<ModelShape> parse_config(std::string_view text);
std::string config_text(const ModelShape& shape);

}  // namespace weighlock::tiny
