// For the tests of what happens between updates: a pair that serves, and what was told since. Included by tests only.
#pragma once

#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {

using namespace std::chrono_literals;
using K = OperationKind;

class ReconcileTest : public Fixture {
 protected:
  ReconcileTest() { reconciles = true; }
  void serve_v1(int workers) {
    connect(workers);
    ASSERT_EQ(update(request(1)).state, UpdateState::succeeded);
    first = engine(0).loaded;
    flush();
    told_before = records.size();
    reads.clear();
    fences.clear();
  }
  const Pair& pair() const { return state().pairs.at("actor"); }
  std::size_t new_records() {
    flush();
    return records.size() - told_before;
  }
  int remarks(std::string_view word) {
    flush();
    return static_cast<int>(std::count_if(records.begin(), records.end(), [&](const Record& record) {
      return record.kind == RecordKind::worker_state && find_string(record.body, "state") == word;
    }));
  }
  int joins(UpdateState state_at_end) const {
    return static_cast<int>(std::count_if(pair().joins_ended.begin(), pair().joins_ended.end(),
                                          [&](const UpdateId& id) { return update(id).state == state_at_end; }));
  }
  void expect_served(int i, std::int64_t version) {
    EXPECT_EQ(worker(i).state, WorkerState::ready) << (worker(i).cause ? worker(i).cause->message : "");
    ASSERT_TRUE(worker(i).version);
    EXPECT_EQ(worker(i).version->version, version);
    EXPECT_EQ(engine(i).loaded, pair().committed->directory);
    EXPECT_EQ(engine(i).label, std::to_string(version));
    EXPECT_FALSE(engine(i).paused);
  }
  std::string first;
  std::size_t told_before = 0;
};

}  // namespace weighlock::protocol
