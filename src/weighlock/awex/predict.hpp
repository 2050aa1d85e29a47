// What unmodified AWEX workers will do with the lists that we serve: each rank's operations, in its order.
//
// The rules are those of `awex` 0.9.0 (transfer/transfer_plan.py); a test compares both, op for op (tests/awex).
// Between two ranks nothing but the order says which bytes belong to which tensor, so this order is the protocol.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "weighlock/awex/repair.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::awex {

struct Operation {
  std::uint32_t send_rank = 0;  // in the transfer's group
  std::uint32_t recv_rank = 0;
  std::uint32_t tensor = 0;      // into Repaired::train.tensors
  std::uint32_t send_shard = 0;  // into Repaired::train.shards
  std::uint32_t recv_shard = 0;  // into Repaired::infer.shards
  Box part;                      // of the whole tensor
};

// Where the part begins in the sender's and in the receiver's own tensor.
Extents send_offset(const Repaired& repaired, const Operation& operation);
Extents recv_offset(const Repaired& repaired, const Operation& operation);

struct Plan {
  std::vector<Operation>
      operations;  // by tensor, receiver's replica, receiving part, sending part: as planners make them
};
Plan predict(const Repaired& repaired);
// Those of `predict`, one after the other; needs memory for one tensor's.
void each_operation(const Repaired& repaired, const std::function<void(const Operation&)>& look);

// One rank's operations in its order: by peer, then tensor, then send_offset, then recv_offset. Pointers into `plan`.
std::vector<const Operation*> operations_of(const Repaired& repaired, const Plan& plan, std::uint32_t transfer_rank);

// Every element of every receiver is written exactly once, by the same element of a sender. Error: internal, naming the
// tensor, the rank and the first hole or overlap, or the tensor that one list lacks.
Status prove(const Repaired& repaired, const Plan& plan);

// `prove` of what `predict` says, a tensor at a time: needs memory for one tensor's operations, and looks at
// `pairs_of_parts` pairs of a sender's and a receiver's part. Engines that read as others do aren't looked at again.
Status prove(const Repaired& repaired);
std::uint64_t pairs_of_parts(const Repaired& repaired);

struct Statistics {
  std::vector<std::uint64_t> sent;  // bytes, by training rank
  std::uint64_t needed = 0;         // bytes that all receivers hold of the tensors that are sent
  std::uint64_t total_sent = 0;
  std::uint64_t busiest = 0;
  // No assignment of senders can bring the busiest below this: the mean over all who hold anything, or over the holders
  // of the same parts, or a part that only one rank has.
  std::uint64_t lower_bound = 0;
  std::uint32_t idle = 0;  // training ranks that send nothing
};
Statistics statistics(const Repaired& repaired, const Plan& plan);

}  // namespace weighlock::awex
