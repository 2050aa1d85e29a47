// Whether rows, read in order, are one whole journal: no number missing, none altered, each linked to the one before.
// Pure.
//
// After a fault the check goes on from the row that it met, so each damage is told once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/result.hpp"
#include "weighlock/journal/encoding.hpp"

namespace weighlock {

enum class JournalDamage { missing, altered, unlinked, unreadable };
std::string_view name(JournalDamage damage);

struct JournalFault {
  std::int64_t number = 0;  // of the first record concerned
  JournalDamage damage = JournalDamage::altered;
  std::string text;  // names the record, what was expected and what was found
};

class ChainCheck {
 public:
  // What is wrong with the row, or between it and the one before. `entry` is what decode_row made of it.
  std::vector<JournalFault> take(std::int64_t number, std::string_view previous, std::string_view hash,
                                 const Result<JournalEntry>& entry);
  std::int64_t last_number() const { return last_number_; }
  const std::string& last_hash() const { return last_hash_; }  // raw

 private:
  std::int64_t last_number_ = 0;
  std::string last_hash_ = std::string(kJournalHashBytes, '\0');
};

}  // namespace weighlock
