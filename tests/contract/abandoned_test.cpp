// Calls that their caller gave up on, and the barrier behind them. Needs WEIGHLOCK_ENGINE_PID: the process that
// computes, so that the one that speaks HTTP goes on. With an engine that is one process the requests may never be
// read; then what counts is that the state after the barrier is one version, whole.
#include <fmt/format.h>

#include "scenario.hpp"

namespace weighlock::contract {
namespace {

// There is no event to wait for: the request has to get through the loopback and into the engine's queue.
constexpr Milliseconds kArrival{500};
constexpr Milliseconds kSilence{1000};

class HarmlessAbandoned : public Scenario {
 protected:
  void SetUp() override {
    Scenario::SetUp();
    if (!IsSkipped() && !engine().can_freeze()) GTEST_SKIP() << "WEIGHLOCK_ENGINE_PID names no process to freeze";
  }

  // Sends the operation to the frozen engine, gives up, and expects the barrier to be silent until the engine goes on.
  // The barrier's reading.
  StateReading behind_barrier(const EngineTask& abandoned) {
    std::unique_ptr<Running> waiting;
    {
      const Frozen frozen(engine());
      const auto operation = engine().start(abandoned);
      const bool answered = operation->ended_within(kArrival);
      operation->give_up();
      const Outcome given_up = operation->wait();
      measured(fmt::format("{} of a frozen engine", name(abandoned.operation.kind)), told(given_up));
      if (!answered && operation->has_sent_a_change()) {
        EXPECT_EQ(given_up.kind, OutcomeKind::unknown) << told(given_up);
      }
      waiting = engine().start(task(OperationKind::barrier));
      EXPECT_FALSE(waiting->ended_within(kSilence)) << "the barrier answered before the engine went on";
    }
    const auto began = std::chrono::steady_clock::now();
    const Outcome outcome = waiting->wait();
    EXPECT_TRUE(outcome.ok()) << told(outcome);
    const auto took = std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - began);
    measured(fmt::format("barrier behind {}", name(abandoned.operation.kind)),
             fmt::format("answered {} ms after the thaw", took.count()));
    return outcome.reading.value_or(StateReading{});
  }

  // Which of the two good versions is served, by the best evidence; "" if neither.
  std::string served(const std::string& label) {
    for (const std::string& model : {first(), second()}) {
      EXPECT_TRUE(set_label("label of " + model).ok());
      if (verify(model, engine().can().evidence_best).ok()) {
        EXPECT_TRUE(set_label(label).ok());
        return model;
      }
    }
    return "";
  }
};

TEST_F(HarmlessAbandoned,
       load_has_ended_when_the_barrier_answers_in_every_pause_mode_with_and_without_waiting_requests) {
  const Generation old = fingerprint();
  for (const PauseMode mode : engine().can().pause_modes) {
    for (const bool with_request : {false, true}) {
      SCOPED_TRACE(fmt::format("mode {}, {}", name(mode), with_request ? "a request waits" : "nothing waits"));
      ASSERT_TRUE(engine().can().has_barrier(OperationKind::load, mode));
      ASSERT_TRUE(pause(mode).ok());
      const auto waiting = with_request ? begin_generation(4) : nullptr;
      const StateReading reading = behind_barrier(load_task(second(), mode));
      EXPECT_TRUE(reading.paused);
      const std::string model = served(reading.label);
      EXPECT_NE(model, "") << "neither version is whole";
      measured(fmt::format("served after an abandoned load, {}, {}", name(mode), with_request), model);
      if (engine().can().load_sets_label) {
        EXPECT_EQ(reading.label, "label of " + model) << "the label read behind the barrier isn't that of the weights";
      }
      ASSERT_TRUE(flush(mode).ok() || with_request);
      ASSERT_TRUE(resume().ok());
      if (waiting) {
        const Generation answered = read_generation(waiting->wait());
        EXPECT_TRUE(answered.whole()) << answered;
        EXPECT_EQ(answered == old, model == first());
      }
      bring_to(first());
    }
  }
}

TEST_F(HarmlessAbandoned, load_of_an_unpaused_engine_has_ended_when_the_barrier_answers) {
  const StateReading reading = behind_barrier(load_task(second()));
  EXPECT_FALSE(reading.paused);
  const std::string model = served(reading.label);
  EXPECT_NE(model, "");
  if (engine().can().load_sets_label) {
    EXPECT_EQ(reading.label, "label of " + model);
  }
}

TEST_F(HarmlessAbandoned, load_that_was_given_up_at_once_is_whole_or_not_there_behind_the_barrier) {
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(pause().ok());
    const auto operation = engine().start(load_task(second()));
    while (!operation->has_sent_a_change() && !operation->ended_within(Milliseconds(0))) std::this_thread::yield();
    operation->ended_within(Milliseconds(4 * i));
    operation->give_up();
    const Outcome given_up = operation->wait();
    const Outcome settled = Scenario::barrier();
    ASSERT_TRUE(settled.ok()) << told(settled);
    const std::string model = served(settled.reading->label);
    EXPECT_NE(model, "") << "neither version is whole";
    if (engine().can().load_sets_label) {
      EXPECT_EQ(settled.reading->label, "label of " + model);
    }
    measured(fmt::format("load given up after {} ms", 4 * i), fmt::format("{}; serves {}", name(given_up.kind), model));
    bring_to(first());
  }
}

