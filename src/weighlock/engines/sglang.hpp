// The dialect of SGLang, as release 0.5.23 speaks it. Pure; see conversation.hpp.
#pragma once

#include <memory>

#include "weighlock/engines/conversation.hpp"

namespace weighlock::sglang {

const DialectTraits& traits();
std::unique_ptr<Conversation> start(EngineTask task);

}  // namespace weighlock::sglang
