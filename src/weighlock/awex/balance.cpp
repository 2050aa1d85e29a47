#include "weighlock/awex/balance.hpp"

#include <algorithm>
#include <map>
#include <numeric>

namespace weighlock::awex {
namespace {

constexpr int kPassesMax = 4;         // the third rarely moves anything
constexpr double kGoodEnough = 1.01;  // busiest to lower bound

class Balancer {
 public:
  Balancer(std::vector<Demand>& demands, std::uint32_t engines, std::uint32_t train_ranks, const Reaches& reaches)
      : demands_(demands), engines_(engines), reaches_(reaches), load_(train_ranks) {}

  Balance run();

 private:
  // Bytes that each receiving replica of engine 0 takes of a part.
  std::vector<std::uint64_t> taken(const Demand& demand, const Demand::Part& part) const;
  std::size_t to_list(const Demand& demand, std::size_t reads) const;
  void choose(Demand& demand);
  void remove(const Demand& demand);
  std::uint64_t lower_bound() const;
  std::uint64_t busiest() const { return load_.empty() ? 0 : *std::max_element(load_.begin(), load_.end()); }

  std::vector<Demand>& demands_;
  std::uint32_t engines_;
  const Reaches& reaches_;
  std::vector<std::uint64_t> load_;
};

std::size_t most_holders(const Demand& demand) {
  std::size_t most = 0;
  for (const Demand::Part& part : demand.parts) most = std::max(most, part.holders.size());
  return most;
}

std::uint64_t bytes_of(const Demand& demand) {
  std::uint64_t sum = 0;
  for (const auto& replica : demand.receivers)
    for (const Box& box : replica) sum += elements(box.shape) * demand.element_bytes;
  return sum;
}

// Whether this holder reaches all who read the part in that engine's replica.
bool reaches_readers(const Demand& demand, const Demand::Part& part, std::uint32_t holder, std::uint32_t engine,
                     std::size_t replica, const Reaches& reaches) {
  const std::vector<Box>& boxes = demand.receivers[replica];
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    if (overlap_elements(boxes[i], part.box) == 0) continue;
    if (!reaches(holder, engine, demand.receiver_ranks[replica][i])) return false;
  }
  return true;
}

// Those of the part's holders that reach the reader; all of them if none does, which is refused later.
std::vector<std::uint32_t> holders_for(const Demand& demand, const Demand::Part& part, std::size_t read,
                                       const Reaches& reaches) {
  std::vector<std::uint32_t> out;
  const std::size_t receivers = demand.receivers.size();
  const auto engine = static_cast<std::uint32_t>(read / receivers);
  for (const std::uint32_t holder : part.holders)
    if (reaches_readers(demand, part, holder, engine, read % receivers, reaches)) out.push_back(holder);
  return out.empty() ? part.holders : out;
}

std::vector<std::uint64_t> Balancer::taken(const Demand& demand, const Demand::Part& part) const {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(demand.receivers.size());
  for (const auto& replica : demand.receivers) {
    std::uint64_t sum = 0;
    for (const Box& box : replica) sum += overlap_elements(box, part.box) * demand.element_bytes;
    bytes.push_back(sum);
  }
  return bytes;
}

void Balancer::remove(const Demand& demand) {
  const std::size_t receivers = demand.receivers.size(), listed = demand.chosen.size();
  for (std::size_t p = 0; p < demand.parts.size(); ++p) {
    const std::vector<std::uint64_t> bytes = taken(demand, demand.parts[p]);
    for (std::size_t j = 0; j < receivers * engines_; ++j)
      load_[demand.parts[p].holders[demand.chosen[j % listed][p]]] -= bytes[j % receivers];
  }
}

// A replica that one holder alone can fill is listed once, whoever it reaches.
std::size_t Balancer::to_list(const Demand& demand, std::size_t reads) const {
  const std::size_t holders = most_holders(demand);
  return std::max<std::size_t>(1, reaches_ && holders > 1 ? reads : std::min(reads, holders));
}

// For each part the replica that is read most gets the least loaded holder, and so on down.
void Balancer::choose(Demand& demand) {
  const std::size_t receivers = demand.receivers.size(), reads = receivers * engines_;
  const std::size_t listed = to_list(demand, reads);
  demand.chosen.assign(listed, std::vector<std::uint32_t>(demand.parts.size()));
  std::vector<std::uint64_t> wanted;
  std::vector<std::size_t> order(listed);
  for (std::size_t p = 0; p < demand.parts.size(); ++p) {
    const std::vector<std::uint32_t>& all = demand.parts[p].holders;
    std::vector<std::uint32_t> reaching;
    const std::vector<std::uint64_t> bytes = taken(demand, demand.parts[p]);
    wanted.assign(listed, 0);
    for (std::size_t j = 0; j < reads; ++j) wanted[j % listed] += bytes[j % receivers];
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return wanted[a] > wanted[b]; });
    for (const std::size_t i : order) {
      if (reaches_ && all.size() > 1) reaching = holders_for(demand, demand.parts[p], i, reaches_);
      const std::vector<std::uint32_t>& holders = reaching.empty() ? all : reaching;
      const std::uint32_t least = *std::min_element(
          holders.begin(), holders.end(), [this](std::uint32_t a, std::uint32_t b) { return load_[a] < load_[b]; });
      demand.chosen[i][p] = static_cast<std::uint32_t>(std::find(all.begin(), all.end(), least) - all.begin());
      load_[least] += wanted[i];
    }
  }
}

