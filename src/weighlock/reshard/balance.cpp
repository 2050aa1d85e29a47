#include "weighlock/reshard/balance.hpp"

#include <algorithm>
#include <limits>

namespace weighlock::reshard {
namespace {

// Groups on the left, senders on the right, an edge wherever a sender holds a group. Flow is pushed by levels (Dinic);
// limits of senders only grow, so a flow once found stays one.
class Distribution {
 public:
  Distribution(std::span<const LoadGroup> groups, std::uint32_t senders)
      : groups_(groups), left_(groups.size()), held_by_(senders), limit_(senders), load_(senders) {
    flow_.reserve(groups.size());
    for (std::size_t g = 0; g < groups.size(); ++g) {
      left_[g] = groups[g].bytes;
      flow_.emplace_back(groups[g].senders.size());
      for (std::size_t e = 0; e < groups[g].senders.size(); ++e)
        held_by_[groups[g].senders[e]].push_back({static_cast<std::uint32_t>(g), static_cast<std::uint32_t>(e)});
    }
  }

  std::uint32_t capable() const {
    return static_cast<std::uint32_t>(
        std::count_if(held_by_.begin(), held_by_.end(), [](const auto& edges) { return !edges.empty(); }));
  }
  void limit_all(std::uint64_t bytes) { std::fill(limit_.begin(), limit_.end(), bytes); }

  // Distributes as much as the limits let it.
  void fill() {
    while (find_levels()) {
      next_edge_of_group_.assign(groups_.size(), 0);
      next_edge_of_sender_.assign(held_by_.size(), 0);
      for (std::size_t g = 0; g < groups_.size(); ++g) {
        while (left_[g] > 0) {
          const std::uint64_t pushed = push_from_group(g, left_[g]);
          if (pushed == 0) break;
          left_[g] -= pushed;
        }
      }
    }
  }

  // After fill(): raises the limits of the senders of the set that is too heavy for them; false when all is
  // distributed.
  bool relieve() {
    std::uint64_t bytes = 0, reached = 0;
    for (std::size_t g = 0; g < groups_.size(); ++g) bytes += group_level_[g] != kFar ? groups_[g].bytes : 0;
    for (const std::uint32_t level : sender_level_) reached += level != kFar ? 1 : 0;
    if (bytes == 0 || reached == 0) return false;
    const std::uint64_t wanted = bytes / reached + (bytes % reached != 0 ? 1 : 0);
    for (std::size_t s = 0; s < limit_.size(); ++s) {
      if (sender_level_[s] != kFar) limit_[s] = std::max(limit_[s], wanted);
    }
    return true;
  }

  std::uint64_t largest_limit() const {
    std::uint64_t largest = 0;
    for (std::size_t s = 0; s < limit_.size(); ++s)
      largest = held_by_[s].empty() ? largest : std::max(largest, limit_[s]);
    return largest;
  }
  std::vector<std::vector<std::uint64_t>> take() { return std::move(flow_); }

 private:
  static constexpr std::uint32_t kFar = std::numeric_limits<std::uint32_t>::max();
  struct Edge {
    std::uint32_t group;
    std::uint32_t index;  // into the group's senders
  };

  // Breadth first from every group that has bytes left. False if no sender with room is reached; then what was reached
  // is the set that is too heavy.
  bool find_levels() {
    group_level_.assign(groups_.size(), kFar);
    sender_level_.assign(held_by_.size(), kFar);
    std::vector<std::uint32_t> now, next_groups, reached;
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      if (left_[g] == 0) continue;
      group_level_[g] = 0;
      now.push_back(g);
    }
    bool room = false;
    for (std::uint32_t level = 1; !now.empty() && !room; level += 2) {
      reached.clear();
      for (const std::uint32_t g : now) {
        for (const std::uint32_t s : groups_[g].senders) {
          if (sender_level_[s] != kFar) continue;
          sender_level_[s] = level;
          room = room || load_[s] < limit_[s];
          reached.push_back(s);
        }
      }
      next_groups.clear();
      for (const std::uint32_t s : reached) {
        for (const Edge& edge : held_by_[s]) {
          if (group_level_[edge.group] != kFar || flow_[edge.group][edge.index] == 0) continue;
          group_level_[edge.group] = level + 1;
          next_groups.push_back(edge.group);
        }
      }
      now.swap(next_groups);
    }
    return room;
  }

  // As deep as there are groups in a chain of exchanges: bounded by the levels found.
  std::uint64_t push_from_group(std::size_t g, std::uint64_t bytes) {
    for (std::uint32_t& e = next_edge_of_group_[g]; e < groups_[g].senders.size(); ++e) {
      const std::uint32_t s = groups_[g].senders[e];
      if (sender_level_[s] != group_level_[g] + 1) continue;
      const std::uint64_t pushed = push_from_sender(s, bytes);
      if (pushed == 0) continue;
      flow_[g][e] += pushed;
      return pushed;
    }
    return 0;
  }

  std::uint64_t push_from_sender(std::uint32_t s, std::uint64_t bytes) {
    if (load_[s] < limit_[s]) {
      const std::uint64_t pushed = std::min(bytes, limit_[s] - load_[s]);
      load_[s] += pushed;
      return pushed;
    }
    for (std::uint32_t& e = next_edge_of_sender_[s]; e < held_by_[s].size(); ++e) {
      const Edge edge = held_by_[s][e];
      std::uint64_t& flow = flow_[edge.group][edge.index];
      if (flow == 0 || group_level_[edge.group] != sender_level_[s] + 1) continue;
      const std::uint64_t pushed = push_from_group(edge.group, std::min(bytes, flow));
      if (pushed == 0) continue;
      flow -= pushed;
      return pushed;
    }
    return 0;
  }

  std::span<const LoadGroup> groups_;
  std::vector<std::uint64_t> left_;               // of each group, not yet with a sender
  std::vector<std::vector<std::uint64_t>> flow_;  // of each group, by its senders
  std::vector<std::vector<Edge>> held_by_;        // of each sender
  std::vector<std::uint64_t> limit_, load_;       // of each sender
  std::vector<std::uint32_t> group_level_, sender_level_;
  std::vector<std::uint32_t> next_edge_of_group_, next_edge_of_sender_;
};

}  // namespace

Shares share_loads(std::span<const LoadGroup> groups, std::uint32_t senders) {
  Shares out;
  Distribution distribution(groups, senders);
  out.capable_senders = distribution.capable();
  std::uint64_t total = 0;
  for (const LoadGroup& group : groups) total += group.bytes;
  if (total == 0 || out.capable_senders == 0) {
    out.bytes = distribution.take();
    return out;
  }
  distribution.limit_all(total / out.capable_senders + (total % out.capable_senders != 0 ? 1 : 0));
  do {
    distribution.fill();
  } while (distribution.relieve());
  out.lower_bound_bytes = distribution.largest_limit();
  out.bytes = distribution.take();
  return out;
}

}  // namespace weighlock::reshard
