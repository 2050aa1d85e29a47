// The journal's twin in memory: the same order, chain and errors, nothing on disk.
#pragma once

#include <memory>
#include <optional>

#include "weighlock/journal/journal.hpp"

namespace weighlock {

class MemoryJournal : public Journal {
 public:
  MemoryJournal();
  ~MemoryJournal() override;
  Status append(std::vector<protocol::Record> group, std::int64_t wall_ms) override;
  Result<std::vector<JournalEntry>> read(std::int64_t from, std::size_t limit) override;
  std::int64_t last_number() const override;

  // The next append fails as a disk would, and so do all later ones.
  void break_disk();

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
