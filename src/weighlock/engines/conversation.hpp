// One operation with one engine, from its first request to its outcome: the interface between a dialect and whoever
// carries the requests.
//
// Contract: call `begin` once, then `next` with what each request ended with, until an Outcome comes back. A caller
// that gives up on a request says so with a TransportError (timeout, cancelled) and gets the Outcome that this
// deserves; a conversation never waits and never repeats a request that may have changed something. Thread rule: pure
// values, no I/O, no clock; one conversation is used by one thread at a time. The caller owns it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "weighlock/core/http.hpp"
#include "weighlock/core/operation.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock {

struct Step {
  HttpRequest request;
  // Never on a connection that was used before: for a barrier, which must not overtake what is still on its way on an
  // older connection.
  bool fresh_connection = false;
  // On a new connection, or on one that answered moments ago: for what changes something, so that it isn't sent into a
  // connection that the engine is closing for having been idle. One that was used shows more than a new one does: the
  // process at its other end is the one that answered.
  bool recent_connection = false;
  // Given up after so long, though the operation has more time.
  std::optional<Milliseconds> at_most = std::nullopt;
};

using Turn = std::variant<Step, Outcome>;

class Conversation {
 public:
  virtual ~Conversation() = default;
  virtual Turn begin() = 0;
  virtual Turn next(const HttpResult& answer) = 0;
};

// Keys of one engine; "" sends no header. SGLang takes the admin key on control routes and the api key on reads and
// generation when both are set on its side; with one key set, that key everywhere. Hence the rule for all dialects:
// control routes get the admin key, or the api key if there is no other; the rest get the api key, or the admin key.
struct Credentials {
  std::string admin_key;
  std::string api_key;
};

struct EngineTask {
  Operation operation;
  Credentials credentials;
  std::shared_ptr<const Expectations> expectations = nullptr;  // verify beyond the label; null: nothing to compare with
};

}  // namespace weighlock
