// For the tests of pairs that have owners: we are "me", and somebody else takes the pair behind our back. Included by
// tests only.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "weighlock/protocol/fixture_test.hpp"
#include "weighlock/protocol/ownership.hpp"

namespace weighlock::protocol {

class OwnedFixture : public Fixture {
 protected:
  OwnedFixture() { keep_epochs("me", std::make_shared<FakeEpochs>()); }
  const Pair& pair() const { return state().pairs.at("actor"); }
  const Ownership& own() const { return pair().ownership; }
  // A world anew, within one test.
  void begin_anew() { keep_epochs("me", std::make_shared<FakeEpochs>()); }
  // Two workers that serve version 1; the pair is ours.
  void serve_v1() {
    connect(2);
    request(1);
  }
  // An update to version 2 that is held up at one operation of the first worker, with the other still to come.
  UpdateId held_up_at(OperationKind kind) {
    serve_v1();
    silence(0, kind);
    return request(2);
  }
  // The pair was another's before, who held these paused under the label that they had started with.
  void left_by_predecessor(std::vector<HeldWorker> paused) {
    for (HeldWorker& one : paused) one.label = "default";
    epochs->files[1] = Epoch{1, "predecessor", "near", "", "", std::move(paused)};
  }
  void taken_by_another() { epochs->files[9] = Epoch{9, "another", "far", "", "", {}}; }
  // ... and we found out.
  void lost_to_another() {
    taken_by_another();
    advance(Milliseconds(10'000));
    ASSERT_TRUE(is_superseded(pair()));
  }
  // The look that is under way is answered: so it stands there now.
  void storage_answers_look() {
    ASSERT_TRUE(own().look);
    post(EpochSeen{*own().look, "actor", epochs->highest()});
  }
  void change(WorkerChange what, int i) {
    ChangeWorker event;
    event.token = 70;
    event.pair = "actor";
    event.change = what;
    event.worker.url = url(i);
    post(event);
    ASSERT_FALSE(replies.back().error);
  }
  static Outcome ok() {
    Outcome outcome;
    outcome.kind = OutcomeKind::ok;
    return outcome;
  }
  // What was asked of all workers.
  std::size_t calls() {
    std::size_t all = 0;
    for (int i = 0; i < 8; ++i) all += engine(i).operations.size();
    return all;
  }
};

}  // namespace weighlock::protocol
