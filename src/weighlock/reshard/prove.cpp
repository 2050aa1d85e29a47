#include "weighlock/reshard/prove.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "weighlock/reshard/matching.hpp"
#include "weighlock/reshard/storage.hpp"

namespace weighlock::reshard {
namespace {

Error wrong(std::string message) {
  return Error{ErrorCode::internal, "the plan is wrong: " + std::move(message)};
}

class Proof {
 public:
  Proof(const Side& sources, const Side& targets, const Plan& plan)
      : sources_(sources), targets_(targets), plan_(plan) {}

  Status run() {
    if (Status ok = check_disjoint_storage(targets_); !ok) return ok;
    for (const Operation& operation : plan_.operations()) {
      if (Status ok = check_numbers(operation); !ok) return ok;
      if (Status ok = check_origin(operation); !ok) return ok;
    }
    sort_by_target();
    for (ShardId target = 0; target < targets_.shards().size(); ++target) {
      if (Status ok = check_written_once(target); !ok) return ok;
    }
    if (Status ok = check_fan_out(); !ok) return ok;
    return check_order();
  }

 private:
  const Side& sending(const Operation& of) const { return of.stage == Stage::transfer ? sources_ : targets_; }

  std::string describe(const Operation& of) const {
    return fmt::format("{}, from {} rank {}", targets_.describe(of.target), sending(of).name(), of.sender);
  }

  // Everything that is looked up below exists.
  Status check_numbers(const Operation& of) const {
    if (of.source >= sending(of).shards().size() || of.target >= targets_.shards().size())
      return wrong("an operation names a shard that isn't there");
    const Shard &from = sending(of).shards()[of.source], &to = targets_.shards()[of.target];
    if (from.rank != of.sender || to.rank != of.receiver || to.tensor != of.tensor)
      return wrong(describe(of) + ": an operation's ranks or tensor aren't those of its shards");
    if (of.dimensions != targets_.tensors()[of.tensor].shape.size() ||
        of.dimensions != sending(of).tensors()[from.tensor].shape.size())
      return wrong(describe(of) + ": an operation has another number of dimensions than its tensor");
    return {};
  }

  Status check_origin(const Operation& of) const {
    const Tensor& target = targets_.tensors()[of.tensor];
    const Tensor& source = sending(of).tensors()[sending(of).shards()[of.source].tensor];
    const std::string& wanted = of.stage == Stage::transfer ? source_name(target) : target.name;
    if (source.name != wanted || source.dtype != target.dtype)
      return wrong(fmt::format("{}: it sends tensor '{}' {}", describe(of), source.name, name(source.dtype)));
    const Box held = sending(of).box(of.source), placed = targets_.box(of.target);
    Box from = held, to = placed;
    for (std::size_t d = 0; d < of.dimensions; ++d) {
      const std::uint64_t extent = plan_.extent(of)[d];
      if (plan_.source_offset(of)[d] > held.extent(d) || plan_.target_offset(of)[d] > placed.extent(d) ||
          extent > held.extent(d) - plan_.source_offset(of)[d] ||
          extent > placed.extent(d) - plan_.target_offset(of)[d])
        return wrong(fmt::format("{}: an operation leaves its shard in dimension {}", describe(of), d));
      from.begin[d] += plan_.source_offset(of)[d];
      from.end[d] = from.begin[d] + extent;
      to.begin[d] += plan_.target_offset(of)[d];
      to.end[d] = to.begin[d] + extent;
    }
    if (to.empty()) return wrong(describe(of) + ": an operation moves nothing");
    if (!(from == to)) return wrong(fmt::format("{}: {} would come from {}", describe(of), text(to), text(from)));
    if (!inside(to, whole(target.shape))) return wrong(fmt::format("{}: {} is padding", describe(of), text(to)));
    return {};
  }

  Box written(const Operation& of) const {
    Box box = targets_.box(of.target);
    for (std::size_t d = 0; d < of.dimensions; ++d) {
      box.begin[d] += plan_.target_offset(of)[d];
      box.end[d] = box.begin[d] + plan_.extent(of)[d];
    }
    return box;
  }

  void sort_by_target() {
    by_target_.resize(plan_.operations().size());
    std::iota(by_target_.begin(), by_target_.end(), 0u);
    std::sort(by_target_.begin(), by_target_.end(), [this](std::uint32_t a, std::uint32_t b) {
      const ShardId x = plan_.operations()[a].target, y = plan_.operations()[b].target;
      return x != y ? x < y : a < b;
    });
  }

