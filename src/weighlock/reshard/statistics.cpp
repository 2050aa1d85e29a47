#include "weighlock/reshard/statistics.hpp"

#include <algorithm>

namespace weighlock::reshard {
namespace {

double ratio(double of, double to) {
  return to > 0 ? of / to : 1;
}

}  // namespace

Statistics statistics(const Side& sources, const Side& targets, const Plan& plan) {
  Statistics out;
  out.sent.resize(sources.ranks());
  out.received.resize(targets.ranks());
  out.fan_out_sent.resize(targets.ranks());
  out.operations = plan.operations().size();
  for (const Operation& operation : plan.operations()) {
    const std::uint64_t bytes = plan.elements(operation) * (bits(targets.tensors()[operation.tensor].dtype) / 8);
    if (operation.stage == Stage::fan_out) {
      out.fan_out_sent[operation.sender] += bytes;
      out.total_fanned_out += bytes;
      continue;
    }
    out.sent[operation.sender] += bytes;
    out.received[operation.receiver] += bytes;
    out.total_sent += bytes;
  }
  for (ShardId shard = 0; shard < targets.shards().size(); ++shard) {
    const Dtype dtype = targets.tensors()[targets.shards()[shard].tensor].dtype;
    out.needed += targets.logical_box(shard).elements() * (bits(dtype) / 8);
  }
  std::uint32_t sending = 0;
  for (const std::uint64_t bytes : out.sent) {
    out.busiest = std::max(out.busiest, bytes);
    sending += bytes > 0 ? 1 : 0;
  }
  for (const std::uint64_t bytes : out.received) out.busiest_receiver = std::max(out.busiest_receiver, bytes);
  out.idle = plan.capable_senders > sending ? plan.capable_senders - sending : 0;
  const auto total = static_cast<double>(out.total_sent), busiest = static_cast<double>(out.busiest);
  out.redundancy = ratio(total + static_cast<double>(out.total_fanned_out), static_cast<double>(out.needed));
  out.over_mean = ratio(busiest * plan.capable_senders, total);
  out.over_bound = ratio(busiest, static_cast<double>(plan.lower_bound_bytes));
  return out;
}

}  // namespace weighlock::reshard
