#include "weighlock/reshard/digest.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <numeric>

namespace weighlock::reshard {
namespace {

class Digest {
 public:
  Digest() { XXH3_128bits_reset(state_.get()); }
  void text(std::string_view bytes) {
    flush();
    XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
  }
  void named(std::string_view bytes) {
    number(bytes.size());
    text(bytes);
  }
  void number(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) waiting_.push_back(static_cast<char>(value >> (8 * i)));
    if (waiting_.size() >= kWaitingMax) flush();
  }
  std::string finish() {
    flush();
    const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
    return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
  }

 private:
  static constexpr std::size_t kWaitingMax = 16 * 1024;
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  void flush() {
    XXH3_128bits_update(state_.get(), waiting_.data(), waiting_.size());
    waiting_.clear();
  }
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
  std::string waiting_;
};

}  // namespace

std::string digest_of(const Side& sources, const Side& targets, const Plan& plan) {
  std::vector<TensorId> order(targets.tensors().size());
  std::iota(order.begin(), order.end(), TensorId{0});
  std::sort(order.begin(), order.end(),
            [&](TensorId a, TensorId b) { return targets.tensors()[a].name < targets.tensors()[b].name; });
  std::vector<std::uint64_t> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  Digest digest;
  digest.text("weighlock plan 1\n");
  digest.number(sources.ranks());
  digest.number(targets.ranks());
  for (const Operation& operation : plan.operations()) {
    for (const std::uint64_t number :
         {static_cast<std::uint64_t>(operation.stage), std::uint64_t{operation.sender},
          std::uint64_t{operation.receiver}, place[operation.tensor], std::uint64_t{operation.dimensions}})
      digest.number(number);
    const Box from = (operation.stage == Stage::transfer ? sources : targets).box(operation.source);
    const Box to = targets.box(operation.target);
    for (std::size_t d = 0; d < operation.dimensions; ++d) {
      for (const std::uint64_t number : {plan.source_offset(operation)[d], plan.target_offset(operation)[d],
                                         plan.extent(operation)[d], from.begin[d], from.end[d], to.begin[d], to.end[d]})
        digest.number(number);
    }
  }
  for (const TensorId tensor : order) {
    digest.named(targets.tensors()[tensor].name);
    digest.named(name(targets.tensors()[tensor].dtype));
  }
  return digest.finish();
}

}  // namespace weighlock::reshard
