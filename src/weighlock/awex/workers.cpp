#include "weighlock/awex/workers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <set>

namespace weighlock::awex {
namespace {

constexpr std::size_t kRanksShown = 8;

std::set<std::uint32_t> ranks_in(const Report& report) {
  std::set<std::uint32_t> ranks;
  for (const ShardFrame& frame : report.shard_frames) ranks.insert(static_cast<std::uint32_t>(frame.global_rank));
  return ranks;
}

std::string shown(const std::set<std::uint32_t>& ranks) {
  std::vector<std::uint32_t> first;
  for (const std::uint32_t rank : ranks)
    if (first.size() < kRanksShown) first.push_back(rank);
  return fmt::format("{}{}", fmt::join(first, ", "), ranks.size() > first.size() ? ", ..." : "");
}

void check_world(const Report& report, std::uint32_t world, Problems& problems) {
  for (const ShardFrame& frame : report.shard_frames) {
    if (frame.world_size == -1 || frame.world_size == world) continue;
    problems.add(fmt::format(
        "{} reports a world of {} ranks in its metadata, and the {} has {}: connect the workers of "
        "one job, and all of them",
        text(report.origin), frame.world_size, report.origin.side == Side::train ? "training job" : "engine", world));
    return;
  }
}

}  // namespace

void check_train_workers(const std::vector<Report>& train, const Topology& topology, Problems& problems) {
  if (train.size() != topology.train_ranks)
    problems.add(
        fmt::format("the trainers report a world of {} ranks, and {} URLs are given: one URL for each rank is "
                    "needed, in the order of ranks",
                    topology.train_ranks, train.size()));
  std::vector<const Report*> of_rank(topology.train_ranks);
  for (std::size_t i = 0; i < train.size(); ++i) {
    check_world(train[i], topology.train_ranks, problems);
    for (const std::uint32_t rank : ranks_in(train[i])) {
      if (rank >= topology.train_ranks) {
        problems.add(fmt::format("{} is rank {} of a world of {}", text(train[i].origin), rank, topology.train_ranks));
      } else if (of_rank[rank] && of_rank[rank] != &train[i]) {
        problems.add(fmt::format("train rank {} is reported by {} and by {}: give each rank's URL once", rank,
                                 text(of_rank[rank]->origin), text(train[i].origin)));
      } else {
        of_rank[rank] = &train[i];
        if (rank != i)
          problems.add(
              fmt::format("{} is rank {}: list train_worker_urls in the order of ranks", text(train[i].origin), rank));
      }
    }
  }
}

void check_engines(const std::vector<Report>& infer, const Topology& topology, Problems& problems) {
  if (infer.size() != topology.engines)
    problems.add(fmt::format("{} engines are to be updated, and {} reported", topology.engines, infer.size()));
  for (const Report& report : infer) {
    check_world(report, topology.engine_ranks, problems);
    const std::set<std::uint32_t> ranks = ranks_in(report);
    std::set<std::uint32_t> missing;
    for (std::uint32_t rank = 0; rank < topology.engine_ranks; ++rank)
      if (!ranks.contains(rank)) missing.insert(rank);
    if (!missing.empty())
      problems.add(fmt::format(
          "{} reports tensors of {} of its {} ranks, none of rank {}: it must gather the metadata of "
          "all its ranks",
          text(report.origin), topology.engine_ranks - missing.size(), topology.engine_ranks, shown(missing)));
    if (!ranks.empty() && *ranks.rbegin() >= topology.engine_ranks)
      problems.add(fmt::format("{} reports tensors of rank {}, and an engine has {} ranks, from 0", text(report.origin),
                               *ranks.rbegin(), topology.engine_ranks));
  }
}

}  // namespace weighlock::awex
