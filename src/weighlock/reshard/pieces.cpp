#include "weighlock/reshard/pieces.hpp"

#include <algorithm>
#include <numeric>

namespace weighlock::reshard {
namespace {

void unite(std::vector<ShardId>& into, const std::vector<ShardId>& from) {
  into.insert(into.end(), from.begin(), from.end());
}

// The dimension in which the boxes begin at most places.
std::size_t telling_dimension(std::span<const Piece> pieces) {
  if (pieces.size() < 2) return 0;
  std::size_t best = 0, most = 0;
  std::vector<std::uint64_t> begins(pieces.size());
  for (std::size_t d = 0; d < pieces.front().box.dimensions; ++d) {
    for (std::size_t i = 0; i < pieces.size(); ++i) begins[i] = pieces[i].box.begin[d];
    std::sort(begins.begin(), begins.end());
    const auto places = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (places > most) {
      most = places;
      best = d;
    }
  }
  return best;
}

}  // namespace

std::vector<Piece> distinct_pieces(const Side& side, std::span<const ShardId> shards) {
  struct Held {
    Box box;
    ShardId shard;
  };
  std::vector<Held> held;
  held.reserve(shards.size());
  for (const ShardId shard : shards) {
    const Box box = side.logical_box(shard);
    if (!box.empty()) held.push_back({box, shard});
  }
  const auto before = [&side](const Held& a, const Held& b) {
    if (!(a.box == b.box)) return a.box < b.box;
    const Rank rank_a = side.shards()[a.shard].rank, rank_b = side.shards()[b.shard].rank;
    return rank_a != rank_b ? rank_a < rank_b : a.shard < b.shard;
  };
  std::sort(held.begin(), held.end(), before);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < held.size();) {
    std::size_t end = i;
    while (end < held.size() && held[end].box == held[i].box) ++end;
    Piece piece{held[i].box, {}};
    piece.shards.reserve(end - i);
    for (; i < end; ++i) piece.shards.push_back(held[i].shard);
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

std::vector<Piece> disjoint_pieces(std::vector<Piece> pieces) {
  std::vector<Piece> done, next;
  std::vector<Box> rest, still;
  for (const Piece& added : pieces) {
    still.assign(1, added.box);
    next.clear();
    for (Piece& there : done) {
      if (!overlap(there.box, added.box)) {
        next.push_back(std::move(there));
        continue;
      }
      rest.clear();
      subtract(there.box, added.box, rest);
      for (const Box& box : rest) next.push_back({box, there.shards});
      rest.clear();
      for (const Box& box : still) subtract(box, there.box, rest);
      still.swap(rest);
      Piece common{intersection(there.box, added.box), std::move(there.shards)};
      unite(common.shards, added.shards);
      next.push_back(std::move(common));
    }
    for (const Box& box : still) next.push_back({box, added.shards});
    done.swap(next);
  }
  std::sort(done.begin(), done.end(), [](const Piece& a, const Piece& b) { return a.box < b.box; });
  return done;
}

BoxIndex::BoxIndex(std::span<const Piece> pieces) : pieces_(pieces), dimension_(telling_dimension(pieces)) {
  order_.resize(pieces.size());
  std::iota(order_.begin(), order_.end(), 0u);
  if (pieces.empty() || pieces.front().box.dimensions == 0) return;
  std::stable_sort(order_.begin(), order_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return pieces[a].box.begin[dimension_] < pieces[b].box.begin[dimension_];
  });
  farthest_.reserve(order_.size());
  for (const std::uint32_t piece : order_) {
    const std::uint64_t end = pieces[piece].box.end[dimension_];
    farthest_.push_back(farthest_.empty() ? end : std::max(farthest_.back(), end));
  }
}

const std::vector<std::uint32_t>& BoxIndex::meeting(const Box& box) {
  found_.clear();
  if (box.dimensions == 0) {  // a scalar meets its copies
    found_ = order_;
    return found_;
  }
  const auto first = std::upper_bound(farthest_.begin(), farthest_.end(), box.begin[dimension_]);
  for (auto i = static_cast<std::size_t>(first - farthest_.begin()); i < order_.size(); ++i) {
    const Box& other = pieces_[order_[i]].box;
    if (other.begin[dimension_] >= box.end[dimension_]) break;
    if (overlap(other, box)) found_.push_back(order_[i]);
  }
  std::sort(found_.begin(), found_.end());
  return found_;
}

bool BoxIndex::any_two_meet() const {
  for (std::size_t i = 0; i + 1 < order_.size(); ++i) {
    const Box& one = pieces_[order_[i]].box;
    for (std::size_t j = i + 1; j < order_.size(); ++j) {
      const Box& other = pieces_[order_[j]].box;
      if (one.dimensions != 0 && other.begin[dimension_] >= one.end[dimension_]) break;
      if (overlap(one, other)) return true;
    }
  }
  return false;
}

}  // namespace weighlock::reshard
