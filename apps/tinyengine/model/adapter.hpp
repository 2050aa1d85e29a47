// LoRA adapters: read as engines read them, written as PEFT writes them, and put on a model.
//
//   adapter_config.json         r, lora_alpha, target_modules, use_rslora, use_dora, modules_to_save
//   adapter_model.safetensors   base_model.model.<module>.lora_A.weight [rank, inputs], .lora_B.weight [outputs, rank]
//
// A module's weight W becomes W + scale * B A, with scale lora_alpha / r (use_rslora: / sqrt(r)). Values; reading and
// writing block: call from a pool.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tinyengine/model/llama.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::tiny {

struct AdapterConfig {
  std::size_t rank = 4;
  double alpha = 8.0;
  std::vector<std::string> target_modules = {"q_proj", "v_proj"};
  std::vector<std::string> modules_to_save;
  bool rslora = false;
  bool dora = false;
};

struct AdapterModule {
  std::size_t rank = 0;
  std::vector<float> down, up;  // lora_A [rank, inputs], lora_B [outputs, rank]
};

struct Adapter {
  AdapterConfig config;
  std::map<std::string, AdapterModule> modules;  // by the name of the weight: "model.layers.0.self_attn.q_proj.weight"
  bool other_ranks = false;                      // a module's rank isn't that of the config
  std::vector<std::string> unplaced;             // tensors that belong to no module of the model, or don't fit it
  std::string sha256;                            // of the weight file
};

struct AdapterFailure {
  enum class Kind { missing_directory, no_config, bad_config, no_weights, bad_weights };
  Kind kind = Kind::bad_weights;
  std::string text;
};

struct AdapterContent {
  std::shared_ptr<const Adapter> adapter;  // null after a failure
  AdapterFailure failure;                  // if there was one
  AdapterConfig config;                    // known unless the failure came before it
};

// How an engine finds the module of a tensor: by its whole name behind the prefix, or by its layer and what follows.
enum class AdapterNames { exact, by_layer };

AdapterContent read_adapter(const std::string& directory, const ModelShape& shape, AdapterNames names);

// `base` with the adapter merged in, in float32; tensors that it doesn't change are shared. Modules of another size
// than the base's are left out.
std::shared_ptr<const Llama> merged(const Llama& base, const Adapter& adapter);

// The names that an adapter of these modules has in a model of this shape, with the sizes of lora_A and lora_B.
struct AdapterSpec {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  std::uint64_t inputs = 0, outputs = 0;
};
std::vector<AdapterSpec> adapter_specs(const ModelShape& shape, const std::vector<std::string>& target_modules);

std::string adapter_config_text(const AdapterConfig& config);

// lora_A and lora_B of every module, float32 as PEFT saves them, wide enough that the text changes; the same seed gives
// the same values.
std::vector<Tensor> seeded_adapter(const ModelShape& shape, const AdapterConfig& config, std::uint64_t seed);

// Both files, in a directory that is made if absent.
Status write_adapter(const std::string& directory, const AdapterConfig& config, const std::vector<Tensor>& tensors);

}  // namespace weighlock::tiny
