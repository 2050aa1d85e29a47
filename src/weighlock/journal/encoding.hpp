// The bytes of a record and its link in the chain; README.md has the layout. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "weighlock/core/result.hpp"
#include "weighlock/journal/journal.hpp"

namespace weighlock {

inline constexpr std::size_t kJournalHashBytes = 32;

// Canonical text of one record. Never fails: bytes that are not UTF-8 become U+FFFD.
std::string encode_record(const protocol::Record& record, std::int64_t wall_ms);

// 32 raw bytes. `previous` is raw, too; 32 zero bytes before record 1.
std::string chain_hash(std::int64_t number, std::string_view previous, std::string_view body);

// The first digits of a hash, for people.
std::string short_hash(std::string_view raw);

// The entry of a stored row. Checks the hash. Errors: journal_corrupt, naming the number.
Result<JournalEntry> decode_row(std::int64_t number, std::string_view previous, std::string_view hash,
                                std::string_view body);

}  // namespace weighlock
