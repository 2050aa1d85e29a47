// For tests: engines on a loop of their own, and a blocking client that says how a call ended.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tinyengine/engine/engine.hpp"
#include "tinyengine/testing/directory.hpp"

namespace weighlock::tiny {

struct Answer {
  enum class Ending { answered, refused, reset, timeout };
  Ending ending = Ending::answered;
  int status = 0;
  std::string headers;
  std::string body;
  json::value json;  // null if the body isn't JSON

  bool ok() const { return ending == Ending::answered && status == 200; }
  std::string text(std::string_view pointer) const;  // the member at a JSON pointer, as text; "" if there is none
};

struct CallOptions {
  std::string bearer;
  std::string content_type = "application/json";
  int timeout_ms = 5000;
};

inline CallOptions within(int timeout_ms) {
  CallOptions options;
  options.timeout_ms = timeout_ms;
  return options;
}
inline CallOptions bearer(std::string authorization) {
  CallOptions options;
  options.bearer = std::move(authorization);
  return options;
}

// One request on a connection of its own.
Answer call(int port, const std::string& method, const std::string& target, const std::string& body = "",
            const CallOptions& options = {});
std::future<Answer> call_later(int port, const std::string& method, const std::string& target,
                               const std::string& body = "", const CallOptions& options = {});

// True as soon as `condition` is, false after five seconds.
bool comes_true(const std::function<bool()>& condition);

class Rig {
 public:
  Rig();
  ~Rig();

  // Runs on the loop, and waits for it.
  void on_loop(const std::function<void()>& work);
  // A running engine with delays scaled down; its port.
  int start(EngineSettings settings);
  Engine& engine(int port);
  Loop& loop() { return loop_; }
  Pool& pool() { return pool_; }

 private:
  Loop loop_;
  Pool pool_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::thread thread_;
};

EngineTimings quick_timings();

// Writes checkpoints for one test program, in a directory of its own: v1 and v2 (seeds 1 and 2), and damaged copies of
// v2.
class TestModels {
 public:
  TestModels();
  std::string operator()(const std::string& name) const { return root_ / name; }
  // Adapters for v1: lora1, lora2 and lora3 of rank 4 (seeds 1 to 3), lora64 of rank 64, and damaged copies of lora1:
  // lora_prefix, lora_rank, lora_dora, lora_saved, lora_cut, lora_noweights.
  // A copy of v2 with changed tensors.
  std::string changed(const std::string& name, const std::function<void(std::vector<Tensor>&)>& change) const;

 private:
  void write_adapters();

  TestDirectory root_;
};
TestModels& test_models();

}  // namespace weighlock::tiny
