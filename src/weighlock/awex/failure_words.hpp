// What a member of a group means by the words with which it failed. They are torch's, gloo's and NCCL's, which it
// passes on as its answer's text.
//
// Guesses: from the first depends the order in which members are named, from the second which port is tried next.
//
// Pure; any thread.
#pragma once

#include <string_view>

namespace weighlock::awex {

// Of another member: a time-out of the group, a connection that a peer closed.
bool tells_of_a_peer(std::string_view words);

// Of the port at which the group was to meet, which somebody else has.
bool tells_of_a_taken_port(std::string_view words);

}  // namespace weighlock::awex
