#include "weighlock/protocol/driver.hpp"

#include <algorithm>
#include <utility>

#include "weighlock/protocol/context.hpp"

namespace weighlock::protocol {
namespace {

// What may happen before its group's records are durable: what only reads, and what only this process knows of. A
// resume and the mark, too: they follow from a commit, which is durable. And a seal: without the saves' answers
// recovery discards the attempt all the same. And what says whose the pair is: a file with our id is ours, recorded or
// not.
bool depends_on_records(const Effect& effect) {
  if (const auto* call = std::get_if<Call>(&effect)) {
    const bool free = !changes_something(call->operation.kind) || call->operation.kind == OperationKind::resume;
    return !free && !call->intent_durable;
  }
  return !std::holds_alternative<StartTimer>(effect) && !std::holds_alternative<CancelTimer>(effect) &&
         !std::holds_alternative<Cancel>(effect) && !std::holds_alternative<ComputeDigest>(effect) &&
         !std::holds_alternative<AskTrainer>(effect) && !std::holds_alternative<ClaimEpoch>(effect) &&
         !std::holds_alternative<LookEpoch>(effect) && !std::holds_alternative<MarkLatest>(effect) &&
         !std::holds_alternative<Seal>(effect);
}

}  // namespace

Driver::Driver(State state, Dialects dialects, Ports& ports)
    : state_(std::move(state)), dialects_(std::move(dialects)), ports_(ports) {}

void Driver::post(EventBody body) {
  events_.push_back(std::move(body));
  drain();
}

void Driver::step_all(std::vector<Record>& records, Effects& rest) {
  while (!events_.empty()) {
    // Not the time at which it came: it may have waited for the disk, and this process may have stood still since.
    const Event event{ports_.now(), std::move(events_.front())};
    events_.pop_front();
    ports_.stepping(state_, event);
    for (Effect& effect : step(state_, dialects_, event)) {
      if (auto* append = std::get_if<Append>(&effect)) {
        records.push_back(std::move(append->record));
      } else {
        rest.push_back(std::move(effect));
      }
    }
  }
}

void Driver::drain() {
  if (busy_) return;
  busy_ = true;
  Effects rest;
  const std::size_t held_before = held_.size();
  step_all(held_, rest);
  const bool has_records = held_.size() > held_before;
  const bool must_wait = std::any_of(rest.begin(), rest.end(), depends_on_records);
  if (must_wait && !held_.empty()) return append_held(std::move(rest));
  if (has_records && held_before == 0) ports_.records_held();
  on_durable(std::move(rest));
}

void Driver::flush() {
  if (busy_ || held_.empty()) return;  // a group that is on its way took what was held before it
  busy_ = true;
  append_held({});
}

void Driver::append_held(Effects then) {
  ports_.append(std::exchange(held_, {}), [this, then = std::move(then)]() mutable { on_durable(std::move(then)); });
}

void Driver::on_durable(Effects rest) {
  for (Effect& effect : rest) {
    if (const auto* await = std::get_if<AwaitDurable>(&effect)) {
      events_.push_back(CommitDurable{await->update});
    } else {
      ports_.perform(std::move(effect));
    }
  }
  busy_ = false;
  if (!events_.empty()) drain();
}

}  // namespace weighlock::protocol
