// The plan of a transfer: who sends which part of which tensor to whom, in which order.
//
// make_plan takes the two sides and returns every rank's operations at once. Of copies of the same part the least
// loaded holder sends: the busiest sender stays within 1/64 of the least that any assignment could reach with these
// sources (an operation is cut where that takes it), but for the rest of an element. The result depends on nothing but
// the layouts: equal layouts give equal plans with equal digests, wherever they are made.
//
// Between two ranks nothing but the order says which bytes belong where, so the order is part of the plan: sends_of and
// receives_of list the operations of one pair in the same order. What one operation moves are the elements of its box
// in C order of the tensor's own dimensions, however either side stores them: a transposition happens by reading with
// the sender's strides and writing with the receiver's, once.
//
// Refused, with tensor, ranks and the hole or overlap named: tensors that one side lacks, other shapes or dtypes, a
// part that no source holds ("hole [8,10)") or that no target wants, one part claimed by two owners, two target parts
// in one place of memory; too_large for layouts whose targets would receive 2^62 bytes. Errors: invalid_argument else.
//
// A made plan has not been proved: prove.hpp looks at any plan, whoever made it.
// Pure; any thread; a Plan owns all it has and refers to shards of the two sides by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/layout.hpp"

namespace weighlock::reshard {

enum class Stage : std::uint8_t {
  transfer,  // from a source rank to a target rank
  fan_out,   // from a target rank to another one on its host, once the former has all of that part
};

struct Operation {
  Rank sender = 0;       // of the source side; in the fan-out of the target side
  Rank receiver = 0;     // of the target side
  TensorId tensor = 0;   // of the target side
  ShardId source = 0;    // a shard of the sender
  ShardId target = 0;    // a shard of the receiver
  std::uint32_t at = 0;  // of its coordinates: Plan::extent and the other two
  Stage stage = Stage::transfer;
  std::uint8_t dimensions = 0;
};

struct PlanOptions {
  // Of what several ranks of a host hold alike one gets a copy from the sources, and passes it on. Needs the target
  // side's hosts.
  bool one_copy_per_host = false;
  // A source tensor that no target names is left out rather than refused.
  bool unused_sources_allowed = false;
};

class Plan {
 public:
  // Bytes that the busiest sender sends at least, whoever assigns (balance.hpp says which bound it is).
  std::uint64_t lower_bound_bytes = 0;
  std::uint32_t capable_senders = 0;  // source ranks that hold anything that is needed
  std::uint32_t unused_sources = 0;   // tensors
  // Of the whole plan: 32 hexadecimal digits of XXH3-128 over all operations and names.
  std::string digest;

  // By stage, sender, receiver, then in the order of the pair: by name, target part, coordinates.
  std::span<const Operation> operations() const { return operations_; }
  // Coordinates of an operation's box: relative to the source shard's and the target shard's box, and its size.
  std::span<const std::uint64_t> source_offset(const Operation& of) const { return numbers(of, 0); }
  std::span<const std::uint64_t> target_offset(const Operation& of) const { return numbers(of, 1); }
  std::span<const std::uint64_t> extent(const Operation& of) const { return numbers(of, 2); }
  std::uint64_t elements(const Operation& of) const;

  // One rank's operations in the order in which it performs them: by peer, then in the order of the pair.
  std::span<const Operation> sends_of(Rank sender, Stage stage = Stage::transfer) const;
  std::vector<Operation> receives_of(Rank receiver, Stage stage = Stage::transfer) const;

  // For makers of plans, and for tests that spoil one. `box` is in the tensor's own coordinates; it lies in both
  // shards.
  void add(const Side& sources, const Side& targets, Stage stage, ShardId source, ShardId target, const Box& box);
  // Puts the operations into order. `place_of_tensor` is each target tensor's place in the order of names.
  void arrange(std::span<const std::uint32_t> place_of_tensor, std::uint32_t target_ranks);
  void reserve(std::size_t operations, std::size_t dimensions);
  std::vector<Operation>& mutable_operations() { return operations_; }
  std::vector<std::uint64_t>& mutable_numbers() { return numbers_; }

 private:
  std::span<const std::uint64_t> numbers(const Operation& of, std::size_t which) const {
    return std::span(numbers_).subspan(of.at + which * of.dimensions, of.dimensions);
  }

  std::vector<Operation> operations_;
  std::vector<std::uint64_t> numbers_;
  std::vector<std::uint32_t> received_;       // numbers of operations, by stage, receiver, sender, order of the pair
  std::vector<std::uint32_t> receiver_ends_;  // for each stage and receiver, where its part of received_ ends
};

Result<Plan> make_plan(const Side& sources, const Side& targets, const PlanOptions& options = {});

}  // namespace weighlock::reshard
