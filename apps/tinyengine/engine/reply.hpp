// The answer to one request, on its way through an injected fault.
//
// Copies share one answer; the first `send` counts. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tinyengine/engine/fault.hpp"
#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/net/server.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock::tiny {

class Reply {
 public:
  // `die` is called where a fault says die_after; `ended` with the status that was sent, 0 where none was.
  Reply(Loop& loop, Responder responder, std::optional<Fault> fault, std::function<void()> die,
        std::function<void(int)> ended);

  void send(HttpResponse response) const;
  void send_json(int status, const json::value& body) const;
  void send_text(int status, std::string body) const;  // no Content-Type, as the engines' text answers
  void send_empty(int status) const { send_text(status, ""); }

  // Server-sent events. A stream passes no fault.
  void begin_stream() const;
  void event(std::string_view data) const;
  void end_stream() const;

  void on_closed(std::function<void()> then) const;
  // Becomes true with the answer, however long after the Reply.
  std::shared_ptr<const bool> is_sent() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

HttpResponse json_response(int status, const json::value& body);

}  // namespace weighlock::tiny
