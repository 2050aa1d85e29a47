// Which ranks of a colocated group exchange anything at all.
//
// Colocated engines pass parts on among themselves, each those of the trainer on its device, in rounds: the ranks are
// halved, either half sends to the other, and each half is halved again, floor(log2(ranks)) times. Of a number of ranks
// that is no power of two some pairs are never in different halves of one part, and what the plan has between them is
// left out by both, without an error. Source: the stream-batch transport of `awex` 0.9.0, which AReaL's colocated
// adapter uses; tests/awexplan compares this with it.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>

#include "weighlock/awex/repair.hpp"
#include "weighlock/core/result.hpp"

namespace weighlock::awex {

// Whether one of a colocated group's `ranks` engine ranks ever sends to the other; true for a rank and itself, which
// copies. Both are less than `ranks`.
bool ranks_meet(std::uint32_t one, std::uint32_t other, std::uint32_t ranks);

// Whether the part of a training rank gets to an engine's rank.
using Reaches = std::function<bool(std::uint32_t train_rank, std::uint32_t engine, std::uint32_t rank)>;
// None where each gets to each: groups that aren't colocated, and those of a power of two. Nor where the sides have
// different numbers of ranks, which workers refuse by themselves.
Reaches reach_of(const Topology& topology);

// Refuses lists of which some operation would never be carried out (invalid_argument, with the tensor and both ranks).
Status check_reach(const Repaired& repaired);

}  // namespace weighlock::awex