std::uint64_t Balancer::lower_bound() const {
  std::map<std::vector<std::uint32_t>, std::uint64_t> by_holders;
  std::vector<bool> holds(load_.size());
  std::uint64_t total = 0;
  for (const Demand& demand : demands_) {
    for (const Demand::Part& part : demand.parts) {
      const std::vector<std::uint64_t> bytes = taken(demand, part);
      const std::uint64_t sum = std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}) * engines_;
      by_holders[part.holders] += sum;
      total += sum;
      for (const std::uint32_t rank : part.holders) holds[rank] = true;
    }
  }
  const auto ranks = static_cast<std::uint64_t>(std::count(holds.begin(), holds.end(), true));
  std::uint64_t bound = ranks == 0 ? 0 : (total + ranks - 1) / ranks;
  for (const auto& [holders, bytes] : by_holders)
    bound = std::max<std::uint64_t>(bound, (bytes + holders.size() - 1) / holders.size());
  return bound;
}

Balance Balancer::run() {
  std::vector<std::size_t> order(demands_.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::pair<std::size_t, std::uint64_t>> rank_of(demands_.size());
  for (std::size_t i = 0; i < demands_.size(); ++i) rank_of[i] = {most_holders(demands_[i]), bytes_of(demands_[i])};
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return rank_of[a].first != rank_of[b].first ? rank_of[a].first < rank_of[b].first
                                                : rank_of[a].second > rank_of[b].second;
  });
  for (const std::size_t i : order) choose(demands_[i]);
  const std::uint64_t bound = lower_bound();
  for (int pass = 1; pass < kPassesMax; ++pass) {
    const std::uint64_t before = busiest();
    if (static_cast<double>(before) <= kGoodEnough * static_cast<double>(bound)) break;
    for (const std::size_t i : order) {
      if (rank_of[i].first < 2) continue;
      remove(demands_[i]);
      choose(demands_[i]);
    }
    if (busiest() >= before) break;
  }
  return {std::move(load_), bound};
}

}  // namespace

Balance balance(std::vector<Demand>& demands, std::uint32_t engines, std::uint32_t train_ranks,
                const Reaches& reaches) {
  return Balancer(demands, engines, train_ranks, reaches).run();
}

bool all_reached(const Demand& demand, std::uint32_t engines, const Reaches& reaches) {
  for (const Demand::Part& part : demand.parts) {
    for (std::size_t read = 0; read < demand.receivers.size() * engines; ++read) {
      const std::size_t replica = read % demand.receivers.size();
      const auto engine = static_cast<std::uint32_t>(read / demand.receivers.size());
      const bool reached = std::any_of(part.holders.begin(), part.holders.end(), [&](std::uint32_t holder) {
        return reaches_readers(demand, part, holder, engine, replica, reaches);
      });
      if (!reached) return false;
    }
  }
  return true;
}

}  // namespace weighlock::awex
