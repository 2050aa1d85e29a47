// The verbs of the contract tests, and what each test begins and ends with: the engine serves v1, unpaused.
//
// WEIGHLOCK_ENGINE_MODELS is the directory with the models that tests/real/make_models.py writes. WEIGHLOCK_ENGINE_GOOD
// names two good ones of the layout that the engine was started with, "v1,v2" by default ("big1,big2" for loads that
// last).
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "live_engine.hpp"

namespace weighlock::contract {

// What one generation gave. Tokens and logprobs are compared exactly: the same weights on the same engine give the
// same.
struct Generation {
  int status = 0;  // 0: no answer
  std::vector<std::string> tokens;
  std::vector<double> logprobs;
  std::string finish;
  std::string words;
  bool whole() const { return status == 200 && !tokens.empty(); }
  bool operator==(const Generation& other) const { return tokens == other.tokens && logprobs == other.logprobs; }
};

std::ostream& operator<<(std::ostream& out, const Generation& generation);

class Scenario : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  LiveEngine& engine() { return *engine_; }
  bool is(DialectKind kind) const { return engine_->dialect() == kind; }
  // So many that a request outlives the calls made while it must run: on a CPU SGLang makes 50 to 250 tokens a second,
  // vLLM more. Both must allow contexts of 1024 tokens.
  int running_tokens() const { return is(DialectKind::vllm) ? 800 : 300; }
  std::string first() const { return first_; }
  std::string second() const { return second_; }
  std::string path(const std::string& model) const;
  bool has_model(const std::string& model) const;

  // Single operations.
  EngineTask task(OperationKind kind) const;
  EngineTask load_task(const std::string& model, PauseMode mode = PauseMode::abort) const;
  Outcome pause(PauseMode mode = PauseMode::abort);
  Outcome resume();
  Outcome load(const std::string& model, PauseMode mode = PauseMode::abort);
  Outcome set_label(const std::string& label);
  Outcome flush(PauseMode mode = PauseMode::abort);
  Outcome verify(const std::string& model, Evidence evidence);
  StateReading read();
  Outcome barrier();

  // load, label and flush, as the dialect needs them, and the best evidence. The engine must be paused.
  Outcome switch_to(const std::string& model, PauseMode mode = PauseMode::abort);
  // switch_to, and if that fails what the dialect has for it.
  Outcome heal_to(const std::string& model);
  // Pause, heal_to, resume.
  void bring_to(const std::string& model);

  // By the base, or by the adapter that is named.
  std::unique_ptr<Wire::Call> begin_generation(int tokens, const std::string& adapter = "");
  Generation read_generation(const HttpResult& result) const;
  // Four tokens of a fixed prompt, from empty caches: the same for the same weights, different for others.
  Generation fingerprint(const std::string& adapter = "");
  // A generation that the engine was seen to run. One that ended before it was seen is begun again: engines are fast,
  // and machines busy. Null, and a failure, if none is ever seen.
  std::unique_ptr<Wire::Call> begin_running(int tokens, const std::string& adapter = "");

  // What the contract leaves open: printed, and kept in the test's XML.
  void measured(const std::string& what, const std::string& value);

  static std::string told(const Outcome& outcome);

 private:
  LiveEngine* engine_ = nullptr;
  std::string models_, first_, second_;
};

// A test that doesn't leave the engine as it found it sets this; TearDown then leaves it alone.
class LethalScenario : public Scenario {
 protected:
  void TearDown() override {}
};

}  // namespace weighlock::contract
