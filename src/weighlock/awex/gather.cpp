#include "weighlock/awex/gather.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "weighlock/core/words.hpp"

namespace weighlock::awex {
namespace {

std::size_t rank_of(const Report& report, const ReportedTensor& tensor) {
  return static_cast<std::size_t>(report.shard_frames[report.shards[tensor.first_shard].frame].global_rank);
}

// The first entry of a tensor fills its row, the others must agree with it.
void admit(Row& row, const Report& report, const ReportedTensor& tensor, const Row& offered, Side side,
           Problems& problems) {
  const std::string_view dtype = report.strings[tensor.dtype];
  const std::size_t rank = rank_of(report, tensor);
  if (!row.present) {
    row = offered;
    row.present = true;
    row.dtype = dtype;
    row.shape = tensor.shape;
    row.rank = static_cast<std::uint32_t>(rank);
    return;
  }
  const std::string name = printable(report.strings[tensor.name]);
  if (row.dtype != dtype)
    problems.add(fmt::format("tensor '{}' is {} on {} {} and {} on {}: convert it to one dtype", name,
                             printable(row.dtype), ranks_word(side), row.rank, printable(dtype), rank));
  if (side == Side::train && !(row.shape == tensor.shape))
    problems.add(
        fmt::format("tensor '{}' has the global shape {} on {} {} and {} on {}: all ranks must report the whole "
                    "tensor's shape",
                    name, text(row.shape), ranks_word(side), row.rank, text(tensor.shape), rank));
  if (row.shape.size() != tensor.shape.size())
    problems.add(fmt::format("tensor '{}' has {} dimensions on {} {} and {} on {}", name, row.shape.size(),
                             ranks_word(side), row.rank, tensor.shape.size(), rank));
}

void look_for_twice(Table& table, const Names& names, Side side, Problems& problems) {
  for (std::uint32_t id = 0; id < table.rows.size(); ++id) {
    const auto held = table.of(table.rows[id]);
    std::stable_sort(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.rank < b.rank; });
    const auto twice =
        std::adjacent_find(held.begin(), held.end(), [](const Held& a, const Held& b) { return a.rank == b.rank; });
    if (twice == held.end()) continue;
    problems.add(
        fmt::format("tensor '{}' is reported twice by one of the {}, {}: duplicate {} and {}; a worker has one "
                    "tensor of a name (virtual pipeline stages must number their layers through the model)",
                    printable(names[id]), ranks_word(side), twice->rank, text(twice->box), text((twice + 1)->box)));
  }
}

}  // namespace

std::uint32_t Names::put(std::string_view name) {
  const auto [found, added] = ids_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
  if (added) names_.push_back(name);
  return found->second;
}

std::string_view ranks_word(Side side) {
  return side == Side::train ? "train ranks" : "inference ranks";
}

Error Problems::error() const {
  std::string all = fmt::format("AWEX metadata can't be planned: {} problem{}", count_, count_ == 1 ? "" : "s");
  for (const std::string& one : named_) all += (&one == &named_.front() ? ": " : "; ") + one;
  if (count_ > named_.size()) all += fmt::format("; and {} more", count_ - named_.size());
  return Error{ErrorCode::invalid_argument, std::move(all)};
}

Table gather(std::span<const Report> reports, Side side, Names& names, Problems& problems) {
  Table table;
  std::vector<std::vector<std::uint32_t>> ids(reports.size());  // of each report's tensors
  std::vector<std::size_t> counts(names.size());
  for (std::size_t r = 0; r < reports.size(); ++r) {
    ids[r].reserve(reports[r].tensors.size());
    for (const ReportedTensor& tensor : reports[r].tensors) {
      const std::uint32_t id = names.put(reports[r].strings[tensor.name]);
      if (id >= counts.size()) counts.resize(id + 1);
      counts[id] += tensor.shards;
      ids[r].push_back(id);
    }
  }
  table.rows.resize(names.size());
  counts.resize(names.size());
  std::vector<std::size_t> next(names.size());
  std::size_t total = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) next[id] = std::exchange(total, total + counts[id]);
  const std::vector<std::size_t> begins = next;
  table.held.resize(total);
  for (std::size_t r = 0; r < reports.size(); ++r) {
    const Report& report = reports[r];
    const auto base = [](const auto& frames) { return static_cast<std::uint32_t>(frames.size()); };
    const std::uint32_t shards = base(table.shard_frames), tensors = base(table.tensor_frames),
                        replicas = base(table.replica_frames);
    for (const ShardFrame& frame : report.shard_frames) table.shard_frames.push_back(&frame);
    for (const Frame& frame : report.tensor_frames) table.tensor_frames.push_back(&frame);
    for (const Frame& frame : report.replica_frames) table.replica_frames.push_back(&frame);
    for (std::size_t t = 0; t < report.tensors.size(); ++t) {
      const ReportedTensor& tensor = report.tensors[t];
      const std::uint32_t id = ids[r][t];
      Row offered;
      offered.frame = tensors + tensor.frame;
      offered.replica_frame = replicas + tensor.replica;
      offered.begin = begins[id];
      offered.end = begins[id] + counts[id];
      admit(table.rows[id], report, tensor, offered, side, problems);
      for (std::uint32_t s = 0; s < tensor.shards; ++s) {
        const ReportedShard& shard = report.shards[tensor.first_shard + s];
        const auto rank = static_cast<std::uint32_t>(report.shard_frames[shard.frame].global_rank);
        table.held[next[id]++] = Held{shard.box, rank, shards + shard.frame};
      }
    }
  }
  look_for_twice(table, names, side, problems);
  return table;
}

}  // namespace weighlock::awex
