#include "tinyengine/model/shape.hpp"

#include <fmt/format.h>

#include <utility>

#include "weighlock/core/json.hpp"

namespace weighlock::tiny {
namespace {

constexpr std::int64_t kSizeMax = 1 << 20;  // a slow float32 program has no use for more

Error invalid(std::string message) {
  return Error{ErrorCode::checkpoint_invalid, "config.json: " + std::move(message)};
}

Result<std::size_t> read_size(const json::value& config, std::string_view key, std::int64_t fallback) {
  const json::value* member = find(config, key);
  if (!member || member->is_null()) {
    if (fallback > 0) return static_cast<std::size_t>(fallback);
    return invalid(fmt::format("'{}' is missing", key));
  }
  const auto value = find_int(config, key);
  if (!value || *value < 1 || *value > kSizeMax) {
    return invalid(fmt::format("'{}' must be a whole number from 1 to {}", key, kSizeMax));
  }
  return static_cast<std::size_t>(*value);
}

double read_number(const json::value& config, std::string_view key, double fallback) {
  const json::value* member = find(config, key);
  if (!member || !member->is_number()) return fallback;
  return member->to_number<double>();
}

Result<std::string> read_dtype(const json::value& config) {
  auto word = find_string(config, "torch_dtype");
  if (!word) word = find_string(config, "dtype");  // the newer key of transformers
  if (!word || *word == "bfloat16") return std::string("BF16");
  if (*word == "float16") return std::string("F16");
  if (*word == "float32") return std::string("F32");
  return invalid(fmt::format("torch_dtype '{}' is not one of bfloat16, float16, float32", *word));
}

Status read_sizes(const json::value& config, ModelShape& shape) {
  struct Row {
    std::string_view key;
    std::size_t* target;
    std::int64_t fallback;
  };
  const Row rows[] = {{"hidden_size", &shape.hidden, 0},       {"intermediate_size", &shape.intermediate, 0},
                      {"num_hidden_layers", &shape.layers, 0}, {"num_attention_heads", &shape.heads, 0},
                      {"vocab_size", &shape.vocabulary, 0},    {"max_position_embeddings", &shape.positions_max, 4096}};
  for (const Row& row : rows) {
    auto size = read_size(config, row.key, row.fallback);
    if (!size) return std::move(size).error();
    *row.target = *size;
  }
  auto kv_heads = read_size(config, "num_key_value_heads", static_cast<std::int64_t>(shape.heads));
  if (!kv_heads) return std::move(kv_heads).error();
  shape.kv_heads = *kv_heads;
  auto head_dim =
      read_size(config, "head_dim", static_cast<std::int64_t>(std::max<std::size_t>(1, shape.hidden / shape.heads)));
  if (!head_dim) return std::move(head_dim).error();
  shape.head_dim = *head_dim;
  return {};
}

}  // namespace

std::vector<ModelTensor> tensor_specs(const ModelShape& shape) {
  const std::uint64_t hidden = shape.hidden, inner = shape.intermediate;
  const std::uint64_t queries = shape.heads * shape.head_dim, keys = shape.kv_heads * shape.head_dim;
  std::vector<ModelTensor> specs;
  specs.push_back({"model.embed_tokens.weight", {shape.vocabulary, hidden}});
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    specs.push_back({prefix + "input_layernorm.weight", {hidden}});
    specs.push_back({prefix + "self_attn.q_proj.weight", {queries, hidden}});
    specs.push_back({prefix + "self_attn.k_proj.weight", {keys, hidden}});
    specs.push_back({prefix + "self_attn.v_proj.weight", {keys, hidden}});
    specs.push_back({prefix + "self_attn.o_proj.weight", {hidden, queries}});
    specs.push_back({prefix + "post_attention_layernorm.weight", {hidden}});
    specs.push_back({prefix + "mlp.gate_proj.weight", {inner, hidden}});
    specs.push_back({prefix + "mlp.up_proj.weight", {inner, hidden}});
    specs.push_back({prefix + "mlp.down_proj.weight", {hidden, inner}});
  }
  specs.push_back({"model.norm.weight", {hidden}});
  if (!shape.tied) specs.push_back({"lm_head.weight", {shape.vocabulary, hidden}});
  return specs;
}

Result<ModelShape> parse_config(std::string_view text) {
  auto config = parse_json(text, "config.json");
  if (!config) return std::move(config).error();
  if (find_string(*config, "model_type").value_or("llama") != "llama") {
    return invalid(fmt::format("model_type '{}' is not 'llama', the only architecture this program runs",
                               *find_string(*config, "model_type")));
  }
  ModelShape shape;
  if (Status sizes = read_sizes(*config, shape); !sizes) return sizes.error();
  if (shape.heads % shape.kv_heads != 0 || shape.head_dim % 2 != 0) {
    return invalid(fmt::format("{} heads over {} key-value heads of dimension {} can't be grouped and rotated",
                               shape.heads, shape.kv_heads, shape.head_dim));
  }
  auto dtype = read_dtype(*config);
  if (!dtype) return std::move(dtype).error();
  shape.dtype = *dtype;
  shape.norm_epsilon = static_cast<float>(read_number(*config, "rms_norm_eps", 1e-5));
  shape.rope_theta = read_number(*config, "rope_theta", 10000.0);
  shape.tied = find_bool(*config, "tie_word_embeddings").value_or(false);
  return shape;
}

std::string config_text(const ModelShape& shape) {
  json::object config;
  config["architectures"] = json::array{"LlamaForCausalLM"};
  config["model_type"] = "llama";
  config["hidden_size"] = shape.hidden;
  config["intermediate_size"] = shape.intermediate;
  config["num_hidden_layers"] = shape.layers;
  config["num_attention_heads"] = shape.heads;
  config["num_key_value_heads"] = shape.kv_heads;
  config["head_dim"] = shape.head_dim;
  config["vocab_size"] = shape.vocabulary;
  config["max_position_embeddings"] = shape.positions_max;
  config["rms_norm_eps"] = static_cast<double>(shape.norm_epsilon);
  config["rope_theta"] = shape.rope_theta;
  config["hidden_act"] = "silu";
  config["tie_word_embeddings"] = shape.tied;
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
  config["torch_dtype"] = shape.dtype == "F32" ? "float32" : shape.dtype == "F16" ? "float16" : "bfloat16";
  config["bos_token_id"] = 1;
  config["eos_token_id"] = 2;
  return json::serialize(config);
}

}  // namespace weighlock::tiny
