// What one rank sends to another, cut into buckets of a fixed size.
//
// An operation's elements are packed, in C order; the stream of a pair is the bytes of its operations one after the
// other. It may be cut at any byte, so a tensor, a row or an element larger than the bucket is no problem.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/reshard/plan.hpp"

namespace weighlock::reshard {

// Bytes [begin, begin + bytes) of one operation's packed elements.
struct BucketRun {
  std::uint32_t operation = 0;  // into what cut_into_buckets was given
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// Runs by bucket, in the order of the stream: all but the last are full. Error: invalid_argument for a bucket of 0
// bytes.
Result<std::vector<std::vector<BucketRun>>> cut_into_buckets(const Side& targets, const Plan& plan,
                                                             std::span<const Operation> operations,
                                                             std::uint64_t bucket_bytes);

}  // namespace weighlock::reshard
