#include "weighlock/journal/memory_journal.hpp"

#include <mutex>
#include <utility>

#include "weighlock/journal/encoding.hpp"

namespace weighlock {

struct MemoryJournal::Implementation {
  struct Row {
    std::string previous;
    std::string hash;
    std::string body;
  };
  mutable std::mutex mutex;
  std::vector<Row> rows;  // record n at n - 1
  bool broken = false;
};

MemoryJournal::MemoryJournal() : implementation_(std::make_unique<Implementation>()) {}
MemoryJournal::~MemoryJournal() = default;

Status MemoryJournal::append(std::vector<protocol::Record> group, std::int64_t wall_ms) {
  const std::lock_guard lock(implementation_->mutex);
  if (implementation_->broken)
    return Error{ErrorCode::journal_failed, "journal in memory: the disk was declared broken"};
  auto& rows = implementation_->rows;
  for (const protocol::Record& record : group) {
    std::string previous = rows.empty() ? std::string(kJournalHashBytes, '\0') : rows.back().hash;
    std::string body = encode_record(record, wall_ms);
    std::string hash = chain_hash(static_cast<std::int64_t>(rows.size()) + 1, previous, body);
    rows.push_back({std::move(previous), std::move(hash), std::move(body)});
  }
  return {};
}

Result<std::vector<JournalEntry>> MemoryJournal::read(std::int64_t from, std::size_t limit) {
  const std::lock_guard lock(implementation_->mutex);
  std::vector<JournalEntry> out;
  const auto& rows = implementation_->rows;
  for (std::int64_t number = std::max<std::int64_t>(from, 1);
       number <= static_cast<std::int64_t>(rows.size()) && out.size() < limit; ++number) {
    const auto& row = rows[static_cast<std::size_t>(number - 1)];
    Result<JournalEntry> entry = decode_row(number, row.previous, row.hash, row.body);
    if (!entry) return std::move(entry).error();
    out.push_back(*std::move(entry));
  }
  return out;
}

std::int64_t MemoryJournal::last_number() const {
  const std::lock_guard lock(implementation_->mutex);
  return static_cast<std::int64_t>(implementation_->rows.size());
}

void MemoryJournal::break_disk() {
  const std::lock_guard lock(implementation_->mutex);
  implementation_->broken = true;
}

}  // namespace weighlock
