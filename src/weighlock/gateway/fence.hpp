// The fence hook: tells whoever routes traffic that a worker may not serve. Best effort: a failure is logged, nothing
// waits.
//
// A program is run as `PROGRAM WORKER_URL PAIR CAUSE_CODE MESSAGE`, without a shell; a URL gets a POST of
// {"worker", "pair", "cause": {"code", "message"}}. Either has kFenceTimeout.
// Thread rule: loop thread only; programs are waited for on `pool`.
#pragma once

#include <string>

#include "weighlock/net/client.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/runtime/pool.hpp"

namespace weighlock {

inline constexpr Milliseconds kFenceTimeout{10'000};  // a router's or an orchestrator's API answers in less

// Sends one fence. `hook`: absolute path of a program, http(s) URL, or "" for none.
void run_fence(const std::string& hook, const protocol::Fence& fence, HttpClient& http, Pool& pool);

}  // namespace weighlock