TEST_F(HarmlessAbandoned, label_has_its_end_state_when_the_barrier_answers) {
  ASSERT_TRUE(engine().can().has_barrier(OperationKind::set_label, PauseMode::abort));
  EngineTask labelling = task(OperationKind::set_label);
  labelling.operation.label = "abandoned";
  const StateReading reading = behind_barrier(labelling);
  measured("label read behind the barrier", reading.label);
  EXPECT_EQ(read().label, reading.label) << "it changed after the barrier had answered";
}

TEST_F(HarmlessAbandoned, pause_and_resume_have_their_end_state_when_the_barrier_answers) {
  for (const PauseMode mode : engine().can().pause_modes) {
    EngineTask pausing = task(OperationKind::pause);
    pausing.operation.pause_mode = mode;
    const StateReading paused = behind_barrier(pausing);
    measured(fmt::format("paused behind the barrier, {}", name(mode)), paused.paused ? "yes" : "no");
    EXPECT_EQ(read().paused, paused.paused) << name(mode);
    ASSERT_TRUE(pause(mode).ok());
    const StateReading resumed = behind_barrier(task(OperationKind::resume));
    measured(fmt::format("paused behind the barrier of a resume, {}", name(mode)), resumed.paused ? "yes" : "no");
    EXPECT_EQ(read().paused, resumed.paused) << name(mode);
    ASSERT_TRUE(resume().ok());
  }
}

TEST_F(HarmlessAbandoned, pause_with_a_request_running_has_its_end_state_when_the_barrier_answers) {
  for (const PauseMode mode : engine().can().pause_modes) {
    if (!engine().can().has_barrier(OperationKind::pause, mode)) continue;
    SCOPED_TRACE(name(mode));
    const auto running = begin_running(running_tokens());
    ASSERT_TRUE(running);
    EngineTask pausing = task(OperationKind::pause);
    pausing.operation.pause_mode = mode;
    const StateReading paused = behind_barrier(pausing);
    EXPECT_EQ(read().paused, paused.paused);
    measured(fmt::format("abandoned pause with a request running, {}", name(mode)),
             paused.paused ? "paused" : "not paused");
    ASSERT_TRUE(resume().ok());
    const Generation generation = read_generation(running->wait());
    measured(fmt::format("that request, {}", name(mode)),
             fmt::format("{} {} with {} tokens", generation.status, generation.finish, generation.tokens.size()));
    EXPECT_EQ(generation.status, 200) << generation;
    if (mode == PauseMode::keep || mode == PauseMode::retract) {
      EXPECT_EQ(generation.tokens.size(), static_cast<std::size_t>(running_tokens()))
          << "ended by an earlier pause, or by this one";
    }
  }
}

TEST_F(HarmlessAbandoned, flush_has_ended_when_the_barrier_answers) {
  behind_barrier(task(OperationKind::flush));
  EXPECT_TRUE(fingerprint().whole());
}

}  // namespace
}  // namespace weighlock::contract
