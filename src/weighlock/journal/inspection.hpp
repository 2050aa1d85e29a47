// A journal read from outside, whatever state it is in: each record that can be read, and each damage.
//
// The files are never changed and no lock is taken: they are copied into a temporary directory first, so a gateway that
// has them open goes on. The copy is of one moment: it is made again while a checkpoint passes over the files.
// Blocks; any thread. Needs as much temporary space as the journal has.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/journal/chain.hpp"

namespace weighlock {

struct InspectedRow {
  std::int64_t number = 0;
  std::optional<JournalEntry> entry;  // none: its content can't be trusted
  std::string body;                   // as stored
  std::vector<JournalFault> faults;   // of this row, or of the gap before it
};

struct JournalInspection {
  std::string path;  // of the database
  std::int64_t readable = 0;
  std::int64_t good_before = 0;      // records 1 to this one are whole
  std::vector<JournalFault> faults;  // all of them, in order
};

// `place`: a state directory, or the database itself. `seen` gets every row that there is, in order. Errors: not_found,
// journal_failed (it can't be copied or opened), journal_corrupt (it is no journal at all).
Result<JournalInspection> inspect_journal(const std::string& place,
                                          const std::function<void(const InspectedRow&)>& seen);

}  // namespace weighlock
