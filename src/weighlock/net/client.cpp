#include "weighlock/net/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "weighlock/net/client_connection.hpp"
#include "weighlock/net/dns.hpp"
#include "weighlock/net/http_text.hpp"
#include "weighlock/net/tls.hpp"
#include "weighlock/runtime/log.hpp"

namespace weighlock {

namespace {

using Kind = TransportError::Kind;
using ConnectionPointer = std::shared_ptr<ClientConnection>;

// More than the control calls that one peer sees at a time; others are closed after use.
constexpr std::size_t kIdlePerPeerMax = 8;
constexpr int kSweepsPerKeep = 8;  // an idle connection is kept for idle_keep, and an eighth of it at most

struct Call {
  Url peer;
  std::string key;  // scheme, host and port
  std::string method;
  std::string request;
  HttpCallOptions options;
  std::function<void(HttpResult)> done;
  std::optional<Loop::TimerId> deadline;
  ConnectionPointer connection;
  bool reused = false;       // the present connection served a call before
  bool sent_before = false;  // an earlier try handed over bytes
  int tries = 0;
  bool resolved = false;
  bool connected = false;
  bool counted = false;  // has one of Settings::connections_max
};

std::string seconds(Milliseconds time) {
  return fmt::format("{:.1f} s", static_cast<double>(time.count()) / 1000);
}

}  // namespace

struct HttpClient::Implementation {
  struct Idle {
    ConnectionPointer connection;
    Instant since;
  };

  Loop& loop;
  Settings settings;
  Resolver resolver;
  std::shared_ptr<TlsContext> tls;  // made at the first https call
  std::unordered_map<CallId, Call> calls;
  std::unordered_map<std::string, std::vector<Idle>> idle;  // the sweep forgets peers that have none
  std::optional<Loop::TimerId> sweep;  // of idle ones that were kept long enough; a timer for each would cost more
  CallId next_id = 1;
  std::size_t used = 0;        // connections of calls
  std::size_t kept_count = 0;  // all of `idle`
  std::deque<CallId> waiting;  // for a connection
  bool wakes = false;          // ... and the first is to be looked at
  bool wait_told = false;
  // Posted work looks here whether the client is still there.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);

  Implementation(Loop& on, Settings with) : loop(on), settings(std::move(with)), resolver(on, settings.name_servers) {}

  Call* find(CallId id) {
    const auto found = calls.find(id);
    return found == calls.end() ? nullptr : &found->second;
  }

  void start(CallId id) {
    Call* call = find(id);
    if (call == nullptr) return;
    if (!call->options.fresh_connection) {
      if (ConnectionPointer kept = take_idle(call->key, call->options.idle_at_most)) {
        count(*call);
        call->reused = true;
        call->resolved = call->connected = true;
        call->connection = std::move(kept);
        return exchange(id, *call);
      }
    }
    if (!call->options.never_waits && (!waiting.empty() || !make_room())) return wait(id);
    count(*call);
    open(id, *call);
  }

  // --- no more than connections_max

  void count(Call& call) {
    call.counted = true;
    ++used;
  }
  bool full() const { return used + kept_count >= settings.connections_max; }

  // Closes the connection that was kept for longest, if that is what it takes.
  bool make_room() {
    if (!full()) return true;
    auto oldest = idle.end();
    for (auto it = idle.begin(); it != idle.end(); ++it) {
      if (it->second.empty()) continue;
      if (oldest == idle.end() || it->second.front().since < oldest->second.front().since) oldest = it;
    }
    if (oldest == idle.end()) return false;
    oldest->second.erase(oldest->second.begin());
    --kept_count;
    return !full();
  }

  void wait(CallId id) {
    if (!wait_told)
      log_warn(
          "calls to workers wait for each other: {} connections are open, the most that the limit of open files "
          "allows; raise it (ulimit -n, LimitNOFILE=) for updates in less time",
          used);
    wait_told = true;
    waiting.push_back(id);
  }

  // A connection of a call is free, or gone.
  void release(const Call& call) {
    if (!call.counted) return;
    --used;
    if (waiting.empty() || wakes) return;
    wakes = true;
    loop.post([this, alive = alive] {
      if (!*alive) return;
      wakes = false;
      for (std::deque<CallId> looked_at = std::exchange(waiting, {}); !looked_at.empty(); looked_at.pop_front()) {
        if (find(looked_at.front()) == nullptr) continue;  // cancelled
        if (full() && kept_count == 0) {
          waiting.insert(waiting.end(), looked_at.begin(), looked_at.end());
          return;
        }
        start(looked_at.front());
        if (!*alive) return;  // its owner heard of a failure, and ended the client
      }
    });
  }

