// The live read behind a worker's readiness URL: routers ask often, engines are asked rarely.
//
// The machine's word (the worker is `ready`) is what counts, and a read can only take it back: when the engine says
// that it is paused, is another process than the one that was verified, has a label that isn't ours, refuses the
// connection, or answers something that is no state. A read that has no answer within kReadAtMost takes nothing back:
// an engine under load answers its router late and is as good as before, and what the machine said last stands.
//
// Thread rule: loop thread only. One read per worker at a time, shared by all who ask; its result holds for kFresh, and
// only as long as what the machine knows of the worker's process and labels is what it was when the read began.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/gateway/credentials.hpp"
#include "weighlock/gateway/engine_calls.hpp"
#include "weighlock/protocol/state.hpp"

namespace weighlock {

class Readiness {
 public:
  static constexpr Milliseconds kReadAtMost{1000};  // a router's own check gives up after a few seconds
  static constexpr Milliseconds kFresh{300};        // a pause behind our back is seen within this and the read

  struct Reading {
    std::optional<StateReading> state;  // what the engine said
    bool silent = false;                // no answer in time; neither: `text` says how it failed
    std::string text;
  };

  Readiness(Loop& loop, EngineCalls& calls, const CredentialStore& credentials)
      : loop_(loop), calls_(calls), credentials_(credentials) {}
  // `worker` has a dialect.
  void read(const protocol::Worker& worker, std::function<void(const Reading&)> then);

 private:
  struct State {
    bool reading = false;
    std::optional<Instant> read_at;
    std::string known;  // by the machine when the read began
    Reading last;
    std::vector<std::function<void(const Reading&)>> waiting;
  };
  void finish(const std::string& worker_url, const Outcome& outcome);

  Loop& loop_;
  EngineCalls& calls_;
  const CredentialStore& credentials_;
  std::map<std::string, State> workers_;
};

// Why the reading takes back that the worker, as the machine has it now, is ready; "" = it doesn't.
std::string doubt_of(const protocol::Worker& worker, const Readiness::Reading& reading);

}  // namespace weighlock
