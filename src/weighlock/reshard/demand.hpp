// What has to be sent, before anybody knows by whom: the first half of planning.
//
// For each target part, the parts of it that one set of holders can send. Checks all that only both sides together
// show.
//
// Pure; any thread. Internal to the planner.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/balance.hpp"
#include "weighlock/reshard/layout.hpp"
#include "weighlock/reshard/plan.hpp"

namespace weighlock::reshard {

// A part of a target shard that each sender of its group holds.
struct Item {
  std::uint64_t bytes = 0;
  ShardId target = 0;
  std::uint32_t holders = 0;  // into Demand::holders: a shard for each sender of the group, in its order
  std::uint32_t group = 0;
  std::uint32_t box = 0;  // into Demand::boxes
};

struct FanOut {
  ShardId from = 0;  // both of the target side; the box is the whole of either
  ShardId to = 0;
};

struct Demand {
  std::vector<Item> items;
  std::vector<LoadGroup> groups;
  std::vector<ShardId> holders;
  std::vector<std::uint64_t> boxes;  // begin and end of each dimension
  std::vector<FanOut> fan_outs;
  std::vector<std::uint32_t> place_of_tensor;  // of each target tensor, in the order of names
  std::uint32_t unused_sources = 0;

  Box box(const Item& item, std::uint32_t dimensions) const;
};

Result<Demand> find_demand(const Side& sources, const Side& targets, const PlanOptions& options);

}  // namespace weighlock::reshard
