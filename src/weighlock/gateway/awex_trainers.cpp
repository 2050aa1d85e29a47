#include "weighlock/gateway/awex_trainers.hpp"

#include <algorithm>

#include "weighlock/awex/calls.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {

AwexTrainers::~AwexTrainers() {
  for (const auto& [id, leaving] : leavings_) {
    if (leaving.timer) loop_.cancel(*leaving.timer);
  }
}

void AwexTrainers::when_free(BuildId build, Urls trainers, std::function<void()> next) {
  const bool waits = std::any_of(trainers.begin(), trainers.end(), [&](const std::string& url) {
    const auto other = built_.find(url);
    return leaving_.contains(url) || (other != built_.end() && other->second != build);
  });
  if (waits) {
    waiting_.push_back({build, std::move(trainers), std::move(next)});
    return;
  }
  for (const std::string& url : trainers) built_[url] = build;
  next();
}

void AwexTrainers::give_back(BuildId build, const Urls& trainers) {
  for (const std::string& url : trainers) {
    if (const auto held = built_.find(url); held != built_.end() && held->second == build) built_.erase(held);
  }
  someone_is_free();
}

void AwexTrainers::someone_is_free() {
  for (Waiting& waiting : std::exchange(waiting_, {}))
    when_free(waiting.build, std::move(waiting.trainers), std::move(waiting.next));
  std::vector<std::uint64_t> over;
  for (const auto& [id, leaving] : leavings_) {
    if (still_leaving(leaving.trainers).empty()) over.push_back(id);
  }
  for (const std::uint64_t id : over) end_leaving(id);
}

void AwexTrainers::joining(const std::string& group, const Urls& trainers) {
  for (const std::string& url : trainers) joined_[url] = group;
}

// A rank that sits in a collective answers when that has ended.
void AwexTrainers::leave(const std::string& group, const Urls& trainers) {
  for (const std::string& url : trainers) {
    const auto last = joined_.find(url);
    if (last != joined_.end() && last->second != group) continue;
    if (last != joined_.end()) joined_.erase(last);
    leaving_.insert(url);
    calls_.send({url, awex::teardown_request(), nullptr}, calls_.step_timeout(), [this, url](const HttpResult& result) {
      const awex::Answer answer = awex::classify("POST /awex/teardown", result);
      if (!answer.ok()) log_warn("trainer {} did not leave its transfer group: {}", url, answer.text);
      let_go(url);
    });
  }
}

void AwexTrainers::let_go(const std::string& trainer) {
  leaving_.erase(leaving_.find(trainer));
  someone_is_free();
}

AwexTrainers::Urls AwexTrainers::still_leaving(const Urls& trainers) const {
  Urls out;
  for (const std::string& url : trainers) {
    if (leaving_.contains(url)) out.push_back(url);
  }
  return out;
}

void AwexTrainers::when_left(Urls trainers, Milliseconds at_most, std::function<void(const Urls& still)> then) {
  if (still_leaving(trainers).empty()) return then({});
  const std::uint64_t id = next_leaving_++;
  Leaving& leaving = leavings_[id];
  leaving.trainers = std::move(trainers);
  leaving.then = std::move(then);
  leaving.timer = loop_.after(at_most, [this, id] {
    leavings_.at(id).timer.reset();
    end_leaving(id);
  });
}

void AwexTrainers::end_leaving(std::uint64_t id) {
  auto node = leavings_.extract(id);
  if (node.empty()) return;
  Leaving& leaving = node.mapped();
  if (leaving.timer) loop_.cancel(*leaving.timer);
  leaving.then(still_leaving(leaving.trainers));
}

}  // namespace weighlock
