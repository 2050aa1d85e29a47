#include "weighlock/awex/repair.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "weighlock/awex/balance.hpp"
#include "weighlock/awex/colocated.hpp"
#include "weighlock/awex/element_bytes.hpp"
#include "weighlock/awex/gather.hpp"
#include "weighlock/awex/parts.hpp"
#include "weighlock/awex/shared_names.hpp"
#include "weighlock/awex/workers.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::awex {
namespace {

// A replica of receivers that takes more than this part of what a sender sends on average is cut into one a rank.
constexpr std::uint64_t kFinePart = 50;
constexpr std::uint64_t kPairsMax = std::uint64_t{1}
                                    << 30;  // some ten seconds; a dense 70B from 256 to 32 x 4 has 24 million

constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 62;  // of all receivers: sums of two don't overflow

std::string range(const std::set<std::uint32_t>& ranks) {
  return *ranks.begin() == *ranks.rbegin() ? fmt::format("{}", *ranks.begin())
                                           : fmt::format("{}..{}", *ranks.begin(), *ranks.rbegin());
}

// A layer number, as in "model.layers.0.x".
bool has_number(std::string_view name) {
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view word = name.substr(begin, end - begin);
    if (!word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos) return true;
    begin = end + 1;
  }
  return false;
}

// Indexes of parts with the same box, by box.
using Copies = std::map<Box, std::vector<std::uint32_t>>;

class Repair {
 public:
  Repair(const std::vector<Report>& train, const std::vector<Report>& infer, const Topology& topology)
      : train_reports_(train), infer_reports_(infer), topology_(topology) {}

  Result<Repaired> run();

 private:
  void check_tensor(std::uint32_t id);
  bool sides_agree(std::uint32_t id, const Extents& shape);
  void check_stages(std::uint32_t id, const Table& table, Side side);
  void settle_side(std::uint32_t id, Table& table, Side side, const Extents& shape);
  void check_engines_alike();
  std::string described(std::uint32_t id) const { return fmt::format("tensor '{}'", printable(names_[id])); }

  std::uint64_t pairs_of_parts() const;
  Result<std::uint64_t> needed_bytes() const;
  void demand(std::uint32_t id, std::uint64_t fine_bytes, const Reaches& reaches);
  void add_receivers(std::uint32_t id, const std::vector<std::vector<std::uint32_t>>& replicas, Demand& demand) const;
  void write_train(std::size_t place);
  void write_infer(std::uint32_t id, const std::vector<std::vector<std::uint32_t>>& replicas);
  Tensor begin_tensor(std::uint32_t id, const Table& table, const Metadata& side) const;
  std::vector<std::vector<std::uint32_t>> receiving_replicas(std::uint32_t id, bool fine) const;

  const std::vector<Report>& train_reports_;
  const std::vector<Report>& infer_reports_;
  Topology topology_;
  Names names_;
  Problems problems_;
  Table train_;
  Table infer_;
  std::vector<std::uint32_t> common_, infer_only_;  // in the order of names

  std::vector<Demand> demands_;                                        // by place in common_
  std::vector<std::vector<std::vector<std::uint32_t>>> sources_;       // place, part, holder -> held
  std::vector<std::vector<std::vector<std::uint32_t>>> destinations_;  // place, replica -> held
  Repaired out_;
};

// Layers that two pipeline stages call by one name are different weights; tensors without a layer number (embeddings)
// may be on two stages, as copies.
void Repair::check_stages(std::uint32_t id, const Table& table, Side side) {
  if (!has_number(names_[id])) return;
  std::map<std::int64_t, std::set<std::uint32_t>> stages;
  for (const Held& held : table.of(table.rows[id])) stages[table.shard_frames[held.frame]->pp_rank].insert(held.rank);
  if (stages.size() < 2) return;
  const auto first = stages.begin(), second = std::next(first);
  problems_.add(fmt::format(
      "{}: duplicate: pipeline stages {} ({} {}) and {} ({}) both report it: each must number its "
      "layers through the whole model, not from 0",
      described(id), first->first, ranks_word(side), range(first->second), second->first, range(second->second)));
}

bool Repair::sides_agree(std::uint32_t id, const Extents& shape) {
  const Row& train = train_.rows[id];
  const Row& infer = infer_.rows[id];
  if (train.dtype != infer.dtype) {
    problems_.add(
        fmt::format("{} is {} on train ranks and {} on inference ranks: AWEX doesn't convert; load the engine "
                    "with the trainer's dtype",
                    described(id), printable(train.dtype), printable(infer.dtype)));
    return false;
  }
  if (infer.shape.size() == shape.size()) return true;
  problems_.add(fmt::format("{} has the shape {} on train ranks and {} on inference ranks", described(id), text(shape),
                            text(infer.shape)));
  return false;
}

