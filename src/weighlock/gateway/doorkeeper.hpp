// Answers for a gateway that can't start yet, because another process holds its state directory: 503 to everything,
// with the holder's id. Once the directory is free the gateway is made and listens in its place.
//
// Thread rule: loop thread only. `loop` outlives it.
#pragma once

#include <functional>
#include <memory>

#include "weighlock/gateway/gateway.hpp"
#include "weighlock/net/server.hpp"

namespace weighlock {

class Doorkeeper {
 public:
  using Done = std::function<void(Result<std::unique_ptr<Gateway>>)>;

  // `settings` as for Gateway::make, `held` the conflict that it answered.
  Doorkeeper(Loop& loop, GatewaySettings settings, Error held);
  ~Doorkeeper();
  Doorkeeper(const Doorkeeper&) = delete;
  Doorkeeper& operator=(const Doorkeeper&) = delete;

  Status listen();
  int port() const { return server_.port(); }
  // Tries again every kStateLockRetry, for `at_most`; `done` runs once, with a gateway that doesn't listen yet (its
  // port is this one's, which is closed) or the reason why there is none.
  void wait(Milliseconds at_most, Done done);

 private:
  void look();

  Loop& loop_;
  GatewaySettings settings_;
  Error held_;
  HttpServer server_;
  Instant give_up_at_;
  Done done_;
  Loop::TimerId timer_ = 0;
};

}  // namespace weighlock