  void open(CallId id, Call& call) {
    call.reused = false;  // a second failure is final
    ++call.tries;
    call.connected = false;
    if (call.peer.scheme == "https" && tls == nullptr) {
      auto made = TlsContext::make(settings.ca_file, settings.verify_peer);
      if (!made) return end(id, TransportError{Kind::tls, !call.sent_before, made.error().text()});
      tls = *made;
    }
    resolver.resolve(call.peer.host, [this, id, tries = call.tries](const Resolver::Answer& answer) {
      Call* asking = find(id);
      if (asking == nullptr || asking->tries != tries) return;
      Resolver::Answer good = allowed(asking->peer.host, answer);
      if (good.addresses.empty()) return end(id, TransportError{Kind::resolve, !asking->sent_before, good.error});
      asking->resolved = true;
      connect(id, *asking, std::move(good.addresses));
    });
  }

  // Without the addresses where nothing may be called.
  Resolver::Answer allowed(const std::string& host, Resolver::Answer answer) const {
    if (answer.addresses.empty() || !settings.name_may_be_at || numeric_address(host, 0)) return answer;
    std::erase_if(answer.addresses, [&](const SocketAddress& one) { return !settings.name_may_be_at(host, one); });
    if (answer.addresses.empty())
      answer.error = fmt::format("host name '{}' leads only where nothing may be called", host);
    return answer;
  }

  void connect(CallId id, Call& call, std::vector<SocketAddress> addresses) {
    for (SocketAddress& address : addresses) address.set_port(call.peer.port);
    call.connection =
        std::make_shared<ClientConnection>(loop, call.peer.scheme == "https" ? tls : nullptr, call.peer.host);
    call.connection->connect(std::move(addresses), settings.connect_timeout,
                             [this, id](ClientConnection::Outcome outcome) {
                               Call* connecting = find(id);
                               if (connecting == nullptr) return;
                               if (!outcome.error.text.empty()) {
                                 outcome.error.nothing_sent = !connecting->sent_before;
                                 return end(id, std::move(outcome.error));
                               }
                               connecting->connected = true;
                               exchange(id, *connecting);
                             });
  }

  void exchange(CallId id, Call& call) {
    ClientConnection::Expected expected{call.method == "HEAD", call.options.answer_bytes_max,
                                        call.options.answer_place};
    call.connection->exchange(call.request, std::move(expected), [this, id](ClientConnection::Outcome outcome) {
      if (Call* answered = find(id)) on_outcome(id, *answered, std::move(outcome));
    });
  }

  void on_outcome(CallId id, Call& call, ClientConnection::Outcome outcome) {
    if (outcome.response) {
      keep(call.key, std::move(call.connection));
      return end(id, std::move(*outcome.response));
    }
    // The peer closed a kept connection just when we used it. Safe to repeat if nothing was sent, or for GET.
    const bool may_repeat = outcome.error.nothing_sent || call.method == "GET";
    call.sent_before = call.sent_before || !outcome.error.nothing_sent;
    if (outcome.broken_unanswered && call.reused && may_repeat) {
      call.connection.reset();
      return open(id, call);
    }
    outcome.error.nothing_sent = !call.sent_before;
    end(id, std::move(outcome.error));
  }

  void on_deadline(CallId id) {
    Call& call = *find(id);
    call.deadline.reset();
    const std::string limit = seconds(call.options.deadline);
    const bool sent = call.sent_before || (call.connection != nullptr && call.connection->sent_any());
    std::string text;
    if (!call.counted) {
      text = fmt::format("no connection was free within {}; raise the limit of open files (ulimit -n)", limit);
    } else if (!call.resolved) {
      text = fmt::format("host name '{}' not resolved within {}", call.peer.host, limit);
    } else if (!call.connected) {
      text = fmt::format("no connection within {}", limit);
    } else if (call.connection->answer_bytes() > 0) {
      text = fmt::format("no whole answer within {} ({} bytes of it came)", limit, call.connection->answer_bytes());
    } else {
      text = fmt::format("no answer within {}", limit);
    }
    end(id, TransportError{Kind::timeout, !sent, std::move(text)});
  }

  // The call leaves the table before its owner hears of it, who may call back into the client, or end it.
  void end(CallId id, HttpResult result) {
    const auto found = calls.extract(id);
    Call& call = found.mapped();
    if (call.deadline) loop.cancel(*call.deadline);
    if (call.connection != nullptr) call.connection->abandon();
    release(call);
    call.done(std::move(result));
  }

