#include "weighlock/client/exchange.hpp"

#include <utility>

#include "weighlock/net/client.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock::client {

struct Exchange::Implementation {
  Loop loop;
  HttpClient http{loop};
};

Exchange::Exchange() : implementation_(std::make_unique<Implementation>()) {}
Exchange::~Exchange() = default;

HttpResult Exchange::send(const Url& peer, HttpRequest request, Milliseconds deadline) {
  HttpResult result = TransportError{};
  bool ended = false;
  HttpCallOptions options;
  options.deadline = deadline;
  Loop& loop = implementation_->loop;
  implementation_->http.send(peer, std::move(request), options, [&](HttpResult answer) {
    result = std::move(answer);
    ended = true;
    loop.stop();
  });
  while (!ended) loop.run();
  return result;
}

}  // namespace weighlock::client
