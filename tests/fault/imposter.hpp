// A peer of the gateway over real sockets, whose every route can be made to fail, and which knows by itself what was
// done to it.
//
// A subclass says what a request does and how it is answered when all is well; this class lets it go wrong. What must
// never happen (two calls at once, a load while running, a resume on torn weights, ...) is noted in `violations` when
// it does.
//
// Thread rule: everything on the loop's thread, but `url` and what a subclass declares atomic.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fault.hpp"
#include "weighlock/core/http.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/net/server.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock::fault {

struct Seen {
  std::string method;
  std::string route;  // the target's path
  std::string target;
  json::value body;
  bool has_body = false;
  std::string content_type;
  std::string authorization;
};

// What goes wrong, and where.
struct Plan {
  std::string route;
  Fault fault = Fault::none;
  bool always = false;  // at each call of the route until `calm`; otherwise at the next one only
};

class Imposter {
 public:
  // Well beyond the deadlines of the suite's updates, for what is answered after them.
  static constexpr Milliseconds kFreeze{2500};
  static constexpr Milliseconds kLate{150};
  // How long a peer that refuses once is away.
  static constexpr Milliseconds kAway{250};

  explicit Imposter(Loop& loop);
  virtual ~Imposter();
  Imposter(const Imposter&) = delete;
  Imposter& operator=(const Imposter&) = delete;

  const std::string& url() const { return url_; }

  // Forgets what was seen; the next calls are numbered from 0.
  void begin_script() { seen.clear(); }
  // `refuse_at` is for Fault::refuse, which must be in place before its call comes: the number of that call in the
  // script.
  void arm(Plan plan, std::optional<std::size_t> refuse_at = std::nullopt);
  // No more faults; what hangs is let go by reset.
  void calm();
  void stop_listening();
  void listen_again();

  int count(std::string_view route) const;
  std::vector<const Seen*> all(std::string_view route) const;

  std::vector<Seen> seen;
  std::vector<std::string> violations;
  Milliseconds freeze_for = kFreeze;
  Milliseconds late_by = kLate;
  std::string key;  // "" = none is asked for; else every call must carry it as Bearer

 protected:
  struct Action {
    std::function<HttpResponse()> run;  // does it, and makes the right answer
    bool queued = true;                 // it passes through the engine's queue
  };
  virtual Action act(const Seen& request) = 0;
  // A request that isn't the gateway's: true if it was taken, and no rule of this class applies to it.
  virtual bool takes_itself(const Seen&, const Responder&) { return false; }
  // A request that failed in the middle of its work.
  virtual void damage(const Seen&, Fault) {}

  void violation(std::string text) { violations.push_back(std::move(text)); }
  static HttpResponse reply(int status, json::value body);
  Loop& loop() { return loop_; }

 private:
  struct Open {
    std::string route;
    Responder responder;
    bool answered = false;
  };
  struct Waiting {
    Action action;
    std::shared_ptr<Open> open;
  };

  int reserve_port();
  void start_server(int port);
  void handle(const HttpRequest& request, const Responder& responder);
  void note_overlap(const std::string& route);
  Fault take_fault(const std::string& route);
  void fail(Fault fault, const Seen& request, Action action, const std::shared_ptr<Open>& open);
  void do_it(Action action, const std::shared_ptr<Open>& open);
  void answer(const std::shared_ptr<Open>& open, HttpResponse response);
  void freeze(Action action, const std::shared_ptr<Open>& open, Milliseconds until);
  void thaw();

  Loop& loop_;
  std::unique_ptr<HttpServer> server_;
  int reserved_ = -1;
  int port_ = 0;
  std::string url_;
  Plan plan_;
  std::optional<std::size_t> refuse_at_;
  bool frozen_ = false;
  std::deque<Waiting> waiting_;
  std::vector<std::shared_ptr<Open>> open_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weighlock::fault
