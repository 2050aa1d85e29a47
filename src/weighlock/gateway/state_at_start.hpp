// What a gateway starts with: the journal read back.
#pragma once

#include <cstdint>

#include "weighlock/core/result.hpp"
#include "weighlock/gateway/credentials.hpp"
#include "weighlock/journal/journal.hpp"
#include "weighlock/protocol/replay.hpp"

namespace weighlock {

// The two readings of one moment by which times of records are shown.
struct StartTime {
  Instant now;
  std::int64_t unix_ms = 0;
};

// Blocks on the disk. `boot`: this start's name. Errors: journal_failed, journal_corrupt.
Result<protocol::State> read_state(Journal& journal, const protocol::Dialects& dialects, std::string boot,
                                   StartTime start);

// Looks up the keys that the pairs' workers name by reference. One that isn't there any more is said in the log: its
// worker will refuse the calls, and its cause says so too.
void restore_credentials(const protocol::State& state, CredentialStore& credentials);

}  // namespace weighlock
