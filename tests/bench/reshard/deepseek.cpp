#include "deepseek.hpp"

#include <fmt/format.h>

#include "weighlock/core/check.hpp"

namespace weighlock::bench {
namespace {

using reshard::Rank;

constexpr std::uint64_t kHidden = 7168, kExpert = 2048, kDense = 18432, kVocabulary = 129280, kHeads = 128;
constexpr std::uint32_t kLayers = 61, kDenseLayers = 3, kExperts = 256;
constexpr Rank kExpertRanks = 32, kCopies = 8, kEngines = 4, kEngineRanks = 32;

class Maker {
 public:
  Transfer take() { return std::move(out_); }
  Maker() {
    out_.train.reserve(46'000, 480'000, 2);
    out_.infer.reserve(46'000, 240'000, 2);
  }

  // On all training ranks; each engine cuts dimension `cut` over its ranks, or has copies (-1).
  void add_common(const std::string& name, const std::vector<std::uint64_t>& shape, int cut) {
    const std::vector<std::uint64_t> zero(shape.size());
    const auto from = out_.train.add_tensor({name, Dtype::bf16, shape});
    const auto to = out_.infer.add_tensor({name, Dtype::bf16, shape});
    for (Rank rank = 0; rank < kExpertRanks * kCopies; ++rank) add(out_.train, *from, rank, zero, shape);
    for (Rank rank = 0; rank < kEngines * kEngineRanks; ++rank) {
      std::vector<std::uint64_t> offset = zero, extent = shape;
      if (cut >= 0) {
        const auto d = static_cast<std::size_t>(cut);
        extent[d] /= kEngineRanks;
        offset[d] = rank % kEngineRanks * extent[d];
      }
      add(out_.infer, *to, rank, offset, extent);
    }
  }

  // Whole, on the ranks that have it.
  void add_expert(const std::string& name, const std::vector<std::uint64_t>& shape, std::uint32_t expert) {
    const std::vector<std::uint64_t> zero(shape.size());
    const auto from = out_.train.add_tensor({name, Dtype::bf16, shape});
    const auto to = out_.infer.add_tensor({name, Dtype::bf16, shape});
    const Rank holder = expert / (kExperts / kExpertRanks);
    for (Rank copy = 0; copy < kCopies; ++copy) add(out_.train, *from, copy * kExpertRanks + holder, zero, shape);
    for (Rank engine = 0; engine < kEngines; ++engine)
      add(out_.infer, *to, engine * kEngineRanks + holder, zero, shape);
  }

 private:
  static void add(reshard::Side& side, reshard::TensorId tensor, Rank rank, const std::vector<std::uint64_t>& offset,
                  const std::vector<std::uint64_t>& extent) {
    const Status ok = side.add_shard(tensor, rank, offset, extent);
    WEIGHLOCK_CHECK(ok.has_value(), "the benchmark's own layout");
  }

  Transfer out_;
};

void add_mlp(Maker& maker, const std::string& prefix, std::uint64_t width, std::optional<std::uint32_t> expert) {
  for (const std::string part : {"gate_proj", "up_proj", "down_proj"}) {
    const bool down = part == "down_proj";
    const std::string name = fmt::format("{}.{}.weight", prefix, part);
    const std::vector<std::uint64_t> shape =
        down ? std::vector<std::uint64_t>{kHidden, width} : std::vector<std::uint64_t>{width, kHidden};
    if (expert) {
      maker.add_expert(name, shape, *expert);
    } else {
      maker.add_common(name, shape, down ? 1 : 0);
    }
  }
}

}  // namespace

Transfer deepseek_transfer() {
  Maker maker;
  maker.add_common("model.embed_tokens.weight", {kVocabulary, kHidden}, 0);
  maker.add_common("model.norm.weight", {kHidden}, -1);
  maker.add_common("lm_head.weight", {kVocabulary, kHidden}, 0);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const std::string at = fmt::format("model.layers.{}.", layer);
    maker.add_common(at + "input_layernorm.weight", {kHidden}, -1);
    maker.add_common(at + "post_attention_layernorm.weight", {kHidden}, -1);
    maker.add_common(at + "self_attn.fused_qkv_a_proj.weight", {2112, kHidden}, -1);
    maker.add_common(at + "self_attn.q_b_proj.weight", {kHeads * 192, 1536}, 0);
    maker.add_common(at + "self_attn.kv_b_proj.weight", {kHeads * 256, 512}, 0);
    maker.add_common(at + "self_attn.o_proj.weight", {kHidden, kHeads * 128}, 1);
    if (layer < kDenseLayers) {
      add_mlp(maker, at + "mlp", kDense, std::nullopt);
      continue;
    }
    maker.add_common(at + "mlp.gate.weight", {kExperts, kHidden}, -1);
    for (std::uint32_t expert = 0; expert < kExperts; ++expert)
      add_mlp(maker, fmt::format("{}mlp.experts.{}", at, expert), kExpert, expert);
  }
  for (std::uint32_t i = 0; i < 28; ++i)  // further small ones, to the number of tensors that the contract names
    maker.add_common(fmt::format("model.extra.{}.weight", i), {kHidden}, -1);
  return maker.take();
}

}  // namespace weighlock::bench
