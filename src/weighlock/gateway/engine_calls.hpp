// Carries conversations with engines over HTTP: one request after the other, until the dialect has its outcome.
//
// Thread rule: loop thread only. `done` is called once, on the loop, never inside `start`; never after `cancel` or the
// end of this object. A cancelled call's connection is closed by reset (net/client.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "weighlock/core/http.hpp"
#include "weighlock/engines/conversation.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {

class EngineCalls {
 public:
  using Id = std::uint64_t;

  EngineCalls(Loop& loop, HttpClient& http) : loop_(loop), http_(http) {}
  ~EngineCalls();
  EngineCalls(const EngineCalls&) = delete;
  EngineCalls& operator=(const EngineCalls&) = delete;

  // `at_most`: for the whole conversation; past it the running request ends with a time-out, which the dialect
  // classifies.
  Id start(Url engine, std::unique_ptr<Conversation> conversation, Milliseconds at_most,
           std::function<void(Outcome)> done);
  void cancel(Id id);
  std::size_t running() const { return calls_.size(); }

 private:
  struct Running {
    Url engine;
    std::unique_ptr<Conversation> conversation;
    Instant deadline;
    std::function<void(Outcome)> done;
    HttpClient::CallId request = 0;
  };
  void take(Id id, Turn turn);

  Loop& loop_;
  HttpClient& http_;
  Id next_ = 1;
  std::map<Id, Running> calls_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // callbacks of the client may come after us
};

}  // namespace weighlock