  void cancel(CallId id) {
    auto found = calls.extract(id);
    if (found.empty()) return;
    Call& call = found.mapped();
    if (call.deadline) loop.cancel(*call.deadline);
    loop.post([done = std::move(call.done), error = cancelled(call)] { done(error); });
    release(call);
  }

  static TransportError cancelled(Call& call) {
    const bool sent = call.sent_before || (call.connection != nullptr && call.connection->sent_any());
    if (call.connection != nullptr) call.connection->abandon();
    return {Kind::cancelled, !sent, "cancelled"};
  }

  // Kept connections

  void keep(const std::string& key, ConnectionPointer connection) {
    if (!connection->idle()) return;
    auto& kept = idle[key];
    if (kept.size() >= kIdlePerPeerMax) return;
    ClientConnection* const raw = connection.get();
    raw->when_unusable([this, key, raw] { drop_idle(key, raw); });
    kept.push_back({std::move(connection), loop.now()});
    ++kept_count;
    if (!sweep) sweep_later();
  }

  void sweep_later() {
    const Milliseconds period = std::max(Milliseconds{1}, settings.idle_keep / kSweepsPerKeep);
    sweep = loop.after(period, [this] {
      sweep.reset();
      const Instant now = loop.now();
      for (auto& [key, kept] : idle)
        kept_count -= std::erase_if(kept, [&](const Idle& one) { return now - one.since >= settings.idle_keep; });
      std::erase_if(idle, [](const auto& entry) { return entry.second.empty(); });
      if (!idle.empty()) sweep_later();
    });
  }

  void drop_idle(const std::string& key, const ClientConnection* connection) {
    const auto entry = idle.find(key);
    if (entry == idle.end()) return;
    const auto found = std::find_if(entry->second.begin(), entry->second.end(),
                                    [&](const Idle& kept) { return kept.connection.get() == connection; });
    if (found == entry->second.end()) return;
    entry->second.erase(found);
    --kept_count;
  }

  // The latest used one that is still good, or null.
  ConnectionPointer take_idle(const std::string& key, std::optional<Milliseconds> idle_at_most) {
    const auto entry = idle.find(key);
    ConnectionPointer good;
    while (entry != idle.end() && good == nullptr && !entry->second.empty()) {
      if (idle_at_most && loop.now() - entry->second.back().since > *idle_at_most) return nullptr;  // others are older
      Idle last = std::move(entry->second.back());
      entry->second.pop_back();
      --kept_count;
      if (last.connection->reusable()) good = std::move(last.connection);
    }
    return good;
  }

  void close_all() {
    if (sweep) loop.cancel(*sweep);
    idle.clear();
    kept_count = 0;
    auto pending = std::exchange(calls, {});
    for (auto& entry : pending) {
      Call& call = entry.second;
      if (call.deadline) loop.cancel(*call.deadline);
      call.done(cancelled(call));
    }
  }
};

HttpClient::HttpClient(Loop& loop, Settings settings)
    : implementation_(std::make_unique<Implementation>(loop, std::move(settings))) {}
HttpClient::HttpClient(Loop& loop) : HttpClient(loop, Settings{}) {}

HttpClient::~HttpClient() {
  *implementation_->alive = false;
  implementation_->close_all();
}

HttpClient::CallId HttpClient::send(const Url& peer, HttpRequest request, HttpCallOptions options,
                                    std::function<void(HttpResult)> done) {
  Implementation& self = *implementation_;
  const CallId id = self.next_id++;
  Call call;
  call.peer = peer;
  call.key = fmt::format("{}://{}:{}", peer.scheme, peer.host, peer.port);
  call.method = request.method;
  call.request = request_text(peer, request);
  call.options = options;
  call.done = std::move(done);
  call.deadline = self.loop.after(options.deadline, [&self, id] { self.on_deadline(id); });
  self.calls.emplace(id, std::move(call));
  self.loop.post([&self, alive = self.alive, id] {
    if (*alive) self.start(id);
  });
  return id;
}

void HttpClient::may_reach(const std::string& host, std::function<void(const std::string&)> done) {
  implementation_->resolver.resolve(
      host, [self = implementation_.get(), host, done = std::move(done)](const Resolver::Answer& answer) {
        done(self->allowed(host, answer).error);
      });
}

void HttpClient::cancel(CallId id) {
  implementation_->cancel(id);
}

}  // namespace weighlock
