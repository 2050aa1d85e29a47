// Names to addresses, many at a time: by c-ares on the loop, so that one dead name server stalls nobody else.
//
// Thread rule: loop thread only. Answers are remembered for seconds; the same name asked twice at once is looked up
// once.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weighlock/net/socket.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {

class Resolver {
 public:
  // `servers`: "10.0.0.1:53,..."; "" for the system's.
  Resolver(Loop& loop, const std::string& servers);
  ~Resolver();  // callbacks that are still due are dropped
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  struct Answer {
    std::vector<SocketAddress> addresses;  // port 0; empty: `error` says why
    std::string error;
  };
  // May call `done` at once, when the answer is known.
  void resolve(const std::string& host, std::function<void(const Answer&)> done);

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
