// Shards of tensors that a rank stores in some other form: transposed, stacked, fused, packed.
//
// Each function adds one rank's shards of the tensors as both sides call them (q, k, v; gate, up; each expert) with the
// places at which they lie in the rank's own tensor. Rows are elements of dimension 0; a row has the extent of all
// other dimensions together, so that biases (one dimension) go through the same functions.
//
// Pure; any thread. Errors: as Side::add_shard; invalid_argument where parts and tensors don't fit together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/layout.hpp"

namespace weighlock::reshard {

// Rows [rows.begin, rows.end) of a tensor, whole in all other dimensions.
struct Rows {
  TensorId tensor = 0;
  Interval rows;
};

// The matrix part `box`, stored with its two dimensions swapped, as a local tensor of its own.
Status add_transposed(Side& side, TensorId tensor, Rank rank, const Box& box, std::uint32_t owner = 0);

// One local tensor that has the rows of all parts, one part after the other: gate and up; q, k and v of one rank. Empty
// parts are left out.
Status add_stacked(Side& side, Rank rank, std::string buffer, std::span<const Rows> parts, std::uint32_t owner = 0);

// How Megatron stores q, k and v together: for each key-value head its query heads, then the key, then the value.
struct GroupedHeads {
  std::uint64_t query_heads = 0;
  std::uint64_t key_value_heads = 0;  // divides query_heads
  std::uint64_t head_rows = 0;        // rows of one head
  std::uint64_t rows() const { return (query_heads + 2 * key_value_heads) * head_rows; }
};

// Rows [rows.begin, rows.end) of the fused tensor, wherever they were cut: most ranks hold no key and no value where
// there are fewer key-value heads than ranks.
Status add_grouped_heads(Side& side, Rank rank, std::string buffer, const GroupedHeads& heads, TensorId query,
                         TensorId key, TensorId value, Interval rows, std::uint32_t owner = 0);

// Experts [experts.begin, experts.end) in one local tensor [experts, 2 * rows, columns]: each one's rows of gate, then
// the same rows of up. `gate` and `up` have all experts of the model, by number. An interval that is empty or reaches
// beyond them is an error: a rank that isn't numbered among the expert-parallel ones.
Status add_packed_experts(Side& side, Rank rank, std::string buffer, std::span<const TensorId> gate,
                          std::span<const TensorId> up, Interval experts, Interval rows, std::uint32_t owner = 0);

}  // namespace weighlock::reshard
