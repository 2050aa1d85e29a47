#include "weighlock/reshard/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "weighlock/core/check.hpp"
#include "weighlock/reshard/assign.hpp"
#include "weighlock/reshard/balance.hpp"
#include "weighlock/reshard/demand.hpp"
#include "weighlock/reshard/digest.hpp"
#include "weighlock/reshard/storage.hpp"

namespace weighlock::reshard {

std::uint64_t Plan::elements(const Operation& of) const {
  std::uint64_t product = 1;
  for (const std::uint64_t size : extent(of)) product *= size;
  return product;
}

void Plan::reserve(std::size_t operations, std::size_t dimensions) {
  operations_.reserve(operations);
  numbers_.reserve(operations * dimensions * 3);
}

void Plan::add(const Side& sources, const Side& targets, Stage stage, ShardId source, ShardId target, const Box& box) {
  const Side& sending = stage == Stage::transfer ? sources : targets;
  const Shard &from = sending.shards()[source], &to = targets.shards()[target];
  WEIGHLOCK_CHECK(numbers_.size() + 3 * kDimensionsMax < kNone, "a plan's coordinates are numbered with 32 bits");
  operations_.push_back({from.rank, to.rank, to.tensor, source, target, static_cast<std::uint32_t>(numbers_.size()),
                         stage, static_cast<std::uint8_t>(box.dimensions)});
  const Box held = sending.box(source), wanted = targets.box(target);
  for (std::size_t d = 0; d < box.dimensions; ++d) numbers_.push_back(box.begin[d] - held.begin[d]);
  for (std::size_t d = 0; d < box.dimensions; ++d) numbers_.push_back(box.begin[d] - wanted.begin[d]);
  for (std::size_t d = 0; d < box.dimensions; ++d) numbers_.push_back(box.extent(d));
}

void Plan::arrange(std::span<const std::uint32_t> place_of_tensor, std::uint32_t target_ranks) {
  // Within a pair: by name, target part, and where in it. Target parts don't share elements, so no two are equal.
  const auto in_pair = [&](const Operation& a, const Operation& b) {
    if (a.tensor != b.tensor) return place_of_tensor[a.tensor] < place_of_tensor[b.tensor];
    if (a.target != b.target) return a.target < b.target;
    const auto x = target_offset(a), y = target_offset(b);
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  };
  std::sort(operations_.begin(), operations_.end(), [&](const Operation& a, const Operation& b) {
    if (a.stage != b.stage) return a.stage < b.stage;
    if (a.sender != b.sender) return a.sender < b.sender;
    return a.receiver != b.receiver ? a.receiver < b.receiver : in_pair(a, b);
  });
  // Counted into place by stage and receiver, the order of senders and pairs stays.
  const auto slot = [target_ranks](const Operation& of) {
    return static_cast<std::size_t>(of.stage) * target_ranks + of.receiver;
  };
  std::vector<std::uint32_t> next(2 * std::size_t{target_ranks} + 1);
  for (const Operation& operation : operations_) ++next[slot(operation) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  receiver_ends_.assign(next.begin() + 1, next.end());
  received_.resize(operations_.size());
  for (std::uint32_t i = 0; i < operations_.size(); ++i) received_[next[slot(operations_[i])]++] = i;
}

std::span<const Operation> Plan::sends_of(Rank sender, Stage stage) const {
  const auto place = [](const Operation& of) { return std::pair(of.stage, of.sender); };
  const auto wanted = std::pair(stage, sender);
  const auto begin = std::ranges::lower_bound(operations_, wanted, std::less<>(), place);
  const auto end = std::ranges::upper_bound(operations_, wanted, std::less<>(), place);
  return {begin, end};
}

std::vector<Operation> Plan::receives_of(Rank receiver, Stage stage) const {
  const std::size_t ranks = receiver_ends_.size() / 2;
  WEIGHLOCK_CHECK(receiver < ranks, "a receiver of the plan");
  const std::size_t slot = static_cast<std::size_t>(stage) * ranks + receiver;
  std::vector<Operation> out;
  for (std::uint32_t i = slot == 0 ? 0 : receiver_ends_[slot - 1]; i < receiver_ends_[slot]; ++i)
    out.push_back(operations_[received_[i]]);
  return out;
}

namespace {

// All other sums are of parts of these bytes, and sums of two of them are made.
Status check_bytes(const Side& targets) {
  constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 62;
  std::uint64_t total = 0;
  for (ShardId shard = 0; shard < targets.shards().size(); ++shard) {
    const Dtype dtype = targets.tensors()[targets.shards()[shard].tensor].dtype;
    const std::uint64_t bytes = targets.logical_box(shard).elements() * (bits(dtype) / 8);  // add_tensor: it fits
    if (bytes < kBytesMax - total) {
      total += bytes;
      continue;
    }
    return Error{ErrorCode::too_large,
                 fmt::format("with {} all ranks together would receive 2^62 bytes or more: is a shape wrong?",
                             targets.describe(shard))};
  }
  return {};
}

}  // namespace

Result<Plan> make_plan(const Side& sources, const Side& targets, const PlanOptions& options) {
  if (Status ok = check_bytes(targets); !ok) return std::move(ok).error();
  if (Status ok = check_disjoint_storage(targets); !ok) return std::move(ok).error();
  Result<Demand> demand = find_demand(sources, targets, options);
  if (!demand) return std::move(demand).error();
  const Shares shares = share_loads(demand->groups, sources.ranks());
  Plan plan;
  assign_items(sources, targets, *demand, shares, plan);
  for (const FanOut& fan_out : demand->fan_outs)
    plan.add(sources, targets, Stage::fan_out, fan_out.from, fan_out.to, targets.logical_box(fan_out.to));
  plan.arrange(demand->place_of_tensor, targets.ranks());
  plan.lower_bound_bytes = shares.lower_bound_bytes;
  plan.capable_senders = shares.capable_senders;
  plan.unused_sources = demand->unused_sources;
  plan.digest = digest_of(sources, targets, plan);
  return plan;
}

}  // namespace weighlock::reshard
