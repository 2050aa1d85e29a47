#include "tinyengine/model/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "tinyengine/model/checkpoint.hpp"
#include "tinyengine/model/seeded.hpp"
#include "weighlock/core/check.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/limits.hpp"

namespace weighlock::tiny {
namespace {

namespace fs = std::filesystem;
using Kind = AdapterFailure::Kind;

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kDown = ".lora_A.weight";
constexpr float kAdapterScale = 0.15f;  // as the linear weights that it changes
constexpr std::string_view kUp = ".lora_B.weight";

std::vector<std::string> words_of(const json::value& config, std::string_view key) {
  const json::value* member = find(config, key);
  std::vector<std::string> words;
  if (!member || !member->is_array()) return words;
  for (const json::value& word : member->as_array()) {
    if (word.is_string()) words.emplace_back(word.as_string().c_str());
  }
  return words;
}

Result<AdapterConfig> parse_adapter_config(std::string_view text) {
  auto body = parse_json(text, "adapter_config.json");
  if (!body) return std::move(body).error();
  const auto rank = find_int(*body, "r");
  const json::value* alpha = find(*body, "lora_alpha");
  if (!rank || *rank < 1 || !alpha || !alpha->is_number())
    return Error{ErrorCode::checkpoint_invalid, "adapter_config.json has no rank 'r' or no 'lora_alpha'"};
  AdapterConfig config;
  config.rank = static_cast<std::size_t>(*rank);
  config.alpha = alpha->to_number<double>();
  config.target_modules = words_of(*body, "target_modules");
  config.modules_to_save = words_of(*body, "modules_to_save");
  config.rslora = find_bool(*body, "use_rslora").value_or(false);
  config.dora = find_bool(*body, "use_dora").value_or(false);
  return config;
}

AdapterContent failed(Kind kind, std::string text, AdapterConfig config = {}) {
  AdapterContent content;
  content.failure = {kind, std::move(text)};
  content.config = std::move(config);
  return content;
}

// "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" -> "model.layers.0.self_attn.q_proj.weight"
std::string weight_of(std::string_view name, std::string_view suffix, AdapterNames names) {
  const std::size_t layer = name.find("layers.");
  if (!name.ends_with(suffix) || (names == AdapterNames::exact && !name.starts_with(kPrefix))) return "";
  name.remove_suffix(suffix.size());
  if (names == AdapterNames::exact) return std::string(name.substr(kPrefix.size())) + ".weight";
  return layer < name.size() ? "model." + std::string(name.substr(layer)) + ".weight" : "";
}

void place(Adapter& adapter, const std::vector<ModelTensor>& specs, AdapterNames names, const Tensor& tensor) {
  const bool down = tensor.name.ends_with(kDown);
  const std::string weight = weight_of(tensor.name, down ? kDown : kUp, names);
  const auto spec = std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.name == weight; });
  const std::size_t rank_axis = down ? 0 : 1, base_axis = 1 - rank_axis;
  auto values = decode_values(tensor.dtype, tensor.bytes);
  const bool matrix = values && tensor.shape.size() == 2 && spec != specs.end() && spec->shape.size() == 2;
  if (!matrix || tensor.shape[base_axis] != spec->shape[down ? 1 : 0]) {
    adapter.unplaced.push_back(tensor.name);
    return;
  }
  AdapterModule& module = adapter.modules[weight];
  module.rank = std::max<std::size_t>(module.rank, tensor.shape[rank_axis]);
  adapter.other_ranks = adapter.other_ranks || module.rank != adapter.config.rank;
  (down ? module.down : module.up) = *std::move(values);
}

std::shared_ptr<const ServedTensor> with_module(const ServedTensor& base, const AdapterModule& module, double scale) {
  const std::size_t outputs = base.tensor.shape[0], inputs = base.tensor.shape[1];
  auto changed = std::make_shared<ServedTensor>(base);
  for (std::size_t row = 0; row < outputs; ++row) {
    for (std::size_t k = 0; k < module.rank; ++k) {
      const float factor = static_cast<float>(scale) * module.up[row * module.rank + k];
      for (std::size_t column = 0; column < inputs; ++column)
        changed->values[row * inputs + column] += factor * module.down[k * inputs + column];
    }
  }
  return changed;
}

}  // namespace

