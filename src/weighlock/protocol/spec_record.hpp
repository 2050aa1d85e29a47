// A pair's spec, a policy and a version as they stand in the journal, and back. Pure.
//
// Whatever `PairSpec` or `Policy` gets, these must carry: a gateway that starts again knows only what stands there
// (spec_record_test sets every field). Reading is lax, since the journal is ours and may be of an earlier release: what
// is missing or strange keeps its default.
#pragma once

#include <optional>
#include <string_view>

#include "weighlock/core/json.hpp"
#include "weighlock/protocol/types.hpp"

namespace weighlock::protocol {

json::object policy_body(const Policy& policy);
Policy policy_from(JsonMembers body);

// Without the pair's name, which the record carries itself.
json::object spec_body(const PairSpec& spec);
PairSpec spec_from(JsonMembers body);

json::object version_body(const VersionRef& version);
VersionRef version_from(JsonMembers body);

json::value cause_body(const std::optional<Cause>& cause);  // null: none
std::optional<Cause> cause_from(const json::value* body, Instant since);

// The word of an enumeration back to its value; `fallback` for a word that this build doesn't know.
template <typename E>
E enum_from(std::string_view word, E last, E fallback) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (name(static_cast<E>(i)) == word) return static_cast<E>(i);
  }
  return fallback;
}

// Members of one body, with a default for what isn't there.
std::string_view text_of(JsonMembers body, std::string_view key, std::string_view fallback = "");
std::int64_t number_of(JsonMembers body, std::string_view key, std::int64_t fallback = 0);
bool flag_of(JsonMembers body, std::string_view key, bool fallback = false);
const json::array& list_of(JsonMembers body, std::string_view key);

}  // namespace weighlock::protocol
