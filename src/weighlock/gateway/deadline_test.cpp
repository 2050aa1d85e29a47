// Whatever the peers do, each phase and the whole update end in time: within a tenth of the deadline, or a second.
//
// What this process itself lost on a crowded machine is measured beside it and taken off, and so is what an update
// takes that nothing holds up (its syncs, and threads that wait for a core, make no loop late).
#include <chrono>

#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Phase {
  const char* name;
  const char* held;                    // the route that engine 0 (for "/save": the trainer) never answers
  std::vector<const char*> deadlines;  // those that run out one after the other, the last ones perhaps
  const char* told;                    // ... and what the update says
};

class DeadlineTest : public NativeTest, public ::testing::WithParamInterface<Phase> {
 protected:
  static constexpr std::int64_t kShort = 600;
  static constexpr std::int64_t kLong = 60'000;

  // The pair's deadlines: short for those that are to run out, so long for the others that a wrong one is noticed.
  void set_deadlines(const std::vector<const char*>& short_ones) {
    json::object deadlines;
    for (const char* phase : {"save", "pause", "load", "verify", "resume", "restore", "whole"})
      deadlines[phase] = kLong;
    for (const char* phase : short_ones) deadlines[phase] = kShort;
    json::object spec = body();
    spec["settings"] = {{"evidence", "label"}, {"quorum", "all"}, {"deadlines_ms", deadlines}};
    ASSERT_EQ(call("PUT", "/v1/pairs/actor", spec).status / 100, 2);
  }

  // The longest that the loop was late, until the object goes.
  class Lag {
   public:
    explicit Lag(DeadlineTest& test) : test_(test) {
      test_.on_loop([this] { beat(); });
    }
    ~Lag() {
      test_.on_loop([this] { test_.loop.cancel(timer_); });
    }
    Milliseconds worst() {
      Milliseconds out{0};
      test_.on_loop([&] { out = worst_; });
      return out;
    }

   private:
    void beat() {
      const Clock::time_point due = Clock::now() + Milliseconds{20};
      timer_ = test_.loop.after(Milliseconds{20}, [this, due] {
        worst_ = std::max(worst_, std::chrono::duration_cast<Milliseconds>(Clock::now() - due));
        beat();
      });
    }
    DeadlineTest& test_;
    Loop::TimerId timer_ = 0;
    Milliseconds worst_{0};
  };

  void hold(const std::string& route) {
    on_loop([&] {
      if (route == "/save") {
        trainers[0]->hold = true;
      } else if (route == "/model_info") {  // what is read before the pause is answered
        engines[0]->hold_after_load = route;
      } else {
        engines[0]->hold = route;
      }
    });
  }
  void let_go() {
    on_loop([&] {
      trainers[0]->release();
      engines[0]->let_go();
    });
  }

  // Asks for the version and looks at how long it took, beyond what the one before it took that nothing held up.
  json::value ends_in_time(std::int64_t version, std::int64_t at_least, std::int64_t at_most) {
    Lag lag(*this);
    const Clock::time_point began = Clock::now();
    const Reply reply = call("POST", "/v1/pairs/actor/updates?wait=15", {{"version", version}});
    const auto took = std::chrono::duration_cast<Milliseconds>(Clock::now() - began);
    EXPECT_EQ(reply.status, 200) << "it isn't at its end: " << reply.body;
    EXPECT_GE(took.count(), at_least * 9 / 10) << reply.body;
    const std::int64_t slack = std::max<std::int64_t>(1000, at_most / 10);
    EXPECT_LE(took.count(), at_most + slack + unhindered_.count() + 3 * lag.worst().count()) << reply.body;
    unhindered_ = took;
    return reply.json();
  }

 private:
  Milliseconds unhindered_{0};
};

TEST_P(DeadlineTest, of_a_phase_ends_the_update_in_time_and_the_next_one_succeeds) {
  start();
  set_deadlines({});
  ASSERT_EQ(ends_in_time(1, 0, 5'000).at("state").as_string(), "succeeded");
  const Phase& phase = GetParam();
  set_deadlines(phase.deadlines);
  hold(phase.held);
  const json::value update = ends_in_time(2, kShort, kShort * static_cast<std::int64_t>(phase.deadlines.size()));
  EXPECT_NE(update.at("state").as_string(), "succeeded");
  EXPECT_NE(json::serialize(update).find(phase.told), std::string::npos) << json::serialize(update);
  let_go();
  set_deadlines({});
  const auto end = Clock::now() + std::chrono::seconds(20);
  json::value next;
  for (std::int64_t version = 3; Clock::now() < end; ++version) {  // a rank or a worker may have to answer first
    next = call("POST", "/v1/pairs/actor/updates?wait=15", {{"version", version}}).json();
    if (next.at("state").as_string() == "succeeded") break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(next.at("state").as_string(), "succeeded") << json::serialize(next);
  for (const auto& engine : engines) EXPECT_FALSE(engine->paused) << engine->url();
}

INSTANTIATE_TEST_SUITE_P(Phases, DeadlineTest,
                         ::testing::Values(Phase{"save", "/save", {"save"}, "save"},
                                           Phase{"pause", "/pause_generation", {"pause", "restore"}, "pause"},
                                           Phase{"load", "/update_weights_from_disk", {"load", "restore"}, "load"},
                                           Phase{"verify", "/model_info", {"verify", "restore"}, "verify"},
                                           Phase{"label", "/update_weight_version", {"load", "restore"}, "label"},
                                           Phase{"resume", "/continue_generation", {"resume", "restore"}, "resume"},
                                           Phase{"whole", "/update_weights_from_disk", {"whole", "restore"}, "load"}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace weighlock::test
