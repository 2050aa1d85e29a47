// The live read behind a worker's readiness URL: routers ask often, engines are asked rarely.
//
// Thread rule: loop thread only. One read per worker at a time, shared by all who ask; its result holds for kFresh.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "weighlock/gateway/credentials.hpp"
#include "weighlock/gateway/engine_calls.hpp"

namespace weighlock {

class Readiness {
 public:
  static constexpr Milliseconds kReadAtMost{1000};  // a router's own check gives up after a few seconds
  static constexpr Milliseconds kFresh{300};        // a pause behind our back is seen within this and the read

  // What the engine said. `refused`: nothing listens there.
  struct Reading {
    bool paused = false;
    bool refused = false;
    std::string text;
  };

  Readiness(Loop& loop, EngineCalls& calls, const CredentialStore& credentials)
      : loop_(loop), calls_(calls), credentials_(credentials) {}
  void read(const std::string& worker_url, DialectKind dialect, std::function<void(const Reading&)> then);

 private:
  struct State {
    bool reading = false;
    std::optional<Instant> read_at;
    Reading last;
    std::vector<std::function<void(const Reading&)>> waiting;
  };
  void finish(const std::string& worker_url, const Outcome& outcome);

  Loop& loop_;
  EngineCalls& calls_;
  const CredentialStore& credentials_;
  std::map<std::string, State> workers_;
};

}  // namespace weighlock
