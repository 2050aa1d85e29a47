#include "weighlock/awex/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "weighlock/awex/tiling.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::awex {
namespace {

std::span<const Shard> shards_of(const Metadata& side, const Replica& replica) {
  return {side.shards.data() + replica.first_shard, replica.shards};
}

Extents minus(const Extents& a, const Extents& b) {
  Extents difference;
  for (std::size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
  return difference;
}

// Of each tensor of the train list, its place in the infer list, which has tied aliases besides.
std::vector<std::uint32_t> infer_places(const Repaired& repaired) {
  std::vector<std::uint32_t> places;
  std::uint32_t at = 0;
  for (const Tensor& tensor : repaired.train.tensors) {
    while (repaired.infer.tensors[at].name != tensor.name) ++at;
    places.push_back(at);
  }
  return places;
}

// What one receiving replica of one engine reads from one sending replica: all pairs of parts that meet.
void add_pairs(const Repaired& repaired, std::uint32_t tensor, std::uint32_t engine, const Replica& receiving,
               const Replica& sending, Plan& plan) {
  const Topology& topology = repaired.topology;
  for (std::uint32_t a = 0; a < receiving.shards; ++a) {
    const Shard& receiver = repaired.infer.shards[receiving.first_shard + a];
    for (std::uint32_t b = 0; b < sending.shards; ++b) {
      const Shard& sender = repaired.train.shards[sending.first_shard + b];
      if (overlap_elements(receiver.box, sender.box) == 0) continue;
      plan.operations.push_back({topology.transfer_rank_of_train(sender.rank),
                                 receiver.rank + engine * topology.engine_ranks, tensor, sending.first_shard + b,
                                 receiving.first_shard + a, overlap(receiver.box, sender.box)});
    }
  }
}

bool before(const Repaired& repaired, const Operation& a, const Operation& b) {
  if (a.tensor != b.tensor) return a.tensor < b.tensor;  // tensors lie in the order of names
  const Extents send_a = send_offset(repaired, a), send_b = send_offset(repaired, b);
  if (!(send_a == send_b)) return send_a < send_b;
  return recv_offset(repaired, a) < recv_offset(repaired, b);
}

}  // namespace

Extents send_offset(const Repaired& repaired, const Operation& operation) {
  return minus(operation.part.offset, repaired.train.shards[operation.send_shard].box.offset);
}

Extents recv_offset(const Repaired& repaired, const Operation& operation) {
  return minus(operation.part.offset, repaired.infer.shards[operation.recv_shard].box.offset);
}

Plan predict(const Repaired& repaired) {
  Plan plan;
  const std::vector<std::uint32_t> places = infer_places(repaired);
  for (std::uint32_t t = 0; t < repaired.train.tensors.size(); ++t) {
    const Tensor& train = repaired.train.tensors[t];
    const Tensor& infer = repaired.infer.tensors[places[t]];
    std::uint32_t turn = 0;
    for (std::uint32_t engine = 0; engine < repaired.topology.engines; ++engine)
      for (std::uint32_t r = 0; r < infer.replicas; ++r, ++turn)
        add_pairs(repaired, t, engine, repaired.infer.replicas[infer.first_replica + r],
                  repaired.train.replicas[train.first_replica + turn % train.replicas], plan);
  }
  return plan;
}

std::vector<const Operation*> operations_of(const Repaired& repaired, const Plan& plan, std::uint32_t transfer_rank) {
  const bool sends = transfer_rank >= repaired.topology.infer_ranks();
  const auto peer = [sends](const Operation& op) { return sends ? op.recv_rank : op.send_rank; };
  std::vector<const Operation*> own;
  for (const Operation& operation : plan.operations)
    if ((sends ? operation.send_rank : operation.recv_rank) == transfer_rank) own.push_back(&operation);
  std::stable_sort(own.begin(), own.end(), [&](const Operation* a, const Operation* b) {
    return peer(*a) != peer(*b) ? peer(*a) < peer(*b) : before(repaired, *a, *b);
  });
  return own;
}

Status prove(const Repaired& repaired, const Plan& plan) {
  // The operations of one receiving part in one engine lie together once they are sorted by both.
  std::vector<const Operation*> order;
  order.reserve(plan.operations.size());
  for (const Operation& operation : plan.operations) order.push_back(&operation);
  const auto key = [](const Operation* op) { return std::pair(op->recv_shard, op->recv_rank); };
  std::sort(order.begin(), order.end(), [&](const Operation* a, const Operation* b) { return key(a) < key(b); });
  const Topology& topology = repaired.topology;
  const std::vector<std::uint32_t> places = infer_places(repaired);
  std::size_t at = 0;
  for (std::uint32_t t = 0; t < repaired.train.tensors.size(); ++t) {
    const Tensor& tensor = repaired.infer.tensors[places[t]];
    const Replica& first = repaired.infer.replicas[tensor.first_replica];
    const Replica& last = repaired.infer.replicas[tensor.first_replica + tensor.replicas - 1];
    for (std::uint32_t s = first.first_shard; s < last.first_shard + last.shards; ++s) {
      const Shard& receiver = repaired.infer.shards[s];
      for (std::uint32_t engine = 0; engine < topology.engines; ++engine) {
        const std::uint32_t rank = receiver.rank + engine * topology.engine_ranks;
        std::vector<Box> parts;
        std::string problem;
        for (; at < order.size() && key(order[at]) == std::pair(s, rank); ++at) {
          const Operation& op = *order[at];
          if (op.tensor != t) problem = "an operation of another tensor";
          if (!inside(op.part, repaired.train.shards[op.send_shard].box))
            problem = text(op.part) + " isn't its sender's";
          parts.push_back(op.part);
        }
        if (problem.empty()) problem = tiling_problem(receiver.box, std::move(parts));
        if (!problem.empty())
          return Error{ErrorCode::internal,
                       fmt::format("the AWEX plan of tensor '{}' for inference rank {} is wrong: {}",
                                   printable(tensor.name), rank, problem)};
      }
    }
  }
  if (at == order.size()) return {};
  return Error{ErrorCode::internal, fmt::format("the AWEX plan has {} operations for nobody", order.size() - at)};
}

Statistics statistics(const Repaired& repaired, const Plan& plan) {
  Statistics result;
  result.sent.resize(repaired.topology.train_ranks);
  const std::vector<std::uint32_t> places = infer_places(repaired);
  for (std::uint32_t t = 0; t < repaired.train.tensors.size(); ++t) {
    const Tensor& tensor = repaired.infer.tensors[places[t]];
    for (std::uint32_t r = 0; r < tensor.replicas; ++r)
      for (const Shard& shard : shards_of(repaired.infer, repaired.infer.replicas[tensor.first_replica + r]))
        result.needed += elements(shard.box.shape) * tensor.element_bytes * repaired.topology.engines;
  }
  for (const Operation& operation : plan.operations) {
    const std::uint64_t bytes = elements(operation.part.shape) * repaired.train.tensors[operation.tensor].element_bytes;
    result.sent[operation.send_rank - repaired.topology.infer_ranks()] += bytes;
    result.total_sent += bytes;
  }
  for (const std::uint64_t bytes : result.sent) {
    result.busiest = std::max(result.busiest, bytes);
    if (bytes == 0) ++result.idle;
  }
  result.lower_bound = repaired.lower_bound;
  return result;
}

}  // namespace weighlock::awex
