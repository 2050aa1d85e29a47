#include "weighlock/journal/chain.hpp"

#include <fmt/format.h>

namespace weighlock {

std::string_view name(JournalDamage damage) {
  switch (damage) {
    case JournalDamage::missing:
      return "missing";
    case JournalDamage::altered:
      return "altered";
    case JournalDamage::unlinked:
      return "unlinked";
    case JournalDamage::unreadable:
      return "unreadable";
  }
  return "";
}

std::vector<JournalFault> ChainCheck::take(std::int64_t number, std::string_view previous, std::string_view hash,
                                           const Result<JournalEntry>& entry) {
  std::vector<JournalFault> faults;
  const std::int64_t wanted = last_number_ + 1;
  if (number != wanted) {
    const std::string which = number - wanted > 1 ? fmt::format("records {} to {} are", wanted, number - 1)
                                                  : fmt::format("record {} is", wanted);
    faults.push_back(
        {wanted, JournalDamage::missing,
         fmt::format("{} missing: {} comes after {}, and {} was expected", which, number, last_number_, wanted)});
  } else if (previous != last_hash_) {
    faults.push_back({number, JournalDamage::unlinked,
                      fmt::format("record {} doesn't follow record {}: one of them was altered (it names {} as the "
                                  "hash before it, and {} was expected)",
                                  number, last_number_, short_hash(previous), short_hash(last_hash_))});
  }
  if (!entry) faults.push_back({number, JournalDamage::altered, entry.error().message});
  last_number_ = number;
  last_hash_ = hash;
  return faults;
}

}  // namespace weighlock
