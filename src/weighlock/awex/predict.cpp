#include "weighlock/awex/predict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "weighlock/awex/shared_names.hpp"
#include "weighlock/awex/tiling.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::awex {
namespace {

std::span<const Shard> shards_of(const Metadata& side, const Replica& replica) {
  return {side.shards.data() + replica.first_shard, replica.shards};
}

std::span<const Replica> replicas_of(const Metadata& side, const Tensor& tensor) {
  return {side.replicas.data() + tensor.first_replica, tensor.replicas};
}

Extents minus(const Extents& a, const Extents& b) {
  Extents difference;
  for (std::size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
  return difference;
}

// Of each tensor of the train list, its place in the infer list, which has tied aliases besides; ends before the first
// that isn't there.
std::vector<std::uint32_t> infer_places(const Repaired& repaired) {
  const std::vector<Tensor>& infer = repaired.infer.tensors;
  std::vector<std::uint32_t> places;
  std::uint32_t at = 0;
  for (const Tensor& tensor : repaired.train.tensors) {
    while (at < infer.size() && infer[at].name != tensor.name) ++at;
    if (at == infer.size()) break;
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

// Replicas take the sending ones in turn, counted over all engines.
void add_tensor(const Repaired& repaired, std::uint32_t t, const Tensor& infer, std::uint32_t engines, Plan& plan) {
  const Tensor& train = repaired.train.tensors[t];
  std::uint32_t turn = 0;
  for (std::uint32_t engine = 0; engine < engines; ++engine)
    for (std::uint32_t r = 0; r < infer.replicas; ++r, ++turn)
      add_pairs(repaired, t, engine, repaired.infer.replicas[infer.first_replica + r],
                repaired.train.replicas[train.first_replica + turn % train.replicas], plan);
}

// Engines after these read the same from the same replicas as one of these: the turns begin anew.
std::uint32_t engines_that_differ(const Repaired& repaired, const Tensor& train, const Tensor& infer) {
  return std::min(repaired.topology.engines, train.replicas / std::gcd(train.replicas, infer.replicas));
}

bool before(const Repaired& repaired, const Operation& a, const Operation& b) {
  if (a.tensor != b.tensor) return a.tensor < b.tensor;  // tensors lie in the order of names
  const Extents send_a = send_offset(repaired, a), send_b = send_offset(repaired, b);
  if (!(send_a == send_b)) return send_a < send_b;
  return recv_offset(repaired, a) < recv_offset(repaired, b);
}

using Order = std::vector<const Operation*>;

std::pair<std::uint32_t, std::uint32_t> receiving_part(const Operation* op) {
  return {op->recv_shard, op->recv_rank};
}

// The operations of one receiving part in one engine lie together.
Order by_receiving_part(const Plan& plan) {
  Order order;
  order.reserve(plan.operations.size());
  for (const Operation& operation : plan.operations) order.push_back(&operation);
  std::sort(order.begin(), order.end(),
            [](const Operation* a, const Operation* b) { return receiving_part(a) < receiving_part(b); });
  return order;
}

Error wrong(std::string_view tensor, std::string_view what) {
  return Error{ErrorCode::internal, fmt::format("the AWEX plan of tensor '{}' {}", printable(tensor), what), nullptr};
}

// Of the tensor's operations, which begin at `at`; moves it behind them.
Status prove_tensor(const Repaired& repaired, std::uint32_t t, const Tensor& infer, std::uint32_t engines,
                    const Order& order, std::size_t& at) {
  const Replica& first = repaired.infer.replicas[infer.first_replica];
  const Replica& last = repaired.infer.replicas[infer.first_replica + infer.replicas - 1];
  for (std::uint32_t s = first.first_shard; s < last.first_shard + last.shards; ++s) {
    const Shard& receiver = repaired.infer.shards[s];
    for (std::uint32_t engine = 0; engine < engines; ++engine) {
      const std::uint32_t rank = receiver.rank + engine * repaired.topology.engine_ranks;
      std::vector<Box> parts;
      std::string problem;
      for (; at < order.size() && receiving_part(order[at]) == std::pair(s, rank); ++at) {
        const Operation& op = *order[at];
        if (op.tensor != t) problem = "an operation of another tensor";
        if (!inside(op.part, repaired.train.shards[op.send_shard].box)) problem = text(op.part) + " isn't its sender's";
        parts.push_back(op.part);
      }
      if (problem.empty()) problem = tiling_problem(receiver.box, std::move(parts));
      if (!problem.empty()) return wrong(infer.name, fmt::format("for inference rank {} is wrong: {}", rank, problem));
    }
  }
  return {};
}

Status all_used(const Order& order, std::size_t at) {
  if (at == order.size()) return {};
  return Error{ErrorCode::internal, fmt::format("the AWEX plan has {} operations for nobody", order.size() - at),
               nullptr};
}

std::span<const Shard> all_shards_of(const Metadata& side, const Tensor& tensor) {
  const std::span<const Replica> replicas = replicas_of(side, tensor);
  if (replicas.empty()) return {};
  const std::uint32_t first = replicas.front().first_shard;
  return {side.shards.data() + first, replicas.back().first_shard + replicas.back().shards - first};
}

// Nobody sends the alias, so each rank that has a part of it must get one as large of what it is tied to.
Status prove_alias(const Repaired& repaired, const Tensor& alias, const std::vector<std::uint32_t>& places) {
  for (const std::uint32_t place : places) {
    const Tensor& sent = repaired.infer.tensors[place];
    if (sent.name != tied_to(alias.name)) continue;
    const std::span<const Shard> written = all_shards_of(repaired.infer, sent);
    for (const Shard& shard : all_shards_of(repaired.infer, alias)) {
      if (elements(shard.box.shape) == 0) continue;
      const bool is_written = std::any_of(written.begin(), written.end(), [&](const Shard& other) {
        return other.rank == shard.rank && other.box.shape == shard.box.shape;
      });
      if (!is_written)
        return wrong(alias.name, fmt::format("for inference rank {} is missing, which has no part of '{}'", shard.rank,
                                             printable(sent.name)));
    }
    return {};
  }
  return wrong(alias.name, "has no sender in the training list");
}

// Both lists have the same tensors, each with replicas, but for the aliases that nobody sends.
Status comparable(const Repaired& repaired, const std::vector<std::uint32_t>& places) {
  const std::vector<Tensor>& train = repaired.train.tensors;
  const std::vector<Tensor>& infer = repaired.infer.tensors;
  if (places.size() != train.size()) return wrong(train[places.size()].name, "has no receiver in the inference list");
  for (std::size_t t = 0; t < places.size(); ++t) {
    const Tensor& other = infer[places[t]];
    if (train[t].replicas == 0 || other.replicas == 0) return wrong(other.name, "has a side without replicas");
    if (train[t].dtype != other.dtype) return wrong(other.name, "has two dtypes");
  }
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < infer.size(); ++i) {
    if (next < places.size() && places[next] == i) {
      ++next;
      continue;
    }
    const auto& alone = repaired.infer_only;
    if (std::find(alone.begin(), alone.end(), infer[i].name) == alone.end())
      return wrong(infer[i].name, "has no sender in the training list");
    if (Status written = prove_alias(repaired, infer[i], places); !written) return written;
  }
  return {};
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
  for (std::uint32_t t = 0; t < places.size(); ++t)
    add_tensor(repaired, t, repaired.infer.tensors[places[t]], repaired.topology.engines, plan);
  return plan;
}

void each_operation(const Repaired& repaired, const std::function<void(const Operation&)>& look) {
  const std::vector<std::uint32_t> places = infer_places(repaired);
  Plan plan;
  for (std::uint32_t t = 0; t < places.size(); ++t) {
    plan.operations.clear();
    add_tensor(repaired, t, repaired.infer.tensors[places[t]], repaired.topology.engines, plan);
    for (const Operation& operation : plan.operations) look(operation);
  }
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
  const std::vector<std::uint32_t> places = infer_places(repaired);
  if (Status listed = comparable(repaired, places); !listed) return listed;
  const Order order = by_receiving_part(plan);
  std::size_t at = 0;
  for (std::uint32_t t = 0; t < places.size(); ++t) {
    const Tensor& infer = repaired.infer.tensors[places[t]];
    if (Status proven = prove_tensor(repaired, t, infer, repaired.topology.engines, order, at); !proven) return proven;
  }
  return all_used(order, at);
}

std::uint64_t pairs_of_parts(const Repaired& repaired) {
  std::uint64_t pairs = 0;
  const std::vector<std::uint32_t> places = infer_places(repaired);
  for (std::uint32_t t = 0; t < places.size(); ++t) {
    const Tensor& train = repaired.train.tensors[t];
    const Tensor& infer = repaired.infer.tensors[places[t]];
    if (train.replicas == 0 || infer.replicas == 0) continue;
    std::uint64_t senders = 0, receivers = 0;  // of any one replica, at most
    for (const Replica& one : replicas_of(repaired.train, train))
      senders = std::max<std::uint64_t>(senders, one.shards);
    for (const Replica& one : replicas_of(repaired.infer, infer)) receivers += one.shards;
    pairs += senders * receivers * engines_that_differ(repaired, train, infer);
  }
  return pairs;
}

Status prove(const Repaired& repaired) {
  const std::vector<std::uint32_t> places = infer_places(repaired);
  if (Status listed = comparable(repaired, places); !listed) return listed;
  Plan plan;
  for (std::uint32_t t = 0; t < places.size(); ++t) {
    const Tensor& infer = repaired.infer.tensors[places[t]];
    const std::uint32_t engines = engines_that_differ(repaired, repaired.train.tensors[t], infer);
    plan.operations.clear();
    add_tensor(repaired, t, infer, engines, plan);
    const Order order = by_receiving_part(plan);
    std::size_t at = 0;
    if (Status proven = prove_tensor(repaired, t, infer, engines, order, at); !proven) return proven;
    if (Status used = all_used(order, at); !used) return used;
  }
  return {};
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
