#include "tinyengine/model/llama.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "weighlock/core/check.hpp"

namespace weighlock::tiny {
namespace {

// Eight sums at once: the compiler may not reorder float additions by itself, and this lets it use vectors.
float dot(const float* a, const float* b, std::size_t count) {
  float sums[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

std::vector<float> multiply(const float* matrix, std::size_t rows, const std::vector<float>& vector) {
  std::vector<float> result(rows);
  for (std::size_t row = 0; row < rows; ++row)
    result[row] = dot(matrix + row * vector.size(), vector.data(), vector.size());
  return result;
}

std::vector<float> normalise(const std::vector<float>& state, const float* weight, float epsilon) {
  const float mean_square = dot(state.data(), state.data(), state.size()) / static_cast<float>(state.size());
  const float scale = 1.0f / std::sqrt(mean_square + epsilon);
  std::vector<float> result(state.size());
  for (std::size_t i = 0; i < state.size(); ++i) result[i] = state[i] * scale * weight[i];
  return result;
}

void soften(std::vector<float>& scores) {
  const float top = *std::max_element(scores.begin(), scores.end());
  float total = 0.0f;
  for (float& score : scores) total += score = std::exp(score - top);
  for (float& score : scores) score /= total;
}

struct DigestContext {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  DigestContext() { EVP_DigestInit_ex(context, EVP_sha256(), nullptr); }
  ~DigestContext() { EVP_MD_CTX_free(context); }
  DigestContext(const DigestContext&) = delete;
  DigestContext& operator=(const DigestContext&) = delete;
  void add(std::string_view bytes) { EVP_DigestUpdate(context, bytes.data(), bytes.size()); }
  std::string hex() {
    unsigned char raw[32];
    EVP_DigestFinal_ex(context, raw, nullptr);
    std::string text;
    for (const unsigned char byte : raw) text += fmt::format("{:02x}", byte);
    return text;
  }
};

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  DigestContext digest;
  digest.add(bytes);
  return digest.hex();
}

Result<std::shared_ptr<const ServedTensor>> serve_tensor(Tensor tensor, std::string_view dtype, std::string source) {
  auto values = decode_values(tensor.dtype, tensor.bytes);
  if (!values) return wrap("tensor '" + tensor.name + "'", std::move(values).error());
  if (tensor.dtype != dtype) {
    auto bytes = encode_values(dtype, *values);
    if (!bytes) return wrap("tensor '" + tensor.name + "'", std::move(bytes).error());
    tensor.bytes = *std::move(bytes);
    tensor.dtype = dtype;
    values = decode_values(dtype, tensor.bytes);
  }
  auto served = std::make_shared<ServedTensor>();
  served->tensor = std::move(tensor);
  served->values = *std::move(values);
  served->source = std::move(source);
  return std::shared_ptr<const ServedTensor>(std::move(served));
}

KvCache KvCache::prefix(std::size_t tokens, const ModelShape& shape) const {
  WEIGHLOCK_CHECK(tokens <= length, "a prefix is no longer than its cache");
  const auto floats = static_cast<std::ptrdiff_t>(tokens * shape.kv_heads * shape.head_dim);
  KvCache copy;
  copy.length = tokens;
  for (const auto& rows : keys) copy.keys.emplace_back(rows.begin(), rows.begin() + floats);
  for (const auto& rows : values) copy.values.emplace_back(rows.begin(), rows.begin() + floats);
  return copy;
}

Result<std::shared_ptr<const Llama>> Llama::make(const ModelShape& shape, ServedTensors tensors) {
  for (const ModelTensor& spec : tensor_specs(shape)) {
    const auto found = tensors.find(spec.name);
    if (found == tensors.end())
      return Error{ErrorCode::checkpoint_invalid, fmt::format("tensor '{}' is missing", spec.name)};
    if (found->second->tensor.shape != spec.shape) {
      return Error{ErrorCode::checkpoint_invalid,
                   fmt::format("tensor '{}' has a shape of {} elements, config.json asks for {}", spec.name,
                               element_count(found->second->tensor.shape), element_count(spec.shape))};
    }
    if (found->second->values.size() != element_count(spec.shape)) {
      return Error{ErrorCode::checkpoint_invalid, fmt::format("tensor '{}' has {} values, its shape {}", spec.name,
                                                              found->second->values.size(), element_count(spec.shape))};
    }
  }
  return std::shared_ptr<const Llama>(new Llama(shape, std::move(tensors)));
}

Llama::Llama(const ModelShape& shape, ServedTensors tensors) : shape_(shape), tensors_(std::move(tensors)) {
  const auto values = [this](const std::string& name) { return tensors_.at(name)->values.data(); };
  for (std::size_t i = 0; i < shape_.layers; ++i) {
    const std::string prefix = fmt::format("model.layers.{}.", i);
    layers_.push_back({values(prefix + "input_layernorm.weight"), values(prefix + "self_attn.q_proj.weight"),
                       values(prefix + "self_attn.k_proj.weight"), values(prefix + "self_attn.v_proj.weight"),
                       values(prefix + "self_attn.o_proj.weight"), values(prefix + "post_attention_layernorm.weight"),
                       values(prefix + "mlp.gate_proj.weight"), values(prefix + "mlp.up_proj.weight"),
                       values(prefix + "mlp.down_proj.weight")});
  }
  for (std::size_t i = 0; i < shape_.head_dim / 2; ++i) {
    const double power = -2.0 * static_cast<double>(i) / static_cast<double>(shape_.head_dim);
    frequencies_.push_back(static_cast<float>(std::pow(shape_.rope_theta, power)));
  }
  embedding_ = values("model.embed_tokens.weight");
  final_norm_ = values("model.norm.weight");
  head_ = shape_.tied ? embedding_ : values("lm_head.weight");
}

std::set<std::string> Llama::sources() const {
  std::set<std::string> sources;
  for (const ModelTensor& spec : tensor_specs(shape_)) sources.insert(tensors_.at(spec.name)->source);
  return sources;
}

std::string Llama::sha256() const {
  DigestContext digest;
  for (const ModelTensor& spec : tensor_specs(shape_)) {
    const Tensor& tensor = tensors_.at(spec.name)->tensor;
    digest.add(tensor.name + " " + tensor.dtype + "\n");
    digest.add(tensor.bytes);
  }
  return digest.hex();
}

// Pairs element i with element i + head_dim/2, the order in which Hugging Face stores Llama's q_proj and k_proj.
void Llama::rotate(float* heads, std::size_t count, std::size_t position) const {
  const std::size_t half = shape_.head_dim / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * frequencies_[i];
    const float cosine = std::cos(angle), sine = std::sin(angle);
    for (std::size_t head = 0; head < count; ++head) {
      float& low = heads[head * shape_.head_dim + i];
      float& high = heads[head * shape_.head_dim + i + half];
      const float rotated = low * cosine - high * sine;
      high = high * cosine + low * sine;
      low = rotated;
    }
  }
}

void Llama::attend(const Layer& layer, std::size_t index, KvCache& cache, std::vector<float>& state) const {
  const std::size_t dim = shape_.head_dim, row = shape_.kv_heads * dim, position = cache.length;
  const std::vector<float> input = normalise(state, layer.input_norm, shape_.norm_epsilon);
  std::vector<float> queries = multiply(layer.query, shape_.heads * dim, input);
  std::vector<float> keys = multiply(layer.key, row, input);
  const std::vector<float> values = multiply(layer.value, row, input);
  rotate(queries.data(), shape_.heads, position);
  rotate(keys.data(), shape_.kv_heads, position);
  cache.keys[index].insert(cache.keys[index].end(), keys.begin(), keys.end());
  cache.values[index].insert(cache.values[index].end(), values.begin(), values.end());

  std::vector<float> mixed(shape_.heads * dim, 0.0f), scores(position + 1);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  for (std::size_t head = 0; head < shape_.heads; ++head) {
    const std::size_t group = head / (shape_.heads / shape_.kv_heads);
    for (std::size_t at = 0; at <= position; ++at) {
      scores[at] = scale * dot(&queries[head * dim], &cache.keys[index][at * row + group * dim], dim);
    }
    soften(scores);
    for (std::size_t at = 0; at <= position; ++at) {
      const float* value = &cache.values[index][at * row + group * dim];
      for (std::size_t i = 0; i < dim; ++i) mixed[head * dim + i] += scores[at] * value[i];
    }
  }
  const std::vector<float> output = multiply(layer.output, shape_.hidden, mixed);
  for (std::size_t i = 0; i < shape_.hidden; ++i) state[i] += output[i];
}

void Llama::feed_forward(const Layer& layer, std::vector<float>& state) const {
  const std::vector<float> input = normalise(state, layer.attention_norm, shape_.norm_epsilon);
  std::vector<float> gate = multiply(layer.gate, shape_.intermediate, input);
  const std::vector<float> up = multiply(layer.up, shape_.intermediate, input);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
  const std::vector<float> output = multiply(layer.down, shape_.hidden, gate);
  for (std::size_t i = 0; i < shape_.hidden; ++i) state[i] += output[i];
}

void Llama::forward(int token, KvCache& cache, std::vector<float>* logits) const {
  WEIGHLOCK_CHECK(token >= 0 && static_cast<std::size_t>(token) < shape_.vocabulary, "token ids are checked on entry");
  cache.keys.resize(shape_.layers);
  cache.values.resize(shape_.layers);
  const float* row = embedding_ + static_cast<std::size_t>(token) * shape_.hidden;
  std::vector<float> state(row, row + shape_.hidden);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    attend(layers_[i], i, cache, state);
    feed_forward(layers_[i], state);
  }
  ++cache.length;
  if (logits) *logits = multiply(head_, shape_.vocabulary, normalise(state, final_norm_, shape_.norm_epsilon));
}

float log_probability(const std::vector<float>& logits, int token) {
  float top = logits[0];
  for (const float logit : logits) {
    if (std::isnan(logit)) return std::numeric_limits<float>::quiet_NaN();
    top = std::max(top, logit);
  }
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit) - top);
  return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(token)]) - top - std::log(total));
}

int greedy_token(const std::vector<float>& logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) return 0;
    if (logits[i] > logits[best]) best = i;
  }
  return static_cast<int>(best);
}

}  // namespace weighlock::tiny
