// Durable records, in order. The one place where the gateway's promises survive the gateway.
//
// Thread rule: any thread; calls are serialised inside. `append` and `read` block.
// A group given to `append` is there whole or not at all. After a failed append the journal takes nothing more: the
// caller ends the process, and the restart asks the disk what was true.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/protocol/record.hpp"

namespace weighlock {

struct JournalEntry {
  std::int64_t number = 0;   // from 1, without a gap
  std::int64_t wall_ms = 0;  // Unix time at which the group was appended; for display only
  protocol::Record record;
  std::string previous_hash;  // 64 hex digits
  std::string hash;
};

class Journal {
 public:
  virtual ~Journal() = default;

  // Returns once the group is durable. An empty group is a no-op. Errors: journal_failed.
  virtual Status append(std::vector<protocol::Record> group, std::int64_t wall_ms) = 0;
  // At most `limit` entries with number >= `from`, in order; empty when there is none. Errors: journal_failed,
  // journal_corrupt.
  virtual Result<std::vector<JournalEntry>> read(std::int64_t from, std::size_t limit) = 0;
  // 0 = empty. Never blocks on the disk.
  virtual std::int64_t last_number() const = 0;

  // True once the disk was full: what was put by for that is being used to bring running work to its end, and new work
  // is to be refused. Never blocks.
  virtual bool space_low() const { return false; }
  // Puts space by again if there is some, and tells whether there is. Blocks.
  virtual bool restore_space() { return true; }
};

}  // namespace weighlock
