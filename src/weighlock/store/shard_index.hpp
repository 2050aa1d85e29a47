// `model.safetensors.index.json`: which shard holds which tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "weighlock/core/json.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock {

inline constexpr std::string_view kIndexName = "model.safetensors.index.json";

struct ShardIndex {
  std::map<std::string, std::string, std::less<>> shard_of;  // tensor -> file
  std::set<std::string, std::less<>> shards;
  std::optional<std::uint64_t> total_size;  // what the writer says; some are wrong
};

// Refuses duplicate tensors and file names that aren't plain names ending in ".safetensors". Failures are
// `checkpoint_invalid`.
Result<ShardIndex> parse_shard_index(std::string_view text, std::string_view what);

// A config of the Python world: JSON, in which NaN, Infinity and -Infinity are read as null. It must be an object.
Result<json::value> parse_config(std::string_view text, std::string_view what);

}  // namespace weighlock
