#include "weighlock/awex/report_parts.hpp"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace weighlock::awex {

void append_member(std::string& members, std::string_view key, std::string_view raw) {
  if (!members.empty()) members.push_back(',');
  members.push_back('"');
  members += key;
  members += "\":";
  members += raw;
}

bool elements_fit(const Extents& shape, std::uint64_t most, std::uint64_t& product) {
  product = 1;
  for (const std::uint64_t extent : shape) {
    if (extent != 0 && product > most / extent) return false;
    product *= extent;
  }
  return true;
}

std::uint32_t StringPool::put(std::string_view text) {
  if (last_ < strings_.size() && strings_[last_] == text) return last_;
  const auto found = index_.find(text);
  if (found != index_.end()) return last_ = found->second;
  last_ = static_cast<std::uint32_t>(strings_.size());
  strings_.emplace_back(text);
  index_.emplace(strings_.back(), last_);
  return last_;
}

std::vector<std::string> StringPool::take() {
  index_.clear();
  return {std::make_move_iterator(strings_.begin()), std::make_move_iterator(strings_.end())};
}

std::optional<ShardNumbers::Which> ShardNumbers::from(std::string_view key) {
  switch (key.size()) {
    case 7:
      if (key == "tp_rank") return tp_rank;
      if (key == "cp_size") return cp_size;
      return key == "pp_rank" ? std::optional(pp_rank) : std::nullopt;
    case 10:
      if (key == "world_size") return world_size;
      return key == "num_shards" ? std::optional(num_shards) : std::nullopt;
    case 11:
      return key == "global_rank" ? std::optional(global_rank) : std::nullopt;
    case 12:
      return key == "sharding_dim" ? std::optional(sharding_dim) : std::nullopt;
    default:
      return std::nullopt;
  }
}

template <typename Make, typename Pool>
std::optional<std::uint32_t> FramePools::put(Index& index, Pool& pool, const std::string& outer,
                                             const std::string& members, Make&& make) {
  key_.assign(outer).append(1, '\n').append(members);
  if (key_ == index.last_text) return index.last;
  auto found = index.numbers.find(key_);
  if (found == index.numbers.end()) {
    if (pool.size() == frames_max_) return std::nullopt;
    found = index.numbers.emplace(key_, static_cast<std::uint32_t>(pool.size())).first;
    pool.push_back(make());
  }
  index.last_text = key_;
  return index.last = found->second;
}

std::optional<std::uint32_t> FramePools::shard(const std::string& outer, const std::string& members,
                                               const ShardNumbers& n) {
  return put(shard_index_, shards_, outer, members, [&] {
    return ShardFrame{outer,
                      members,
                      n[ShardNumbers::tp_rank],
                      n[ShardNumbers::pp_rank],
                      n[ShardNumbers::global_rank],
                      n[ShardNumbers::world_size],
                      n[ShardNumbers::num_shards],
                      n[ShardNumbers::sharding_dim],
                      n[ShardNumbers::cp_size]};
  });
}

std::optional<std::uint32_t> FramePools::tensor(const std::string& outer, const std::string& members) {
  return put(tensor_index_, tensors_, outer, members, [&] { return Frame{outer, members}; });
}

std::optional<std::uint32_t> FramePools::replica(const std::string& outer, const std::string& members) {
  return put(replica_index_, replicas_, outer, members, [&] { return Frame{outer, members}; });
}

std::string FramePools::too_many() const {
  return fmt::format("more than {} ways of writing the members that aren't known here", frames_max_);
}

void FramePools::take(Report& report) {
  report.shard_frames = std::move(shards_);
  report.tensor_frames = std::move(tensors_);
  report.replica_frames = std::move(replicas_);
}

}  // namespace weighlock::awex
