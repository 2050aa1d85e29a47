// The engines' dialects: what each can do, and a conversation for each operation.
//
// Pure; see conversation.hpp for the contract. README.md has the table of operations and requests.
#pragma once

#include <memory>

#include "weighlock/core/operation.hpp"
#include "weighlock/engines/conversation.hpp"

namespace weighlock {

const DialectTraits& traits(DialectKind kind);

// Never null. An operation that the dialect doesn't have (load_empty on SGLang, a pause mode of another engine) ends at
// once: untouched, not_supported. `identify` is as read_state, with Outcome::dialect set.
std::unique_ptr<Conversation> start_conversation(DialectKind kind, EngineTask task);

// For dialect "auto": asks read-only routes which engine this is, then reads its state. Outcome::dialect is set when it
// is known, also if the state couldn't be read.
std::unique_ptr<Conversation> start_identify(Credentials credentials);

}  // namespace weighlock
