// What report.cpp collects while it reads: strings and frames once each, a shard's numbers.
//
// Private to this folder; one parse owns one of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weighlock/awex/report.hpp"

namespace weighlock::awex {

// Appends "key":value, with a comma before it where something is there.
void append_member(std::string& members, std::string_view key, std::string_view raw);

// Whether a shape's elements are at most `most`, each product on the way too; `product` is set if so.
bool elements_fit(const Extents& shape, std::uint64_t most, std::uint64_t& product);

class StringPool {
 public:
  std::uint32_t put(std::string_view text);
  std::vector<std::string> take();

 private:
  std::deque<std::string> strings_;  // stays where it is: the index's keys point into it
  std::unordered_map<std::string_view, std::uint32_t> index_;
  std::uint32_t last_ = 0;
};

// The whole numbers of a shard's "data" that are looked at here.
struct ShardNumbers {
  enum Which : std::size_t { tp_rank, pp_rank, global_rank, world_size, num_shards, sharding_dim, cp_size, kCount };
  std::array<std::int64_t, kCount> values{0, 0, 0, -1, 1, 0, 1};  // -1: the world's size isn't told
  std::uint32_t seen = 0;

  static std::optional<Which> from(std::string_view key);
  std::int64_t operator[](Which which) const { return values[which]; }
  bool has(Which which) const { return (seen & (1u << which)) != 0; }
};

class FramePools {
 public:
  explicit FramePools(const ReportLimits& limits) : frames_max_(limits.frames_max) {}
  // Nothing when there are too many of them.
  std::optional<std::uint32_t> shard(const std::string& outer, const std::string& members, const ShardNumbers& numbers);
  std::optional<std::uint32_t> tensor(const std::string& outer, const std::string& members);
  std::optional<std::uint32_t> replica(const std::string& outer, const std::string& members);
  std::string too_many() const;
  void take(Report& report);

 private:
  // Text of a frame -> its number; `last` spares the lookup for the usual case of the same again.
  struct Index {
    std::unordered_map<std::string, std::uint32_t> numbers;
    std::string last_text;
    std::uint32_t last = 0;
  };
  template <typename Make, typename Pool>
  std::optional<std::uint32_t> put(Index& index, Pool& pool, const std::string& outer, const std::string& members,
                                   Make&& make);

  std::size_t frames_max_;
  std::string key_;
  Index shard_index_, tensor_index_, replica_index_;
  std::vector<ShardFrame> shards_;
  std::vector<Frame> tensors_, replicas_;
};

}  // namespace weighlock::awex