AdapterContent read_adapter(const std::string& directory, const ModelShape& shape, AdapterNames names) {
  const fs::path root(directory);
  std::error_code code;
  if (!fs::is_directory(root, code)) return failed(Kind::missing_directory, "no such directory");
  auto text = read_text(root / "adapter_config.json", limits::kConfigBytesMax);
  if (!text) return failed(Kind::no_config, text.error().text());
  auto config = parse_adapter_config(*text);
  if (!config) return failed(Kind::bad_config, config.error().text());
  const fs::path weights = root / "adapter_model.safetensors";
  if (!fs::exists(weights, code)) return failed(Kind::no_weights, "no adapter_model.safetensors", *config);
  std::vector<Tensor> tensors;
  if (Status read = read_file_tensors(weights, tensors); !read)
    return failed(Kind::bad_weights, read.error().text(), *config);
  auto adapter = std::make_shared<Adapter>();
  adapter->config = *config;
  const auto specs = tensor_specs(shape);
  std::string bytes;
  for (const Tensor& tensor : tensors) {
    place(*adapter, specs, names, tensor);
    bytes += tensor.name + tensor.bytes;
  }
  adapter->sha256 = sha256_hex(bytes);
  AdapterContent content;
  content.adapter = std::move(adapter);
  content.config = *std::move(config);
  return content;
}

std::shared_ptr<const Llama> merged(const Llama& base, const Adapter& adapter) {
  const AdapterConfig& config = adapter.config;
  const double rank = static_cast<double>(config.rank);
  const double scale = config.alpha / (config.rslora ? std::sqrt(rank) : rank);
  ServedTensors tensors = base.tensors();
  for (const auto& [weight, module] : adapter.modules) {
    const auto at = tensors.find(weight);
    if (at == tensors.end() || at->second->tensor.shape.size() != 2) continue;
    const ServedTensor& served = *at->second;
    const bool fits = module.down.size() == module.rank * served.tensor.shape[1] &&
                      module.up.size() == module.rank * served.tensor.shape[0];
    if (fits) at->second = with_module(served, module, scale);
  }
  auto model = Llama::make(base.shape(), std::move(tensors));
  WEIGHLOCK_CHECK(model.has_value(), "an adapter changes no shape");
  return *std::move(model);
}

std::vector<AdapterSpec> adapter_specs(const ModelShape& shape, const std::vector<std::string>& target_modules) {
  std::vector<AdapterSpec> specs;
  for (const ModelTensor& tensor : tensor_specs(shape)) {
    if (tensor.shape.size() != 2 || !tensor.name.ends_with(".weight")) continue;
    const std::string module = tensor.name.substr(0, tensor.name.size() - std::string_view(".weight").size());
    const std::string last = module.substr(module.rfind('.') + 1);
    if (std::find(target_modules.begin(), target_modules.end(), last) == target_modules.end()) continue;
    specs.push_back({module, tensor.shape[1], tensor.shape[0]});
  }
  return specs;
}

std::string adapter_config_text(const AdapterConfig& config) {
  json::array targets, saved;
  for (const std::string& module : config.target_modules) targets.emplace_back(module);
  for (const std::string& module : config.modules_to_save) saved.emplace_back(module);
  json::object body;
  body["peft_type"] = "LORA";
  body["task_type"] = "CAUSAL_LM";
  body["base_model_name_or_path"] = "";
  body["r"] = config.rank;
  body["lora_alpha"] = config.alpha;
  body["lora_dropout"] = 0.0;
  body["bias"] = "none";
  body["fan_in_fan_out"] = false;
  body["inference_mode"] = true;
  body["target_modules"] = std::move(targets);
  body["modules_to_save"] = saved.empty() ? json::value(nullptr) : json::value(std::move(saved));
  body["use_dora"] = config.dora;
  body["use_rslora"] = config.rslora;
  return json::serialize(body);
}

std::vector<Tensor> seeded_adapter(const ModelShape& shape, const AdapterConfig& config, std::uint64_t seed) {
  std::vector<Tensor> tensors;
  const std::uint64_t rank = config.rank;
  for (const AdapterSpec& spec : adapter_specs(shape, config.target_modules)) {
    for (const auto& [suffix, size] : {std::pair{kDown, std::vector<std::uint64_t>{rank, spec.inputs}},
                                       std::pair{kUp, std::vector<std::uint64_t>{spec.outputs, rank}}}) {
      const std::string name = fmt::format("{}{}{}", kPrefix, spec.module, suffix);
      NormalStream stream(seed, name);
      std::vector<float> values(element_count(size));
      for (float& value : values) value = kAdapterScale * stream.next();
      tensors.push_back({name, "F32", size, encode_values("F32", values).value()});
    }
  }
  return tensors;
}

Status write_adapter(const std::string& directory, const AdapterConfig& config, const std::vector<Tensor>& tensors) {
  std::error_code code;
  fs::create_directories(directory, code);
  if (code) return Error{ErrorCode::storage_failed, fmt::format("{}: {}", directory, code.message())};
  if (Status wrote = write_text(directory + "/adapter_config.json", adapter_config_text(config)); !wrote) return wrote;
  return write_text(directory + "/adapter_model.safetensors", safetensors_bytes(tensors));
}

}  // namespace weighlock::tiny
