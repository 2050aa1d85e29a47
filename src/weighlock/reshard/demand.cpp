#include "weighlock/reshard/demand.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "weighlock/core/check.hpp"
#include "weighlock/reshard/matching.hpp"
#include "weighlock/reshard/pieces.hpp"

namespace weighlock::reshard {
namespace {

Error bad(std::string message) {
  return Error{ErrorCode::invalid_argument, std::move(message)};
}

// Sets of ranks, each different one once. Found by a hash of its ranks and compared whole.
class GroupTable {
 public:
  explicit GroupTable(std::vector<LoadGroup>& groups) : groups_(groups) {}

  std::uint32_t number_of(const std::vector<std::uint32_t>& ranks) {
    std::uint64_t hash = 1469598103934665603ull;  // FNV-1a's offset and prime, on whole numbers
    for (const std::uint32_t rank : ranks) hash = (hash ^ rank) * 1099511628211ull;
    const auto [from, to] = by_hash_.equal_range(hash);
    for (auto at = from; at != to; ++at) {
      if (groups_[at->second].senders == ranks) return at->second;
    }
    const auto number = static_cast<std::uint32_t>(groups_.size());
    groups_.push_back({0, ranks});
    by_hash_.emplace(hash, number);
    return number;
  }

 private:
  std::vector<LoadGroup>& groups_;
  std::unordered_multimap<std::uint64_t, std::uint32_t> by_hash_;
};

class DemandFinder {
 public:
  DemandFinder(const Side& sources, const Side& targets, const PlanOptions& options)
      : sources_(sources), targets_(targets), options_(options), groups_(out_.groups), received_(targets.ranks()) {}

  Result<Demand> find() {
    if (options_.one_copy_per_host && targets_.hosts().empty())
      return bad(fmt::format("one copy per host is asked for, and the hosts of {} aren't given", targets_.name()));
    Result<Matching> matching = match_tensors(sources_, targets_, options_.unused_sources_allowed);
    if (!matching) return std::move(matching).error();
    out_.unused_sources = matching->unused_sources;
    out_.place_of_tensor.resize(matching->order.size());
    const ShardsByTensor held = shards_by_tensor(sources_), wanted = shards_by_tensor(targets_);
    out_.items.reserve(targets_.shards().size());
    for (std::uint32_t place = 0; place < matching->order.size(); ++place) {
      const TensorId target = matching->order[place], source = matching->source_of[target];
      out_.place_of_tensor[target] = place;
      if (Status ok = add_tensor(target, source, held.of(source), wanted.of(target)); !ok) return std::move(ok).error();
    }
    return std::move(out_);
  }

 private:
  struct HeldPiece {
    std::uint32_t group;
    std::uint32_t holders;
  };

  Status add_tensor(TensorId target, TensorId source, std::span<const ShardId> held, std::span<const ShardId> wanted) {
    std::vector<Piece> pieces = distinct_pieces(sources_, held);
    if (BoxIndex(pieces).any_two_meet()) pieces = disjoint_pieces(std::move(pieces));
    const std::vector<Piece> parts = distinct_pieces(targets_, wanted);
    if (Status ok = check_owners(source, pieces); !ok) return ok;
    if (Status ok = check_whole(target, parts); !ok) return ok;
    std::vector<HeldPiece> places;
    places.reserve(pieces.size());
    for (const Piece& piece : pieces) places.push_back(register_holders(piece));
    BoxIndex index(pieces);
    for (const Piece& part : parts) {
      const std::vector<std::uint32_t>& meeting = index.meeting(part.box);
      if (Status ok = check_covered(part, pieces, meeting); !ok) return ok;
      const std::vector<ShardId> receivers = first_receivers(part);
      for (const std::uint32_t piece : meeting)
        add_items(target, intersection(part.box, pieces[piece].box), places[piece], receivers);
    }
    return {};
  }

  // Copies must have one owner.
  Status check_owners(TensorId source, const std::vector<Piece>& pieces) const {
    for (const Piece& piece : pieces) {
      const Shard& first = sources_.shards()[piece.shards.front()];
      for (const ShardId shard : piece.shards) {
        const Shard& other = sources_.shards()[shard];
        if (other.owner == first.owner) continue;
        return bad(fmt::format(
            "duplicate: {} {} is claimed by owner {} (rank {}) and by owner {} (rank {}): if these "
            "are different weights, give them different names (pipeline stages: global layer "
            "numbers); if they are copies, give them one owner",
            sources_.describe_tensor(source), text(piece.box), first.owner, first.rank, other.owner, other.rank));
      }
    }
    return {};
  }

