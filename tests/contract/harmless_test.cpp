// What an engine does in order. Each test leaves it serving v1.
#include <fmt/format.h>

#include "scenario.hpp"

namespace weighlock::contract {
namespace {

class Harmless : public Scenario {};

TEST_F(Harmless, engine_is_identified_as_what_it_is) {
  const Outcome outcome = engine().identify();
  ASSERT_TRUE(outcome.ok()) << told(outcome);
  EXPECT_EQ(outcome.dialect, engine().dialect());
  EXPECT_EQ(outcome.reading->label, "label of " + first());
}

TEST_F(Harmless, state_tells_its_start_time_its_label_and_that_it_is_not_paused) {
  const StateReading reading = read();
  EXPECT_NE(reading.incarnation, "");
  EXPECT_EQ(reading.label, "label of " + first());
  EXPECT_FALSE(reading.paused);
  EXPECT_NE(reading.model_path, "");
  EXPECT_EQ(read().incarnation, reading.incarnation) << "the start time stays what it is";
  measured("incarnation", reading.incarnation);
  measured("model_path", reading.model_path);
}

TEST_F(Harmless, pause_and_resume_show_at_once_and_may_be_repeated_in_every_mode) {
  for (const PauseMode mode : engine().can().pause_modes) {
    for (int i = 0; i < 2; ++i) {
      const Outcome paused = pause(mode);
      ASSERT_TRUE(paused.ok()) << name(mode) << ": " << told(paused);
      EXPECT_TRUE(read().paused) << name(mode);
    }
    for (int i = 0; i < 2; ++i) {
      const Outcome resumed = resume();
      ASSERT_TRUE(resumed.ok()) << name(mode) << ": " << told(resumed);
      EXPECT_FALSE(read().paused) << name(mode);
    }
  }
}

TEST_F(Harmless, probe_is_sound_on_a_good_version) {
  const Outcome outcome = engine().run(task(OperationKind::probe));
  ASSERT_TRUE(outcome.ok()) << told(outcome);
  EXPECT_EQ(outcome.evidence, Evidence::probe);
}

TEST_F(Harmless, request_sent_while_paused_is_answered_after_the_resume_by_the_new_weights) {
  const Generation old = fingerprint();
  for (const PauseMode mode : engine().can().pause_modes) {
    ASSERT_TRUE(pause(mode).ok());
    const auto waiting = begin_generation(4);
    EXPECT_FALSE(waiting->wait(Milliseconds(300)).has_value()) << name(mode) << ": answered while paused";
    const Outcome switched = switch_to(second(), mode);
    EXPECT_TRUE(switched.ok()) << name(mode) << ": " << told(switched);
    ASSERT_TRUE(resume().ok());
    const Generation answered = read_generation(waiting->wait());
    ASSERT_TRUE(answered.whole()) << name(mode) << ": " << answered;
    EXPECT_EQ(answered, fingerprint()) << name(mode);
    EXPECT_FALSE(answered == old) << name(mode);
    bring_to(first());
  }
}

TEST_F(Harmless, label_can_be_set_and_read_in_every_state) {
  const std::vector<std::string> labels = {"loading:0190f3c2", "42", "a b/c", "caf\xc3\xa9", "", "label of " + first()};
  for (const bool paused : {false, true}) {
    if (paused) {
      ASSERT_TRUE(pause().ok());
    }
    for (const std::string& label : labels) {
      const Outcome outcome = set_label(label);
      if (!outcome.ok()) measured(fmt::format("label '{}'", label), told(outcome));
      if (!label.empty()) {
        EXPECT_TRUE(outcome.ok()) << told(outcome);
      }
      if (outcome.ok()) {
        EXPECT_EQ(read().label, label);
      }
    }
  }
  ASSERT_TRUE(resume().ok());
}

TEST_F(Harmless, label_of_a_running_engine_changes_without_ending_its_requests) {
  const auto running = begin_running(150);
  ASSERT_TRUE(running);
  ASSERT_TRUE(set_label("while running").ok());
  const Generation generation = read_generation(running->wait());
  EXPECT_EQ(generation.tokens.size(), 150U) << generation;
}

TEST_F(Harmless, good_version_is_loaded_and_proved_by_the_best_evidence_and_the_old_one_comes_back_exactly) {
  const Generation old = fingerprint();
  ASSERT_TRUE(old.whole()) << old;
  EXPECT_EQ(old, fingerprint()) << "a generation can be repeated";
  const StateReading before = read();
  for (const std::string& model : {second(), std::string("v2_shards"), std::string("noconfig"), first()}) {
    if (!has_model(model) || (model != first() && model != second() && second() != "v2")) continue;
    ASSERT_TRUE(pause().ok());
    const Outcome outcome = switch_to(model);
    ASSERT_TRUE(outcome.ok()) << model << ": " << told(outcome);
    EXPECT_EQ(outcome.evidence, engine().can().evidence_best) << model << ": " << told(outcome);
    EXPECT_TRUE(outcome.reading->paused);
    ASSERT_TRUE(resume().ok());
    EXPECT_EQ(fingerprint() == old, model == first()) << model;
    const StateReading reading = read();
    EXPECT_EQ(reading.incarnation, before.incarnation) << "a load is not a new life";
    EXPECT_EQ(reading.model_path, before.model_path) << "what it started with, and not what it loaded last";
  }
}

TEST_F(Harmless, verification_sees_that_another_version_is_served) {
  ASSERT_TRUE(pause().ok());
  ASSERT_TRUE(load(second()).ok());
  ASSERT_TRUE(set_label("label of " + first()).ok()) << "a label moves without weights";
  const Outcome outcome = verify(first(), engine().can().evidence_best);
  EXPECT_EQ(outcome.kind, OutcomeKind::mismatch) << told(outcome);
  EXPECT_NE(outcome.text.find("tensor"), std::string::npos);
  measured("mismatch", outcome.text);
  ASSERT_TRUE(heal_to(first()).ok());
  ASSERT_TRUE(resume().ok());
}

TEST_F(Harmless, flush_of_an_idle_engine_is_done_and_of_a_busy_one_refused) {
  EXPECT_TRUE(flush().ok());
  const auto running = begin_running(running_tokens());
  ASSERT_TRUE(running);
  const Outcome refused = flush();
  EXPECT_EQ(refused.kind, OutcomeKind::untouched) << told(refused);
  measured("flush refused", refused.text);
  EXPECT_EQ(read_generation(running->wait()).tokens.size(), static_cast<std::size_t>(running_tokens()));
  EXPECT_TRUE(flush().ok());
}

TEST_F(Harmless, request_running_when_the_engine_is_paused_in_mode_keep_survives_the_switch) {
  const auto running = begin_running(running_tokens());
  ASSERT_TRUE(running);
  ASSERT_TRUE(pause(PauseMode::keep).ok());
  EXPECT_FALSE(running->wait(Milliseconds(300)).has_value()) << "it must not end while paused";
  const Outcome switched = switch_to(second(), PauseMode::keep);
  EXPECT_TRUE(switched.ok()) << told(switched);
  const Outcome flushed = flush(PauseMode::keep);
  measured("flush while paused in mode keep with a running request", told(flushed));
  EXPECT_EQ(flushed.kind, is(DialectKind::sglang) ? OutcomeKind::untouched : OutcomeKind::ok) << told(flushed);
  // A heal meanwhile: the same behind a label, and the request goes on all the same.
  ASSERT_TRUE(set_label("loading:1").ok());
  const Outcome healed = switch_to(second(), PauseMode::keep);
  EXPECT_TRUE(healed.ok()) << told(healed);
  ASSERT_TRUE(resume().ok());
  const Generation generation = read_generation(running->wait());
  EXPECT_EQ(generation.status, 200) << generation;
  EXPECT_EQ(generation.tokens.size(), static_cast<std::size_t>(running_tokens())) << generation;
  EXPECT_EQ(generation.finish, "length") << generation;
  EXPECT_TRUE(flush(PauseMode::keep).ok());
}

TEST_F(Harmless, request_running_when_the_engine_is_paused_in_another_mode_ends_or_goes_on_as_the_mode_says) {
  for (const PauseMode mode : engine().can().pause_modes) {
    if (mode == PauseMode::keep) continue;
    const auto running = begin_running(running_tokens());
    ASSERT_TRUE(running);
    const Outcome paused = pause(mode);
    ASSERT_TRUE(paused.ok()) << name(mode) << ": " << told(paused);
    if (mode == PauseMode::retract) {
      EXPECT_FALSE(running->wait(Milliseconds(300)).has_value());
      const Outcome flushed = flush(mode);
      measured("flush while paused in mode retract with a running request", told(flushed));
    }
    ASSERT_TRUE(resume().ok());
    const Generation generation = read_generation(running->wait());
    measured(fmt::format("running request, pause {}", name(mode)),
             fmt::format("{} {} with {} tokens", generation.status, generation.finish, generation.tokens.size()));
    EXPECT_EQ(generation.status, 200) << generation;
    if (mode != PauseMode::abort) {
      EXPECT_EQ(generation.tokens.size(), static_cast<std::size_t>(running_tokens())) << generation;
    }
    if (mode == PauseMode::abort) {
      EXPECT_EQ(generation.finish, "abort") << generation;
    }
  }
}

}  // namespace
}  // namespace weighlock::contract
