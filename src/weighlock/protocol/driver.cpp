#include "weighlock/protocol/driver.hpp"

#include <utility>

namespace weighlock::protocol {

Driver::Driver(State state, Dialects dialects, Ports& ports)
    : state_(std::move(state)), dialects_(std::move(dialects)), ports_(ports) {}

void Driver::post(EventBody body) {
  events_.push_back(Event{ports_.now(), std::move(body)});
  drain();
}

void Driver::step_all(std::vector<Record>& records, Effects& rest) {
  while (!events_.empty()) {
    const Event event = std::move(events_.front());
    events_.pop_front();
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
  std::vector<Record> records;
  Effects rest;
  step_all(records, rest);
  if (records.empty()) {
    on_durable(std::move(rest));
    return;
  }
  ports_.append(std::move(records), [this, rest = std::move(rest)]() mutable { on_durable(std::move(rest)); });
}

void Driver::on_durable(Effects rest) {
  for (Effect& effect : rest) {
    if (const auto* await = std::get_if<AwaitDurable>(&effect)) {
      events_.push_back(Event{ports_.now(), CommitDurable{await->update}});
    } else {
      ports_.perform(std::move(effect));
    }
  }
  busy_ = false;
  if (!events_.empty()) drain();
}

}  // namespace weighlock::protocol
