// What a policy asks of a worker that its dialect can't do (protocol.md sections 4 and 11).
//
// Who refuses says it in these words: a connect, where the dialect is known by then; an update, before anyone is
// paused; and the watch, of a worker that isn't brought back. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weighlock/protocol/types.hpp"

namespace weighlock::protocol {

// Whether the versions' files can be compared with what an engine holds. A transfer has none, and what lies on a blind
// storage isn't seen: the best is a label then.
enum class Files { seen, unseen };

// Why the evidence that is asked for can't be had of `worker`, with the remedy; none if it can, or none is asked for.
std::optional<std::string> why_unprovable(const Policy& policy, const DialectTraits& traits, std::string_view worker,
                                          Files files);
// Likewise of all that an update asks: the mode of its pause, too.
std::optional<std::string> why_unfit(const Policy& policy, const DialectTraits& traits, std::string_view worker,
                                     Files files);

}  // namespace weighlock::protocol
