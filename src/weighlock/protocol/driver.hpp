// The one loop: drain events -> step -> append records as a group -> perform effects.
//
// Pure, like the machine: its ports are real in the gateway and simulated in tests, so that the order "record before
// effect" is tested where it is made. Records of all events that wait together are one group; while a group is on its
// way to the disk, new events wait. Not reentrant from ports: `post` from inside `perform` only queues.
//
// Records on which no effect of their group depends (what a worker answered, above all) don't wait for the disk and
// nothing waits for them: they are held and go with the next group, or by `flush`. So an update costs the same few
// groups for any number of workers. What is held when the process dies is lost, as a journal's last records may be: the
// intents are there, and recovery asks the workers.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "weighlock/protocol/machine.hpp"

namespace weighlock::protocol {

class Ports {
 public:
  virtual ~Ports() = default;
  virtual Instant now() const = 0;
  // Makes the group durable, then calls `durable` (never inside append). Groups come one at a time. A failure never
  // returns: the process ends, and the disk decides what was true.
  virtual void append(std::vector<Record> group, std::function<void()> durable) = 0;
  // Never an Append or AwaitDurable.
  virtual void perform(Effect effect) = 0;
  // Records are held from now on: `flush` should come before long, for those who watch the journal.
  virtual void records_held() = 0;
  // Before each step; for those who count what happens when.
  virtual void stepping(const State& /*state*/, const Event& /*event*/) {}
};

class Driver {
 public:
  Driver(State state, Dialects dialects, Ports& ports);
  void post(EventBody body);
  // Appends what is held, if no group does so already.
  void flush();
  const State& state() const { return state_; }

 private:
  void drain();
  void step_all(std::vector<Record>& records, Effects& rest);
  void append_held(Effects then);
  void on_durable(Effects rest);

  State state_;
  Dialects dialects_;
  Ports& ports_;
  std::deque<EventBody> events_;
  std::vector<Record> held_;
  bool busy_ = false;  // inside drain, or a group is on its way
};

}  // namespace weighlock::protocol
