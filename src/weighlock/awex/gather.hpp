// All reports of one side as one table: by tensor, then by rank.
//
// Private to this folder; pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weighlock/awex/problems.hpp"
#include "weighlock/awex/repair.hpp"

namespace weighlock::awex {

// Every tensor's name once, for both sides. The names point into the reports.
class Names {
 public:
  std::uint32_t put(std::string_view name);
  std::string_view operator[](std::uint32_t id) const { return names_[id]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
};

struct Held {
  Box box;
  std::uint32_t rank = 0;
  std::uint32_t frame = 0;  // into Table::shard_frames
};

struct Row {
  bool present = false;
  std::string_view dtype;
  Extents shape;
  std::uint32_t frame = 0, replica_frame = 0;
  std::uint32_t rank = 0;          // whose entry this was first
  std::size_t begin = 0, end = 0;  // of `held`
};

// The frames are numbered through all reports.
struct Table {
  std::vector<Row> rows;  // by name's number
  std::vector<Held> held;
  std::vector<const ShardFrame*> shard_frames;
  std::vector<const Frame*> tensor_frames, replica_frames;

  std::span<Held> of(const Row& row) { return {held.data() + row.begin, row.end - row.begin}; }
  std::span<const Held> of(const Row& row) const { return {held.data() + row.begin, row.end - row.begin}; }
};

// "train ranks" or "inference ranks".
std::string_view ranks_word(Side side);

// Gathers and looks: a name that one rank reports twice, entries of one tensor that differ in shape or dtype. Different
// shapes on the inference side are left for parts.hpp, since SGLang multiplies an uneven shard.
Table gather(std::span<const Report> reports, Side side, Names& names, Problems& problems);

}  // namespace weighlock::awex
