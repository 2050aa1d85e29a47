// The dialect of vLLM, as release 0.32 speaks it in development mode. Pure; see conversation.hpp.
#pragma once

#include <memory>

#include "weighlock/engines/conversation.hpp"

namespace weighlock::vllm {

const DialectTraits& traits();
std::unique_ptr<Conversation> start(EngineTask task);

}  // namespace weighlock::vllm