  std::span<const std::uint32_t> operations_on(ShardId target) const {
    const auto of = [this](std::uint32_t number) { return plan_.operations()[number].target; };
    const auto [begin, end] = std::ranges::equal_range(by_target_, target, std::less<>(), of);
    return {begin, end};
  }

  // Boxes that don't share an element, lie inside and have as many elements as the whole are all of it.
  Status check_written_once(ShardId target) const {
    const Box wanted = targets_.logical_box(target);
    std::vector<Box> boxes;
    for (const std::uint32_t number : operations_on(target)) boxes.push_back(written(plan_.operations()[number]));
    if (Status ok = check_disjoint(target, boxes); !ok) return ok;
    std::uint64_t elements = 0;
    for (const Box& box : boxes) elements += box.elements();
    if (elements == wanted.elements()) return {};
    const std::optional<Box> hole = first_hole(wanted, boxes);
    return wrong(fmt::format("{}: hole {}", targets_.describe(target), hole ? text(*hole) : "none, but too much"));
  }

  // A line moves through the dimension with most places; only boxes that it cuts at once can meet.
  Status check_disjoint(ShardId target, std::vector<Box>& boxes) const {
    if (boxes.size() < 2) return {};
    const std::size_t d = widest_dimension(boxes);
    std::sort(boxes.begin(), boxes.end(), [d](const Box& a, const Box& b) { return a.begin[d] < b.begin[d]; });
    std::vector<const Box*> cut;
    for (const Box& box : boxes) {
      std::erase_if(cut, [&](const Box* other) { return box.dimensions > 0 && other->end[d] <= box.begin[d]; });
      for (const Box* other : cut) {
        if (overlap(*other, box))
          return wrong(fmt::format("{}: overlap {}", targets_.describe(target), text(intersection(*other, box))));
      }
      cut.push_back(&box);
    }
    return {};
  }

  static std::size_t widest_dimension(const std::vector<Box>& boxes) {
    std::size_t best = 0, most = 0;
    for (std::size_t d = 0; d < boxes.front().dimensions; ++d) {
      std::vector<std::uint64_t> begins;
      for (const Box& box : boxes) begins.push_back(box.begin[d]);
      std::sort(begins.begin(), begins.end());
      const auto places = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
      if (places <= most) continue;
      most = places;
      best = d;
    }
    return best;
  }

  Status check_fan_out() const {
    for (const Operation& operation : plan_.operations()) {
      if (operation.stage != Stage::fan_out) continue;
      if (targets_.hosts().empty() || targets_.hosts()[operation.sender] != targets_.hosts()[operation.receiver])
        return wrong(describe(operation) + ": a fan-out between two hosts");
      for (const std::uint32_t number : operations_on(operation.source)) {
        if (plan_.operations()[number].stage != Stage::transfer)
          return wrong(describe(operation) + ": a fan-out of what comes by a fan-out itself");
      }
    }
    return {};
  }

  // Each receiver's list has, for each sender, what that sender's list has for it, in the same order.
  Status check_order() const {
    std::size_t listed = 0;
    for (const Stage stage : {Stage::transfer, Stage::fan_out}) {
      for (Rank receiver = 0; receiver < targets_.ranks(); ++receiver) {
        const std::vector<Operation> receives = plan_.receives_of(receiver, stage);
        listed += receives.size();
        for (std::size_t i = 0; i < receives.size();) {
          const Rank sender = receives[i].sender;
          const auto to = [](const Operation& of) { return of.receiver; };
          const std::span<const Operation> all = plan_.sends_of(sender, stage);
          const auto [begin, end] = std::ranges::equal_range(all, receiver, std::less<>(), to);
          for (auto send = begin; send != end; ++send, ++i) {
            if (i >= receives.size() || receives[i].at != send->at)
              return wrong(fmt::format("{} rank {} sends to rank {} in another order than that receives",
                                       stage == Stage::transfer ? sources_.name() : targets_.name(), sender, receiver));
          }
          if (begin == end)
            return wrong(fmt::format("rank {} waits for rank {}, which doesn't send", receiver, sender));
        }
      }
    }
    if (listed != plan_.operations().size()) return wrong("some operations are on nobody's list");
    return {};
  }

  const Side& sources_;
  const Side& targets_;
  const Plan& plan_;
  std::vector<std::uint32_t> by_target_;
};

}  // namespace

Status prove(const Side& sources, const Side& targets, const Plan& plan) {
  return Proof(sources, targets, plan).run();
}

}  // namespace weighlock::reshard
