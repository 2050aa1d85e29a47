// A Llama forward pass in float32: RMSNorm, rotary positions, grouped-query attention, SwiGLU, lm_head or tied
// embedding.
//
// A `Llama` is an immutable set of served tensors; tensors are shared between the versions that hold the same one, so
// that a mix of two versions is as cheap as it is wrong. Thread rule: values; `forward` may run on any thread, a
// KvCache on one at a time. Linear weights are [out, in], applied as y = W x, as Hugging Face stores them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tinyengine/model/shape.hpp"
#include "tinyengine/model/tensor.hpp"

namespace weighlock::tiny {

// A tensor in the engine's own dtype, with its values and where they came from.
struct ServedTensor {
  Tensor tensor;
  std::vector<float> values;
  std::string source;  // the load that brought it: a mix shows as two sources
};
using ServedTensors = std::map<std::string, std::shared_ptr<const ServedTensor>>;

// Casts to `dtype` where the file has another one, as an engine does.
Result<std::shared_ptr<const ServedTensor>> serve_tensor(Tensor tensor, std::string_view dtype, std::string source);

// Keys and values of the tokens so far: one row of kv_heads * head_dim floats a token, for each layer.
struct KvCache {
  std::vector<std::vector<float>> keys, values;
  std::size_t length = 0;  // in tokens

  // The first `tokens` rows.
  KvCache prefix(std::size_t tokens, const ModelShape& shape) const;
};

class Llama {
 public:
  // Every tensor of `tensor_specs(shape)` must be there with its shape; the error names the first that isn't.
  static Result<std::shared_ptr<const Llama>> make(const ModelShape& shape, ServedTensors tensors);

  const ModelShape& shape() const { return shape_; }
  const ServedTensors& tensors() const { return tensors_; }
  // Where the tensors came from: one source, or a mix.
  std::set<std::string> sources() const;
  // Over names, dtypes, shapes and bytes; lower-case hex.
  std::string sha256() const;

  // Takes `token` at position `cache.length` and appends to the cache. `logits`, unless null, becomes [vocabulary].
  void forward(int token, KvCache& cache, std::vector<float>* logits) const;

 private:
  struct Layer {
    const float *input_norm, *query, *key, *value, *output, *attention_norm, *gate, *up, *down;
  };

  Llama(const ModelShape& shape, ServedTensors tensors);
  void attend(const Layer& layer, std::size_t index, KvCache& cache, std::vector<float>& state) const;
  void feed_forward(const Layer& layer, std::vector<float>& state) const;
  void rotate(float* heads, std::size_t count, std::size_t position) const;

  ModelShape shape_;
  ServedTensors tensors_;
  std::vector<Layer> layers_;
  std::vector<float> frequencies_;  // head_dim / 2 of them
  const float* embedding_ = nullptr;
  const float* final_norm_ = nullptr;
  const float* head_ = nullptr;
};

// ln softmax(logits)[token]; NaN if any logit is.
float log_probability(const std::vector<float>& logits, int token);
// The index of the greatest logit, the first of equals; 0 if any is NaN.
int greedy_token(const std::vector<float>& logits);

// Lower-case hex of SHA-256.
std::string sha256_hex(std::string_view bytes);

}  // namespace weighlock::tiny
