// An HTTP/1.1 client for control calls: many peers, few bytes, and an exact account of what may have reached the peer.
//
// Thread rule: loop thread only. `done` is called exactly once, on the loop, never inside `send` or `cancel` itself. It
// may call the client again, or destroy it.
//
// A call fails only by what happens on the wire, by `deadline`, or by `cancel`; never by a hidden smaller time-out, but
// for connecting (Settings::connect_timeout). Redirects are not followed. No proxy is used. `nothing_sent` of a
// TransportError is true only if no byte of the request was handed to a socket.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "weighlock/core/http.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/core/time.hpp"
#include "weighlock/net/answer_room.hpp"
#include "weighlock/net/socket.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {

struct HttpCallOptions {
  Milliseconds deadline{7'200'000};  // wall clock for the whole call, connect included
  bool fresh_connection = false;     // never one that was used before: for calls that may not be repeated. A reused
                                  // connection that turns out closed before any answer byte is retried once on a fresh
                                  // one for GET, or if no byte was sent; otherwise it is reported as reset.
  std::optional<Milliseconds> idle_at_most =
      std::nullopt;          // nor one that was idle for longer: its peer may be closing it
  bool never_waits = false;  // beyond Settings::connections_max, too: for calls that only end together
  std::size_t answer_bytes_max = limits::kAnswerBodyBytesMax;  // of its body
  std::shared_ptr<AnswerRoom::Place> answer_place = {};        // null: its body is read at once, whatever others take
};

// A connection that answered so recently isn't being closed for having been idle: uvicorn, which serves the engines,
// does that after 5 s.
inline constexpr Milliseconds kRecentConnection{1000};

class HttpClient {
 public:
  struct Settings {
    std::string ca_file = {};      // PEM; "" = the system's
    bool verify_peer = true;       // https
    Milliseconds idle_keep{4000};  // uvicorn closes idle connections after 5 s: ours go before
    Milliseconds connect_timeout{limits::kConnectTimeout};
    // Open at a time, kept ones included; further calls wait for one, in their order, while their deadlines run. See
    // `descriptor_shares` (socket.hpp).
    std::size_t connections_max = std::numeric_limits<std::size_t>::max();
    std::string name_servers = {};  // "10.0.0.1:53,..."; "" = the system's
    // Asked of each address that a name has, before a connection is made; unset = all are good. Not asked of hosts that
    // are given as digits: who gave them has checked them.
    std::function<bool(const std::string& name, const SocketAddress&)> name_may_be_at = {};
  };

  HttpClient(Loop& loop, Settings settings);
  explicit HttpClient(Loop& loop);
  ~HttpClient();  // closes all connections; pending calls end with `cancelled`, before this returns
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Whether a call to this host would find an address that it may connect to now: "" if so, else why not. May
  // call `done` at once, when the answer is known.
  void may_reach(const std::string& host, std::function<void(const std::string& why_not)> done);

  using CallId = std::uint64_t;
  // `request.target` is appended to `peer.path`. Host, Content-Length and Connection are added; a body-less POST sends
  // Content-Length: 0.
  CallId send(const Url& peer, HttpRequest request, HttpCallOptions options, std::function<void(HttpResult)> done);

  // Ends the call with `cancelled` and closes its connection by reset (SO_LINGER 0), so that nothing sent on it is
  // delivered later. No effect on a call that ended.
  void cancel(CallId id);

  struct Implementation;

 private:
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace weighlock