void Repair::settle_side(std::uint32_t id, Table& table, Side side, const Extents& shape) {
  const Row& row = table.rows[id];
  Settled settled = settle(table.of(row), shape, table);
  out_.moved += settled.moved;
  if (settled.problem.empty()) return;
  std::set<std::uint32_t> ranks;
  for (const Held& held : table.of(row)) ranks.insert(held.rank);
  if (settled.ambiguous) {
    problems_.add(
        fmt::format("{} of shape {} can be read in two ways from what {} {} report: {}: report where each part begins, "
                    "or cut it so that all parts have one size, along one dimension by one kind of parallelism",
                    described(id), text(shape), ranks_word(side), range(ranks), settled.problem));
    return;
  }
  if (!(row.shape == shape)) {
    problems_.add(
        fmt::format("{} has the shape {} on train ranks and {} on inference ranks, which hold {}: vocabularies "
                    "padded otherwise, or key and value heads that are fewer than tensor-parallel ranks, can't "
                    "be planned by AWEX's workers",
                    described(id), text(shape), text(row.shape), settled.problem));
    return;
  }
  problems_.add(
      fmt::format("{} of shape {} isn't whole on {} {}: {}: every element must be reported by exactly one part "
                  "(or copies of it)",
                  described(id), text(shape), ranks_word(side), range(ranks), settled.problem));
}

void Repair::check_tensor(std::uint32_t id) {
  const Extents& shape = train_.rows[id].shape;
  if (shape.empty()) {
    problems_.add(
        fmt::format("{} has no dimensions (train rank {}): AWEX's planner fails on it (\"Shard has empty "
                    "global_offset\"); give it the shape [1] on both sides",
                    described(id), train_.rows[id].rank));
    return;
  }
  check_stages(id, train_, Side::train);
  check_stages(id, infer_, Side::infer);
  if (!sides_agree(id, shape)) return;
  settle_side(id, train_, Side::train, shape);
  settle_side(id, infer_, Side::infer, shape);
}

// The planner reuses engine 0's entries for all others.
void Repair::check_engines_alike() {
  for (std::size_t e = 1; e < infer_reports_.size(); ++e) {
    Table other = gather({&infer_reports_[e], 1}, Side::infer, names_, problems_);
    const auto differ = [&](std::uint32_t id, std::string_view what) {
      problems_.add(
          fmt::format("{}: {} and {} differ in {}: workers plan all engines by the first one's metadata; start "
                      "them alike, or connect them as pairs of their own",
                      described(id), text(infer_reports_[0].origin), text(infer_reports_[e].origin), what));
    };
    infer_.rows.resize(names_.size());
    for (std::uint32_t id = 0; id < names_.size(); ++id) {
      const Row& a = infer_.rows[id];
      const Row& b = other.rows[id];
      if (a.present != b.present) {
        differ(id, "whether they have it");
      } else if (a.present && (a.dtype != b.dtype || !(a.shape == b.shape))) {
        differ(id, fmt::format("shape and dtype: {} {} and {} {}", text(a.shape), printable(a.dtype), text(b.shape),
                               printable(b.dtype)));
      } else if (const auto mine = std::as_const(infer_).of(a), theirs = std::as_const(other).of(b);
                 !std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(),
                             [](const Held& x, const Held& y) { return x.rank == y.rank && x.box == y.box; })) {
        differ(id, "what their ranks hold");
      }
    }
  }
}

Copies copies_of(std::span<const Held> held) {
  Copies copies;
  for (std::uint32_t i = 0; i < held.size(); ++i)
    if (elements(held[i].box.shape) > 0) copies[held[i].box].push_back(i);
  return copies;
}

// Numbers into the row's `held`. Each is in exactly one replica.
std::vector<std::vector<std::uint32_t>> Repair::receiving_replicas(std::uint32_t id, bool fine) const {
  std::vector<std::vector<std::uint32_t>> replicas;
  const auto held = infer_.of(infer_.rows[id]);
  if (fine) {
    for (std::uint32_t i = 0; i < held.size(); ++i)
      if (elements(held[i].box.shape) > 0) replicas.push_back({i});
  } else {
    for (const auto& [box, copies] : copies_of(held)) {
      if (replicas.size() < copies.size()) replicas.resize(copies.size());
      for (std::size_t i = 0; i < copies.size(); ++i) replicas[i].push_back(copies[i]);
    }
  }
  if (replicas.empty()) replicas.push_back({0});  // a tensor without elements: planners want a replica
  return replicas;
}

