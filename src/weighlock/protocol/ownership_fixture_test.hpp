// For the tests of pairs that have owners: we are "me", and somebody else takes the pair behind our back. Included by
// tests only.
#pragma once

#include <memory>

#include "weighlock/protocol/fixture_test.hpp"
#include "weighlock/protocol/ownership.hpp"

namespace weighlock::protocol {

class OwnedFixture : public Fixture {
 protected:
  OwnedFixture() { keep_epochs("me", std::make_shared<FakeEpochs>()); }
  const Pair& pair() const { return state().pairs.at("actor"); }
  const Ownership& own() const { return pair().ownership; }
  void taken_by_another() { epochs->files[9] = Epoch{9, "another", "far", "", "", {}}; }
  // What was asked of all workers.
  std::size_t calls() {
    std::size_t all = 0;
    for (int i = 0; i < 8; ++i) all += engine(i).operations.size();
    return all;
  }
};

}  // namespace weighlock::protocol
