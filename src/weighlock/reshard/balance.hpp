// Who of several holders sends what: the busiest sender is to send as little as it can.
//
// Loads come in groups: all that the same set of senders can send. Within a group anything can be cut anywhere, so what
// is to be found is how many bytes of each group each sender takes. The least possible load of the busiest sender is
//
//   max over sets A of groups:  bytes(A) / |senders that hold a group of A|
//
// exactly (max-flow min-cut: a set that is too heavy for its senders is what stops a flow). It is found by raising the
// senders' limits only where such a set shows up, so that senders whom no heavy set needs stay at the mean.
//
// Pure; any thread. Deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weighlock::reshard {

struct LoadGroup {
  std::uint64_t bytes = 0;
  std::vector<std::uint32_t> senders;  // ascending, at least one
};

struct Shares {
  // For each group, in its order of senders: how many bytes that sender takes. They sum up to the group's.
  std::vector<std::vector<std::uint64_t>> bytes;
  std::uint64_t lower_bound_bytes = 0;  // rounded up to a byte
  std::uint32_t capable_senders = 0;    // in any group
};

// `senders` is one more than the largest number of a sender.
Shares share_loads(std::span<const LoadGroup> groups, std::uint32_t senders);

}  // namespace weighlock::reshard