// What planning costs, here and in every worker: each part of a receiver is compared with each of the senders'.
std::uint64_t Repair::pairs_of_parts() const {
  std::uint64_t pairs = 0;
  for (const std::uint32_t id : common_) {
    const std::uint64_t receiving = infer_.of(infer_.rows[id]).size();
    const std::uint64_t sending = copies_of(train_.of(train_.rows[id])).size();
    pairs += receiving * sending * topology_.engines;
  }
  return pairs;
}

// Of all receivers together: no other sum of bytes is larger.
Result<std::uint64_t> Repair::needed_bytes() const {
  std::uint64_t needed = 0;
  for (const std::uint32_t id : common_) {
    for (const Held& held : infer_.of(infer_.rows[id])) {
      const std::uint64_t bytes = elements(held.box.shape) * element_bytes(infer_.rows[id].dtype);
      std::uint64_t of_engines = 0;
      if (!__builtin_mul_overflow(bytes, topology_.engines, &of_engines) && of_engines < kBytesMax - needed) {
        needed += of_engines;
        continue;
      }
      return Error{ErrorCode::too_large,
                   fmt::format("with {} of shape {} all inference ranks together would hold 2^62 bytes or more: is a "
                               "size wrong?",
                               described(id), text(train_.rows[id].shape))};
    }
  }
  return needed;
}

void Repair::add_receivers(std::uint32_t id, const std::vector<std::vector<std::uint32_t>>& replicas,
                           Demand& demand) const {
  const auto receiving = infer_.of(infer_.rows[id]);
  demand.receivers.clear();
  demand.receiver_ranks.clear();
  for (const auto& replica : replicas) {
    std::vector<Box>& boxes = demand.receivers.emplace_back();
    std::vector<std::uint32_t>& ranks = demand.receiver_ranks.emplace_back();
    for (const std::uint32_t i : replica) {
      boxes.push_back(receiving[i].box);
      ranks.push_back(receiving[i].rank);
    }
  }
}

void Repair::demand(std::uint32_t id, std::uint64_t fine_bytes, const Reaches& reaches) {
  Demand demand;
  demand.element_bytes = element_bytes(train_.rows[id].dtype);
  const auto held = train_.of(train_.rows[id]);
  std::vector<std::vector<std::uint32_t>> sources;
  bool several = false;
  for (const auto& [box, copies] : copies_of(held)) {
    Demand::Part part{box, {}};
    for (const std::uint32_t i : copies) part.holders.push_back(held[i].rank);
    several = several || copies.size() > 1;
    demand.parts.push_back(std::move(part));
    sources.push_back(copies);
  }
  const std::uint64_t bytes = elements(train_.rows[id].shape) * demand.element_bytes;
  auto replicas = receiving_replicas(id, several && bytes > fine_bytes);
  add_receivers(id, replicas, demand);
  if (reaches && several && !all_reached(demand, topology_.engines, reaches)) {
    replicas = receiving_replicas(id, true);
    add_receivers(id, replicas, demand);
  }
  demands_.push_back(std::move(demand));
  sources_.push_back(std::move(sources));
  destinations_.push_back(std::move(replicas));
}

Tensor Repair::begin_tensor(std::uint32_t id, const Table& table, const Metadata& side) const {
  const Row& row = table.rows[id];
  Tensor tensor;
  tensor.name = names_[id];
  tensor.dtype = row.dtype;
  tensor.element_bytes = element_bytes(row.dtype);
  tensor.shape = train_.rows[id].present ? train_.rows[id].shape : row.shape;
  tensor.frame = row.frame;
  tensor.replica_frame = row.replica_frame;
  tensor.first_replica = static_cast<std::uint32_t>(side.replicas.size());
  return tensor;
}

Shard shard_of(const Held& held) {
  return {held.box, held.rank, held.frame};
}

void Repair::write_train(std::size_t place) {
  const std::uint32_t id = common_[place];
  Metadata& side = out_.train;
  Tensor tensor = begin_tensor(id, train_, side);
  const auto held = train_.of(train_.rows[id]);
  for (const std::vector<std::uint32_t>& chosen : demands_[place].chosen) {
    const auto first = static_cast<std::uint32_t>(side.shards.size());
    for (std::size_t p = 0; p < chosen.size(); ++p)
      side.shards.push_back(shard_of(held[sources_[place][p][chosen[p]]]));
    if (chosen.empty()) side.shards.push_back(shard_of(held.front()));
    side.replicas.push_back({first, static_cast<std::uint32_t>(side.shards.size()) - first});
  }
  tensor.replicas = static_cast<std::uint32_t>(side.replicas.size()) - tensor.first_replica;
  side.tensors.push_back(std::move(tensor));
}

