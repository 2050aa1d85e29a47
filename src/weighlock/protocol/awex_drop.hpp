// Internal to protocol/: how transfer groups end. Contract and rules as in awex.hpp.
//
// A trainer is told to leave its group by a teardown that names none. So those of which another gateway may have made a
// group since are not told, unless they are about to join one of ours.
#pragma once

#include "weighlock/protocol/context.hpp"

namespace weighlock::protocol {

// Whether they have a trainer in common.
bool share(const std::vector<std::string>& one, const std::vector<std::string>& other);
void record_dead_group(Context& context, const std::string& pair, const std::string& name, std::string_view why);
// Another gateway has the pair, or works on its workers: then their trainers are in a group of that one.
bool is_anothers(const State& state, const std::string& name);
// Of a group that is no pair's, or not any more. `are_told`: its trainers, to leave.
void drop(Context& context, const std::string& pair, const AwexSpec& awex, const TransferGroup& group,
          std::string_view why, bool are_told);
// The pair's group, if it has one.
void end_group(Context& context, const std::string& name, std::string_view why, bool are_told);
// These trainers are about to join a group of the pair: those that they may be in end.
void free_trainers(Context& context, const std::string& pair, const std::vector<std::string>& trainers);

}  // namespace weighlock::protocol
