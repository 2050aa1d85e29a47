#include "weighlock/awex/colocated.hpp"

#include <fmt/format.h>

#include <bit>
#include <set>
#include <string>

#include "weighlock/awex/predict.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::awex {

bool ranks_meet(std::uint32_t one, std::uint32_t other, std::uint32_t ranks) {
  if (one == other) return true;
  for (std::uint32_t part = ranks; part >= 2; part /= 2) {
    const bool one_first = one % part < part / 2, other_first = other % part < part / 2;
    if (one / part == other / part && one_first != other_first) return true;
  }
  return false;
}

Reaches reach_of(const Topology& topology) {
  const std::uint32_t ranks = topology.infer_ranks();
  if (!topology.colocated || topology.train_ranks != ranks || std::has_single_bit(ranks)) return nullptr;
  return [ranks, engine_ranks = topology.engine_ranks](std::uint32_t train, std::uint32_t engine, std::uint32_t rank) {
    return ranks_meet(train, engine * engine_ranks + rank, ranks);
  };
}

Status check_reach(const Repaired& repaired) {
  const Topology& topology = repaired.topology;
  if (!reach_of(topology)) return {};
  const std::uint32_t ranks = topology.infer_ranks();
  std::set<std::uint32_t> lost;  // tensors
  std::string first;
  each_operation(repaired, [&](const Operation& op) {
    const std::uint32_t from = op.send_rank - ranks;
    if (ranks_meet(from, op.recv_rank, ranks)) return;
    if (lost.empty())
      first = fmt::format("{} of tensor '{}', from train rank {} to inference rank {}", text(op.part),
                          printable(repaired.train.tensors[op.tensor].name), from, op.recv_rank);
    lost.insert(op.tensor);
  });
  if (lost.empty()) return {};
  return Error{
      ErrorCode::invalid_argument,
      fmt::format("parts of {} tensor{} would never be sent, and no worker would notice: the first is {}. AReaL's "
                  "colocated workers exchange weights by halving the group's ranks again and again, and of {} ranks, "
                  "which is no power of two, these two are never in different halves: use a power of two of ranks, "
                  "trainers with whole copies, or mode \"disk\"",
                  lost.size(), lost.size() == 1 ? "" : "s", first, ranks),
      nullptr};
}

}  // namespace weighlock::awex
