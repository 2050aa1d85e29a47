// One HTTP call at a time, blocking: what the gateway's client and the demo's rollouts are made of.
//
// Thread rule: one thread at a time; `send` runs the loop inside itself.
#pragma once

#include <memory>

#include "weighlock/core/http.hpp"
#include "weighlock/core/time.hpp"

namespace weighlock::client {

class Exchange {
 public:
  Exchange();
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  HttpResult send(const Url& peer, HttpRequest request, Milliseconds deadline);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock::client
