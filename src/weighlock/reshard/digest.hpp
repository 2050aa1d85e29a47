// One number for a whole plan, by which ranks that planned in different places see that they agree before the first
// byte.
//
// XXH3-128 (seed 0) over these bytes, numbers as 64 bits little-endian: the word "weighlock plan 1\n"; the ranks of
// both sides; then for each operation in the plan's order: stage, sender, receiver, the tensor's place in the order of
// names, dimensions, and for each dimension the offset in the source part, in the target part, and the extent; the
// begin and end of both parts; and at the end the target tensors in the order of names: the name's length and bytes,
// and the dtype's name likewise. Not the order in which tensors and shards were described.
#pragma once

#include <string>

#include "weighlock/reshard/plan.hpp"

namespace weighlock::reshard {

// 32 hexadecimal digits. `plan` is arranged.
std::string digest_of(const Side& sources, const Side& targets, const Plan& plan);

}  // namespace weighlock::reshard
