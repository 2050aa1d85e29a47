// For tests: the memory of all ranks of both sides, in which a plan is carried out element by element.
//
// Each element of a source holds a number that tells its tensor and its place in it, so that after the plan every
// element of a target can be looked at. A plan's operations go through one queue for each pair, as on a wire that has
// no tags.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "weighlock/reshard/plan.hpp"
#include "weighlock/reshard/prove.hpp"
#include "weighlock/reshard/statistics.hpp"

namespace weighlock::reshard {

using Memory = std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>;  // (storage, position) -> value

inline constexpr std::uint64_t kPadding = ~std::uint64_t{0};

inline void for_each_in(const Box& box, const std::function<void(std::span<const std::uint64_t>)>& visit) {
  if (box.empty()) return;
  std::vector<std::uint64_t> at(box.begin.begin(), box.begin.begin() + box.dimensions);
  while (true) {
    visit(at);
    std::size_t d = box.dimensions;
    while (d > 0 && ++at[d - 1] == box.end[d - 1]) {
      at[d - 1] = box.begin[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

class RankMemory {
 public:
  explicit RankMemory(const Side& side) : side_(side) {}

  std::uint64_t& element(ShardId shard, std::span<const std::uint64_t> relative) {
    const std::uint64_t storage = side_.buffer(shard) == kNone ? (std::uint64_t{1} << 40) + shard : side_.buffer(shard);
    return memory_[{storage, side_.position(shard, relative)}];
  }

  // The value that belongs at these coordinates of the whole tensor.
  static std::uint64_t value(const Tensor& tensor, const std::string& name, std::span<const std::uint64_t> at) {
    std::uint64_t index = 0;
    for (std::size_t d = 0; d < at.size(); ++d) {
      if (at[d] >= tensor.shape[d]) return kPadding;
      index = index * tensor.shape[d] + at[d];
    }
    return (std::hash<std::string>{}(name)&0xffffff) * 1'000'000'007ull + index + 1;
  }

  template <typename Visit>
  void for_each(const Visit& visit) {
    for (ShardId shard = 0; shard < side_.shards().size(); ++shard) {
      const Box box = side_.box(shard);
      for_each_in(box, [&](std::span<const std::uint64_t> at) {
        std::vector<std::uint64_t> relative(at.begin(), at.end());
        for (std::size_t d = 0; d < relative.size(); ++d) relative[d] -= box.begin[d];
        visit(shard, at, element(shard, relative));
      });
    }
  }

 private:
  const Side& side_;
  Memory memory_;
};

// The elements of an operation's box on one end, in the order of the wire.
inline std::vector<std::vector<std::uint64_t>> coordinates(std::span<const std::uint64_t> offset,
                                                           std::span<const std::uint64_t> extent) {
  std::vector<std::vector<std::uint64_t>> out;
  for_each_in(box_at(offset, extent), [&](auto at) { out.emplace_back(at.begin(), at.end()); });
  return out;
}

inline void perform(const Side& sources, const Side& targets, const Plan& plan, RankMemory& held, RankMemory& got) {
  for (const Stage stage : {Stage::transfer, Stage::fan_out}) {
    std::map<std::pair<Rank, Rank>, std::deque<std::uint64_t>> wires;
    const std::uint32_t senders = stage == Stage::transfer ? sources.ranks() : targets.ranks();
    RankMemory& from = stage == Stage::transfer ? held : got;
    for (Rank sender = 0; sender < senders; ++sender) {
      for (const Operation& send : plan.sends_of(sender, stage)) {
        for (const auto& at : coordinates(plan.source_offset(send), plan.extent(send)))
          wires[{sender, send.receiver}].push_back(from.element(send.source, at));
      }
    }
    for (Rank receiver = 0; receiver < targets.ranks(); ++receiver) {
      for (const Operation& receive : plan.receives_of(receiver, stage)) {
        for (const auto& at : coordinates(plan.target_offset(receive), plan.extent(receive))) {
          std::deque<std::uint64_t>& wire = wires[{receive.sender, receiver}];
          ASSERT_FALSE(wire.empty());
          got.element(receive.target, at) += wire.front();  // two writes make a wrong sum
          wire.pop_front();
        }
      }
    }
    for (const auto& [pair, wire] : wires) ASSERT_TRUE(wire.empty());
  }
}

// Carries the plan out and looks at every element of every target.
inline void expect_every_element(const Side& sources, const Side& targets, const Plan& plan) {
  RankMemory held(sources), got(targets);
  held.for_each([&](ShardId shard, auto at, std::uint64_t& element) {
    const Tensor& tensor = sources.tensors()[sources.shards()[shard].tensor];
    element = RankMemory::value(tensor, tensor.name, at);
  });
  perform(sources, targets, plan, held, got);
  got.for_each([&](ShardId shard, auto at, std::uint64_t& element) {
    const Tensor& tensor = targets.tensors()[targets.shards()[shard].tensor];
    const std::uint64_t wanted = RankMemory::value(tensor, tensor.source.empty() ? tensor.name : tensor.source, at);
    ASSERT_EQ(element, wanted == kPadding ? 0 : wanted) << targets.describe(shard);
  });
}

// Plans, proves, carries out.
inline Plan expect_planned(const Side& sources, const Side& targets, const PlanOptions& options = {}) {
  Result<Plan> plan = make_plan(sources, targets, options);
  EXPECT_TRUE(plan) << plan.error().text();
  if (!plan) return {};
  const Status proved = prove(sources, targets, *plan);
  EXPECT_TRUE(proved) << proved.error().text();
  expect_every_element(sources, targets, *plan);
  return std::move(*plan);
}

inline std::string refusal(const Side& sources, const Side& targets, const PlanOptions& options = {}) {
  const Result<Plan> plan = make_plan(sources, targets, options);
  return plan ? "planned" : plan.error().text();
}

inline TensorId tensor(Side& side, std::string name, std::vector<std::uint64_t> shape, Dtype dtype = Dtype::bf16) {
  Result<TensorId> id = side.add_tensor({std::move(name), dtype, std::move(shape)});
  EXPECT_TRUE(id) << id.error().text();
  return id.value_or(0);
}

inline void shard(Side& side, TensorId id, Rank rank, std::vector<std::uint64_t> offset,
                  std::vector<std::uint64_t> extent, std::uint32_t owner = 0) {
  const Status ok = side.add_shard(id, rank, offset, extent, owner);
  EXPECT_TRUE(ok) << ok.error().text();
}

// All of the tensor, dimension `dimension` cut into one part for each of the given ranks.
inline void cut_over(Side& side, TensorId id, std::size_t dimension, const std::vector<Rank>& ranks,
                     Chunks rule = Chunks::ceiling, std::uint32_t owner = 0) {
  const std::vector<std::uint64_t> shape =
      side.tensors()[id].padded.empty() ? side.tensors()[id].shape : side.tensors()[id].padded;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Interval part = chunk(shape[dimension], ranks.size(), i, rule);
    std::vector<std::uint64_t> offset(shape.size()), extent = shape;
    offset[dimension] = part.begin;
    extent[dimension] = part.end - part.begin;
    shard(side, id, ranks[i], offset, extent, owner);
  }
}

}  // namespace weighlock::reshard