void Repair::write_infer(std::uint32_t id, const std::vector<std::vector<std::uint32_t>>& replicas) {
  Metadata& side = out_.infer;
  Tensor tensor = begin_tensor(id, infer_, side);
  const auto held = infer_.of(infer_.rows[id]);
  for (const auto& replica : replicas) {
    side.replicas.push_back(
        {static_cast<std::uint32_t>(side.shards.size()), static_cast<std::uint32_t>(replica.size())});
    for (const std::uint32_t i : replica) side.shards.push_back(shard_of(held[i]));
  }
  tensor.replicas = static_cast<std::uint32_t>(replicas.size());
  side.tensors.push_back(std::move(tensor));
}

template <typename FrameType>
std::vector<FrameType> copied(const std::vector<const FrameType*>& frames) {
  std::vector<FrameType> all;
  all.reserve(frames.size());
  for (const FrameType* frame : frames) all.push_back(*frame);
  return all;
}

void copy_frames(const Table& table, Metadata& side) {
  side.shard_frames = copied(table.shard_frames);
  side.tensor_frames = copied(table.tensor_frames);
  side.replica_frames = copied(table.replica_frames);
}

Result<Repaired> Repair::run() {
  out_.topology = topology_;
  const std::uint64_t world = topology_.train_ranks + std::uint64_t{topology_.engine_ranks} * topology_.engines;
  if (world > Topology::kWorldMax)
    return Error{ErrorCode::too_large,
                 fmt::format("{} training ranks and {} engines of {} ranks are more than {} ranks: "
                             "is a world size wrong?",
                             topology_.train_ranks, topology_.engines, topology_.engine_ranks, Topology::kWorldMax)};
  check_train_workers(train_reports_, topology_, problems_);
  check_engines(infer_reports_, topology_, problems_);
  if (!problems_.empty()) return problems_.error();
  if (train_reports_.empty() || infer_reports_.empty()) return problems_.add("a side has no worker"), problems_.error();
  train_ = gather(train_reports_, Side::train, names_, problems_);
  infer_ = gather({infer_reports_.data(), 1}, Side::infer, names_, problems_);
  check_engines_alike();
  train_.rows.resize(names_.size());
  infer_.rows.resize(names_.size());
  if (!problems_.empty()) return problems_.error();
  SharedNames shared = share_names(names_, train_, infer_, problems_);
  common_ = std::move(shared.common);
  infer_only_ = std::move(shared.infer_only);
  for (const std::uint32_t id : common_) check_tensor(id);
  if (common_.empty() && problems_.empty()) problems_.add("no tensor is on both sides");
  if (!problems_.empty()) return problems_.error();

  if (const std::uint64_t pairs = pairs_of_parts(); pairs > kPairsMax)
    return Error{
        ErrorCode::too_large,
        fmt::format("{} pairs of sending and receiving parts are to be looked at, more than {}: cut tensors into "
                    "fewer parts",
                    pairs, kPairsMax)};
  const Result<std::uint64_t> needed = needed_bytes();
  if (!needed) return needed.error();
  const Reaches reaches = reach_of(topology_);
  for (const std::uint32_t id : common_) demand(id, *needed / topology_.train_ranks / kFinePart, reaches);
  out_.lower_bound = balance(demands_, topology_.engines, topology_.train_ranks, reaches).lower_bound;

  for (std::size_t place = 0; place < common_.size(); ++place) write_train(place);
  std::vector<std::uint32_t> listed;
  std::merge(common_.begin(), common_.end(), infer_only_.begin(), infer_only_.end(), std::back_inserter(listed),
             [this](std::uint32_t a, std::uint32_t b) { return names_[a] < names_[b]; });
  std::size_t place = 0;
  for (const std::uint32_t id : listed) {
    if (train_.rows[id].present) {
      write_infer(id, destinations_[place++]);
    } else {
      write_infer(id, receiving_replicas(id, false));
      out_.infer_only.emplace_back(names_[id]);
    }
  }
  copy_frames(train_, out_.train);
  copy_frames(infer_, out_.infer);
  return std::move(out_);
}

}  // namespace

Result<Repaired> repair(const std::vector<Report>& train, const std::vector<Report>& infer, const Topology& topology) {
  return Repair(train, infer, topology).run();
}

}  // namespace weighlock::awex
