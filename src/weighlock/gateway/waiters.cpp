#include "weighlock/gateway/waiters.hpp"

#include <utility>
#include <vector>

namespace weighlock {

protocol::ReplyToken Waiters::on_reply(std::function<void(const protocol::Reply&)> then) {
  const protocol::ReplyToken token = next_++;
  replies_[token] = std::move(then);
  return token;
}

Waiters::WaitId Waiters::on_ended(protocol::UpdateId update, std::function<void()> then) {
  const WaitId id = next_++;
  ended_[id] = Ended{std::move(update), std::move(then)};
  return id;
}

Waiters::WaitId Waiters::on_change(std::function<void()> then) {
  const WaitId id = next_++;
  changes_[id] = std::move(then);
  return id;
}

void Waiters::forget(WaitId id) {
  ended_.erase(id);
  changes_.erase(id);
}

void Waiters::replied(const protocol::Reply& reply) {
  auto node = replies_.extract(reply.token);
  if (!node.empty()) node.mapped()(reply);
}

void Waiters::ended(const protocol::UpdateId& update) {
  std::vector<WaitId> due;
  for (const auto& [id, waiting] : ended_) {
    if (waiting.update == update) due.push_back(id);
  }
  for (const WaitId id : due) {
    auto node = ended_.extract(id);  // an earlier callback may have forgotten it
    if (!node.empty()) node.mapped().then();
  }
}

void Waiters::changed() {
  std::vector<WaitId> due;
  for (const auto& [id, then] : changes_) due.push_back(id);
  for (const WaitId id : due) {
    const auto it = changes_.find(id);
    if (it == changes_.end()) continue;
    const std::function<void()> then = it->second;  // it may forget itself
    then();
  }
}

}  // namespace weighlock
