#include "weighlock/awex/sides.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "weighlock/awex/gather.hpp"
#include "weighlock/awex/parts.hpp"
#include "weighlock/core/words.hpp"
#include "weighlock/reshard/digest.hpp"

namespace weighlock::awex {
namespace {

std::optional<Dtype> dtype_of(std::string_view torch) {
  constexpr std::array<std::pair<std::string_view, Dtype>, 18> kTypes = {{
      {"torch.bfloat16", Dtype::bf16},
      {"torch.float16", Dtype::f16},
      {"torch.float32", Dtype::f32},
      {"torch.float64", Dtype::f64},
      {"torch.float8_e4m3fn", Dtype::f8_e4m3},
      {"torch.float8_e5m2", Dtype::f8_e5m2},
      {"torch.float8_e4m3fnuz", Dtype::f8_e4m3fnuz},
      {"torch.float8_e5m2fnuz", Dtype::f8_e5m2fnuz},
      {"torch.float8_e8m0fnu", Dtype::f8_e8m0},
      {"torch.bool", Dtype::boolean},
      {"torch.int8", Dtype::i8},
      {"torch.uint8", Dtype::u8},
      {"torch.int16", Dtype::i16},
      {"torch.uint16", Dtype::u16},
      {"torch.int32", Dtype::i32},
      {"torch.uint32", Dtype::u32},
      {"torch.int64", Dtype::i64},
      {"torch.uint64", Dtype::u64},
  }};
  for (const auto& [name, dtype] : kTypes)
    if (name == torch) return dtype;
  return std::nullopt;
}

std::span<const std::uint64_t> numbers(const Extents& extents) {
  return {extents.begin(), extents.size()};
}

// The tensor with the parts of `repeats` engines, whose ranks follow each other.
Status add(reshard::Side& side, std::string_view name, Dtype dtype, const Extents& shape, std::span<const Held> held,
           std::uint32_t repeats, std::uint32_t ranks) {
  const Result<reshard::TensorId> tensor =
      side.add_tensor({std::string(name), dtype, std::vector<std::uint64_t>(shape.begin(), shape.end())});
  if (!tensor) return tensor.error();
  for (std::uint32_t repeat = 0; repeat < repeats; ++repeat) {
    for (const Held& one : held) {
      if (elements(one.box.shape) == 0) continue;
      const Status added =
          side.add_shard(*tensor, one.rank + repeat * ranks, numbers(one.box.offset), numbers(one.box.shape));
      if (!added) return added;
    }
  }
  return {};
}

// Where each rank's part of each tensor is among a side's shards. AWEX workers hold one part of a tensor each.
class Places {
 public:
  explicit Places(const reshard::Side& side) : ranks_(side.ranks()) {
    at_.resize(side.tensors().size() * ranks_, reshard::kNone);
    for (reshard::ShardId i = 0; i < side.shards().size(); ++i) at_[place(side.shards()[i])] = i;
  }
  reshard::ShardId find(reshard::TensorId tensor, reshard::Rank rank) const {
    return rank < ranks_ ? at_[std::size_t{tensor} * ranks_ + rank] : reshard::kNone;
  }

 private:
  std::size_t place(const reshard::Shard& shard) const { return std::size_t{shard.tensor} * ranks_ + shard.rank; }

  std::size_t ranks_;
  std::vector<reshard::ShardId> at_;
};

// Of each tensor, its place in the order of names.
std::vector<std::uint32_t> places_by_name(const reshard::Side& side) {
  std::vector<std::uint32_t> order(side.tensors().size()), place(order.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return side.tensors()[a].name < side.tensors()[b].name; });
  for (std::uint32_t i = 0; i < order.size(); ++i) place[order[i]] = i;
  return place;
}

}  // namespace

Result<Sides> sides_of(const std::vector<Report>& train, const std::vector<Report>& infer, const Topology& topology) {
  if (Result<Repaired> checked = repair(train, infer, topology); !checked) return std::move(checked).error();
  Names names;
  Problems none;  // repair() has looked
  Table sources = gather(train, Side::train, names, none);
  Table targets = gather({infer.data(), 1}, Side::infer, names, none);
  sources.rows.resize(names.size());
  Sides sides{reshard::Side("train", topology.train_ranks), reshard::Side("infer", topology.infer_ranks())};
  for (std::uint32_t id = 0; id < names.size(); ++id) {
    const Row& row = sources.rows[id];
    if (!row.present || !targets.rows[id].present) continue;
    const std::optional<Dtype> dtype = dtype_of(row.dtype);
    if (!dtype)
      return Error{ErrorCode::not_supported, fmt::format("tensor '{}' has the dtype {}, whose size isn't known here",
                                                         printable(names[id]), printable(row.dtype))};
    settle(sources.of(row), row.shape, sources);
    settle(targets.of(targets.rows[id]), row.shape, targets);
    Status added = add(sides.train, names[id], *dtype, row.shape, sources.of(row), 1, 0);
    if (added)
      added = add(sides.infer, names[id], *dtype, row.shape, targets.of(targets.rows[id]), topology.engines,
                  topology.engine_ranks);
    if (!added) return added.error();
  }
  return sides;
}

Result<reshard::Plan> as_reshard(const Repaired& repaired, const Plan& plan, const Sides& sides) {
  const Places sources(sides.train), targets(sides.infer);
  reshard::Plan made;
  for (const Operation& op : plan.operations) {
    const std::string& name = repaired.train.tensors[op.tensor].name;
    const auto source = sides.train.find(name), target = sides.infer.find(name);
    const reshard::ShardId from =
        source ? sources.find(*source, op.send_rank - repaired.topology.infer_ranks()) : reshard::kNone;
    const reshard::ShardId to = target ? targets.find(*target, op.recv_rank) : reshard::kNone;
    if (from == reshard::kNone || to == reshard::kNone)
      return Error{ErrorCode::internal, fmt::format("the AWEX plan sends tensor '{}' from rank {} to rank {} of the "
                                                    "transfer, and one of them has no part of it",
                                                    printable(name), op.send_rank, op.recv_rank)};
    made.add(sides.train, sides.infer, reshard::Stage::transfer, from, to,
             reshard::box_at(numbers(op.part.offset), numbers(op.part.shape)));
  }
  made.arrange(places_by_name(sides.infer), sides.infer.ranks());
  made.digest = reshard::digest_of(sides.train, sides.infer, made);
  return made;
}

}  // namespace weighlock::awex
