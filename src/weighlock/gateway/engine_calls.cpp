#include "weighlock/gateway/engine_calls.hpp"

#include <algorithm>
#include <utility>

namespace weighlock {

EngineCalls::~EngineCalls() {
  for (const auto& [id, running] : calls_) http_.cancel(running.request);
}

EngineCalls::Id EngineCalls::start(Url engine, std::unique_ptr<Conversation> conversation, Milliseconds at_most,
                                   std::function<void(Outcome)> done) {
  const Id id = next_++;
  Running& running = calls_[id];
  running.engine = std::move(engine);
  running.conversation = std::move(conversation);
  running.deadline = loop_.now() + at_most;
  running.done = std::move(done);
  take(id, running.conversation->begin());
  return id;
}

void EngineCalls::cancel(Id id) {
  const auto node = calls_.extract(id);
  if (!node.empty()) http_.cancel(node.mapped().request);
}

void EngineCalls::take(Id id, Turn turn) {
  Running& running = calls_.at(id);
  if (Outcome* outcome = std::get_if<Outcome>(&turn)) {
    // Posted, since a conversation may end before its first request.
    loop_.post([this, id, alive = std::weak_ptr(alive_), outcome = std::move(*outcome)]() mutable {
      if (alive.expired()) return;
      auto node = calls_.extract(id);
      if (!node.empty()) node.mapped().done(std::move(outcome));
    });
    return;
  }
  Step& step = std::get<Step>(turn);
  HttpCallOptions options;
  options.deadline = std::max(Milliseconds(1), running.deadline - loop_.now());
  if (step.at_most) options.deadline = std::min(options.deadline, *step.at_most);
  options.fresh_connection = step.fresh_connection;
  if (step.recent_connection) options.idle_at_most = kRecentConnection;
  running.request = http_.send(running.engine, std::move(step.request), options,
                               [this, id, alive = std::weak_ptr(alive_)](HttpResult result) {
                                 if (alive.expired()) return;
                                 const auto it = calls_.find(id);
                                 if (it != calls_.end()) take(id, it->second.conversation->next(result));
                               });
}

}  // namespace weighlock
