// The journal on disk: one SQLite file, one connection, one process. README.md has the layout and the reasons.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "weighlock/journal/journal.hpp"

namespace weighlock {

class SqliteJournal : public Journal {
 public:
  struct Settings {
    std::string directory;                          // made (0700) if it isn't there
    std::uint64_t reserve_bytes = 8 * 1024 * 1024;  // an update of a thousand workers writes about 4 MB of records
    int holder = 0;                                 // the process to name to who comes second; 0: this one
    int pages_max = 0;                              // 0 = no limit; tests make the disk full with it
  };

  // Takes the lock, opens, verifies the whole chain. Errors: conflict (another process has it), journal_failed,
  // journal_corrupt (which record, and what can still be read).
  static Result<std::unique_ptr<SqliteJournal>> open(Settings settings);
  ~SqliteJournal() override;

  Status append(std::vector<protocol::Record> group, std::int64_t wall_ms) override;
  Result<std::vector<JournalEntry>> read(std::int64_t from, std::size_t limit) override;
  std::int64_t last_number() const override;
  bool space_low() const override;
  bool restore_space() override;

 private:
  struct Implementation;
  explicit SqliteJournal(std::unique_ptr<Implementation> implementation);
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
