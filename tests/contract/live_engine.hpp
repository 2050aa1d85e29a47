// A running engine, asked through the dialect layer over real HTTP.
//
// Which one: WEIGHLOCK_ENGINE_URL, WEIGHLOCK_ENGINE_DIALECT (sglang | vllm), WEIGHLOCK_ENGINE_PID (optional: the
// process that computes, for freezing), WEIGHLOCK_ENGINE_ADMIN_KEY and WEIGHLOCK_ENGINE_API_KEY (optional). Thread
// rule: one test thread; the HTTP client lives on a loop thread of its own.
#pragma once

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "weighlock/core/http.hpp"
#include "weighlock/engines/dialect.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock::contract {

// The HTTP client on its thread.
class Wire {
 public:
  explicit Wire(Url peer);
  ~Wire();

  // One call under way; ends by itself, or by give_up (a close by reset).
  class Call {
   public:
    Call(Wire& wire, HttpRequest request, HttpCallOptions options);
    // Waits for at most that long; empty while it hasn't ended.
    std::optional<HttpResult> wait(Milliseconds longest);
    HttpResult wait();
    void give_up();

   private:
    struct State;
    Wire& wire_;
    std::shared_ptr<State> state_;
  };

  std::unique_ptr<Call> begin(HttpRequest request, HttpCallOptions options);

 private:
  Url peer_;
  Loop loop_;
  std::unique_ptr<HttpClient> client_;  // made and destroyed on the loop's thread
  std::thread thread_;
};

// One operation under way.
class Running {
 public:
  Running(Wire& wire, std::unique_ptr<Conversation> conversation, Milliseconds deadline);
  ~Running();  // gives up if need be

  bool ended_within(Milliseconds longest);
  Outcome wait();
  // True as soon as a request that is sent that changes something was handed to the client.
  bool has_sent_a_change();
  void give_up();

 private:
  void converse(Milliseconds deadline);

  Wire& wire_;
  std::unique_ptr<Conversation> conversation_;
  std::mutex mutex_;
  std::unique_ptr<Wire::Call> call_;
  bool gave_up_ = false;
  bool change_sent_ = false;
  std::promise<Outcome> promise_;
  std::shared_future<Outcome> outcome_;
  std::thread thread_;
};

class LiveEngine {
 public:
  // `process` is a pid, "tiny" or "".
  LiveEngine(Url url, DialectKind dialect, Credentials credentials, const std::string& process);

  // The engine that the environment names; null without WEIGHLOCK_ENGINE_URL.
  static LiveEngine* from_environment();

  DialectKind dialect() const { return dialect_; }
  const DialectTraits& can() const { return traits(dialect_); }

  Outcome run(EngineTask task, Milliseconds deadline = std::chrono::seconds(120));
  std::unique_ptr<Running> start(EngineTask task, Milliseconds deadline = std::chrono::seconds(120));
  Outcome identify();
  std::unique_ptr<Wire::Call> send(HttpRequest request, Milliseconds deadline = std::chrono::seconds(120));
  const Credentials& credentials() const { return credentials_; }

  // Stops and continues what computes: the process of WEIGHLOCK_ENGINE_PID and its children.
  bool can_freeze() const { return steering_ != Steering::none; }
  void freeze();
  void thaw();
  void kill();

 private:
  void steer(int signal, const std::string& route);

  Wire wire_;
  DialectKind dialect_;
  Credentials credentials_;
  enum class Steering { none, signals, tiny } steering_ = Steering::none;
  int pid_ = 0;
};

// Frozen while it lives.
class Frozen {
 public:
  explicit Frozen(LiveEngine& engine) : engine_(engine) { engine_.freeze(); }
  ~Frozen() { engine_.thaw(); }

 private:
  LiveEngine& engine_;
};

}  // namespace weighlock::contract
