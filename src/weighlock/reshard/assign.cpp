#include "weighlock/reshard/assign.hpp"

#include <algorithm>
#include <numeric>
#include <queue>

namespace weighlock::reshard {
namespace {

constexpr std::uint64_t kSlackDivisor = 64;  // 1.6 %: of the 5 % that a plan may be worse than the bound

// What is left to give away of an item.
struct Load {
  Box box;
  std::uint64_t bytes = 0;
};

// Cuts `load` so that the first part has about `bytes`, at most, but at least one step of the outermost dimension that
// has several: the first part is returned, the rest stays. `load` has at least two elements.
Load cut(Load& load, std::uint64_t bytes) {
  std::size_t d = 0;
  while (load.box.extent(d) == 1) ++d;
  const std::uint64_t step = load.bytes / load.box.extent(d);
  const std::uint64_t steps = std::clamp<std::uint64_t>(bytes / step, 1, load.box.extent(d) - 1);
  Load first{load.box, steps * step};
  first.box.end[d] = first.box.begin[d] + steps;
  load.box.begin[d] = first.box.end[d];
  load.bytes -= first.bytes;
  return first;
}

class Assignment {
 public:
  Assignment(const Side& sources, const Side& targets, const Demand& demand, const Shares& shares, Plan& plan)
      : sources_(sources),
        targets_(targets),
        demand_(demand),
        shares_(shares),
        plan_(plan),
        slack_(sources.ranks(), shares.lower_bound_bytes / kSlackDivisor) {}

  void run() {
    plan_.reserve(demand_.items.size() + demand_.fan_outs.size(), 2);
    std::vector<std::uint32_t> order(demand_.items.size());
    std::iota(order.begin(), order.end(), 0u);
    const auto before = [this](std::uint32_t a, std::uint32_t b) {
      const Item &x = demand_.items[a], &y = demand_.items[b];
      if (x.group != y.group) return x.group < y.group;
      return x.bytes != y.bytes ? x.bytes > y.bytes : a < b;
    };
    std::sort(order.begin(), order.end(), before);
    for (std::size_t i = 0; i < order.size();) {
      const std::uint32_t group = demand_.items[order[i]].group;
      std::size_t end = i;
      while (end < order.size() && demand_.items[order[end]].group == group) ++end;
      assign_group(group, std::span(order).subspan(i, end - i));
      i = end;
    }
  }

 private:
  struct Left {
    std::uint64_t bytes;
    std::uint32_t index;  // into the group's senders
    friend bool operator<(const Left& a, const Left& b) {
      return a.bytes != b.bytes ? a.bytes < b.bytes : a.index > b.index;  // the lowest rank first
    }
  };

  void assign_group(std::uint32_t group, std::span<const std::uint32_t> items) {
    std::vector<Left> left;
    for (std::uint32_t s = 0; s < demand_.groups[group].senders.size(); ++s)
      left.push_back({shares_.bytes[group][s], s});
    std::priority_queue<Left> most_left(std::less<Left>(), std::move(left));
    for (const std::uint32_t item : items) assign(demand_.items[item], most_left);
  }

  // Each round gives away a part that either fills a sender's share, or is a single step or the last: at most as many
  // rounds as there are senders and dimensions' steps below one share.
  void assign(const Item& item, std::priority_queue<Left>& most_left) {
    const std::vector<std::uint32_t>& senders = demand_.groups[item.group].senders;
    const auto dimensions =
        static_cast<std::uint32_t>(targets_.tensors()[targets_.shards()[item.target].tensor].shape.size());
    std::vector<Load> loads(1, {demand_.box(item, dimensions), item.bytes});
    while (!loads.empty()) {
      Load load = loads.back();
      loads.pop_back();
      Left taker = most_left.top();
      most_left.pop();
      std::uint64_t& slack = slack_[senders[taker.index]];
      if (load.bytes > taker.bytes + slack && load.box.elements() > 1) {
        const Load first = cut(load, taker.bytes);
        loads.push_back(load);
        load = first;
        if (load.bytes > taker.bytes + slack && load.box.elements() > 1) {  // one step is too much: cut that, too
          loads.push_back(load);
          most_left.push(taker);
          continue;
        }
      }
      const std::uint64_t above = load.bytes > taker.bytes ? load.bytes - taker.bytes : 0;
      slack -= std::min(slack, above);
      taker.bytes -= load.bytes - above;
      plan_.add(sources_, targets_, Stage::transfer, demand_.holders[item.holders + taker.index], item.target,
                load.box);
      most_left.push(taker);
    }
  }

  const Side& sources_;
  const Side& targets_;
  const Demand& demand_;
  const Shares& shares_;
  Plan& plan_;
  std::vector<std::uint64_t> slack_;  // of each sender: how far it may still go above its shares
};

}  // namespace

void assign_items(const Side& sources, const Side& targets, const Demand& demand, const Shares& shares, Plan& plan) {
  Assignment(sources, targets, demand, shares, plan).run();
}

}  // namespace weighlock::reshard
