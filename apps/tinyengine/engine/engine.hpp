// One engine on one port: its lives, its faults, and the /_tiny routes by which tests and demos steer it.
//
// Thread rule: loop thread only. Ownership: owns its server, front and core; `loop` and `pool` must outlive it. A death
// closes the port and resets every connection; `restart` opens the same port with the start model, a new start time and
// label.
//
//   POST   /_tiny/faults   one fault (fault.hpp), or a list    DELETE /_tiny/faults
//   GET    /_tiny/faults   those still to come                 GET /_tiny/log, DELETE /_tiny/log
//   GET    /_tiny/state    what is true inside, whatever the API tells
//   POST   /_tiny/freeze, /_tiny/thaw    the scheduler or core alone, as SIGSTOP does; HTTP goes on
//   POST   /_tiny/kill, /_tiny/restart
//   POST   /_tiny/kill_core              the scheduler or core alone, as SIGKILL does; HTTP ends when it has noticed
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tinyengine/engine/front.hpp"
#include "weighlock/net/server.hpp"

namespace weighlock::tiny {

class Engine {
 public:
  Engine(Loop& loop, Pool& pool, EngineSettings settings);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Loads the model and listens. Fails as an engine's start does: model directory, port.
  Status start();
  void kill();
  Status restart();

  // Closes the port and all connections for so long; the engine itself goes on.
  void refuse(Milliseconds how_long);
  void add_fault(Fault fault);

  // A /_tiny request, from the engine's own port or a control port. `path` begins with "/_tiny/".
  void handle_tiny(const HttpRequest& request, std::string_view path, const Responder& responder);
  json::object state() const;

  int port() const { return settings_.port; }  // after start; stays over lives
  std::string url() const;
  const EngineSettings& settings() const { return settings_; }
  bool alive() const { return front_ != nullptr; }
  RequestLog& log() { return log_; }
  Core* core() { return core_.get(); }

 private:
  Status listen();
  void handle(HttpRequest request, Responder responder);
  bool apply_fault(const Fault& fault, const Call& call, const Responder& responder);
  void die_later(Milliseconds delay);
  void post_faults(const HttpRequest& request, const Responder& responder);
  void close_server();

  Loop& loop_;
  Pool& pool_;
  EngineSettings settings_;
  FaultBoard faults_;
  RequestLog log_;
  std::shared_ptr<Core> core_;
  std::shared_ptr<Front> front_;
  std::unique_ptr<HttpServer> server_;
  double start_time_ = 0.0;
  std::uint64_t life_ = 0;  // counts starts, so that a timer of an earlier life does nothing
  std::shared_ptr<int> token_ = std::make_shared<int>(0);  // expires with the engine: posted work checks it
};

}  // namespace weighlock::tiny