  // All target ranks together hold the whole tensor: else some slice was taken at the wrong place.
  Status check_whole(TensorId target, const std::vector<Piece>& parts) const {
    std::vector<Box> boxes;
    boxes.reserve(parts.size());
    for (const Piece& part : parts) boxes.push_back(part.box);
    const std::optional<Box> hole = first_hole(whole(targets_.tensors()[target].shape), boxes);
    if (!hole) return {};
    return bad(fmt::format("{}: hole {}: no rank has that part, so it would be served by nobody",
                           targets_.describe_tensor(target), text(*hole)));
  }

  Status check_covered(const Piece& part, const std::vector<Piece>& pieces,
                       const std::vector<std::uint32_t>& meeting) const {
    std::uint64_t covered = 0;
    for (const std::uint32_t piece : meeting) covered += intersection(part.box, pieces[piece].box).elements();
    if (covered == part.box.elements()) return {};
    std::vector<Box> boxes;
    for (const std::uint32_t piece : meeting) boxes.push_back(pieces[piece].box);
    const std::optional<Box> hole = first_hole(part.box, boxes);
    WEIGHLOCK_CHECK(hole.has_value(), "disjoint pieces that miss some elements leave a hole");
    return bad(fmt::format("{}: hole {}: no rank of {} holds it", targets_.describe(part.shards.front()), text(*hole),
                           sources_.name()));
  }

  HeldPiece register_holders(const Piece& piece) {
    by_rank_.clear();
    for (const ShardId shard : piece.shards) by_rank_.emplace_back(sources_.shards()[shard].rank, shard);
    std::sort(by_rank_.begin(), by_rank_.end());
    ranks_.clear();
    HeldPiece out{0, static_cast<std::uint32_t>(out_.holders.size())};
    for (const auto& [rank, shard] : by_rank_) {
      if (!ranks_.empty() && ranks_.back() == rank) continue;  // it holds it twice
      ranks_.push_back(rank);
      out_.holders.push_back(shard);
    }
    out.group = groups_.number_of(ranks_);
    return out;
  }

  // Those that get the part from a source: all, or on each host the one that has got least so far; the others get it
  // from that one.
  std::vector<ShardId> first_receivers(const Piece& part) {
    if (!options_.one_copy_per_host) return part.shards;
    const std::uint64_t bytes = bytes_of(part.shards.front(), part.box);
    std::map<std::uint32_t, std::vector<ShardId>> by_host;
    for (const ShardId shard : part.shards) by_host[targets_.hosts()[targets_.shards()[shard].rank]].push_back(shard);
    std::vector<ShardId> first;
    for (const auto& [host, mates] : by_host) {
      const ShardId chosen = *std::min_element(mates.begin(), mates.end(), [this](ShardId a, ShardId b) {
        return received_[targets_.shards()[a].rank] < received_[targets_.shards()[b].rank];
      });
      received_[targets_.shards()[chosen].rank] += bytes;
      first.push_back(chosen);
      for (const ShardId mate : mates) {
        if (mate != chosen) out_.fan_outs.push_back({chosen, mate});
      }
    }
    return first;
  }

  void add_items(TensorId target, const Box& box, const HeldPiece& place, const std::vector<ShardId>& receivers) {
    const auto at = static_cast<std::uint32_t>(out_.boxes.size());
    for (std::size_t d = 0; d < box.dimensions; ++d) {
      out_.boxes.push_back(box.begin[d]);
      out_.boxes.push_back(box.end[d]);
    }
    const std::uint64_t bytes = box.elements() * bits(targets_.tensors()[target].dtype) / 8;
    for (const ShardId receiver : receivers) {
      out_.items.push_back({bytes, receiver, place.holders, place.group, at});
      out_.groups[place.group].bytes += bytes;
    }
  }

  std::uint64_t bytes_of(ShardId target, const Box& box) const {
    return box.elements() * bits(targets_.tensors()[targets_.shards()[target].tensor].dtype) / 8;
  }

  const Side& sources_;
  const Side& targets_;
  const PlanOptions& options_;
  Demand out_;
  GroupTable groups_;
  std::vector<std::uint64_t> received_;
  std::vector<std::pair<Rank, ShardId>> by_rank_;
  std::vector<Rank> ranks_;
};

}  // namespace

Box Demand::box(const Item& item, std::uint32_t dimensions) const {
  Box out;
  out.dimensions = dimensions;
  for (std::size_t d = 0; d < dimensions; ++d) {
    out.begin[d] = boxes[item.box + 2 * d];
    out.end[d] = boxes[item.box + 2 * d + 1];
  }
  return out;
}

Result<Demand> find_demand(const Side& sources, const Side& targets, const PlanOptions& options) {
  return DemandFinder(sources, targets, options).find();
}

}  // namespace weighlock::reshard
