// The metadata that makes unmodified AWEX workers plan right, from what they reported.
//
// Workers plan by themselves (section 3 of the AWEX contract): replica j of a tensor's receivers, counted over all
// engines, reads replica j % n of its senders, for every tensor from the front. So what is listed, and in which order,
// decides who sends. `repair` lists
//   * train: each full set of parts as a replica of its own, with true offsets (running sums of the parts' sizes in the
//     order of their places, parts.hpp), ordered by the load that each sender has got so far, most constrained and
//     largest tensors first; no more replicas than are read;
//   * infer: the parts that engine 0's ranks hold, one replica for each set of copies (workers reuse engine 0's entry
//   for
//     the others); a tensor that is large beside what a sender sends is cut into one replica a rank, so that its load
//     spreads. Of a colocated group that has ranks which never meet (colocated.hpp) each reader is given senders that
//     reach it, where there are any.
// What can't be right is refused, with the tensor, the ranks and a remedy: names, shapes or dtypes that differ between
// the sides (an inference-only lm_head.weight beside a model.embed_tokens.weight of its shape and dtype, or the
// reverse, is the one exception), parts that leave a hole or overlap or could lie in two orders, tensors without
// dimensions, a name that one rank or two pipeline stages report twice, ranks that are missing or doubled or out of
// order, world sizes that disagree, engines that aren't alike.
//
// Pure; any thread; no threads inside. A DeepSeek-V3 on 256 -> 128 ranks takes about half a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weighlock/awex/report.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::awex {

// From the workers' parallelism reports and the number of URLs.
struct Topology {
  std::uint32_t train_ranks = 0;   // one URL each, in the order of ranks
  std::uint32_t engine_ranks = 0;  // of one engine
  std::uint32_t engines = 0;       // one URL each
  bool colocated = false;          // training rank i and inference rank i share a device (colocated.hpp)

  // Beyond all that runs, and small enough that nothing here overflows.
  static constexpr std::uint64_t kWorldMax = 1'000'000;
  std::uint32_t infer_ranks() const { return engine_ranks * engines; }
  std::uint32_t world() const { return train_ranks + infer_ranks(); }
  // Ranks in the transfer's group: inference first.
  std::uint32_t transfer_rank_of_train(std::uint32_t rank) const { return infer_ranks() + rank; }
};

// One rank's part of one tensor.
struct Shard {
  Box box;
  std::uint32_t rank = 0;   // in its own world: training, or one engine
  std::uint32_t frame = 0;  // into Metadata::shard_frames
};

struct Replica {
  std::uint32_t first_shard = 0;
  std::uint32_t shards = 0;
};

struct Tensor {
  std::string name;
  std::string dtype;  // "torch.bfloat16"
  std::uint32_t element_bytes = 0;
  Extents shape;
  std::uint32_t frame = 0;
  std::uint32_t replica_frame = 0;
  std::uint32_t first_replica = 0;
  std::uint32_t replicas = 0;
};

// One side's list, in the order of names (of their bytes, which is Python's order of strings).
struct Metadata {
  std::vector<Tensor> tensors;
  std::vector<Replica> replicas;
  std::vector<Shard> shards;
  std::vector<ShardFrame> shard_frames;
  std::vector<Frame> tensor_frames;
  std::vector<Frame> replica_frames;
};

struct Repaired {
  Topology topology;
  Metadata train;
  Metadata infer;                       // engine 0
  std::vector<std::string> infer_only;  // tied aliases: listed, not transferred
  std::size_t moved = 0;                // shards whose reported offset was wrong
  std::uint64_t lower_bound = 0;        // bytes: no choice of senders brings the busiest below it (balance.hpp)
};

// `train[i]` and `infer[i]` are the reports of URL i. Errors: invalid_argument for what the workers' layouts or the
// order of URLs make wrong, with at most kNamedMax tensors named.
Result<Repaired> repair(const std::vector<Report>& train, const std::vector<Report>& infer, const Topology& topology);

}  // namespace weighlock::awex
