// What the route groups share: the parts of the gateway that answer requests, and how a request waits for the machine.
//
// Thread rule: loop thread only. Borrowed by every handler; the gateway owns it and closes the server before it goes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "weighlock/gateway/api/router.hpp"
#include "weighlock/gateway/awex_groups.hpp"
#include "weighlock/gateway/confinement.hpp"
#include "weighlock/gateway/credentials.hpp"
#include "weighlock/gateway/meta_store.hpp"
#include "weighlock/gateway/metrics.hpp"
#include "weighlock/gateway/outside.hpp"
#include "weighlock/gateway/pair_body.hpp"
#include "weighlock/gateway/readiness.hpp"
#include "weighlock/gateway/version_storage.hpp"
#include "weighlock/gateway/views.hpp"
#include "weighlock/gateway/waiters.hpp"
#include "weighlock/gateway/wall_clock.hpp"
#include "weighlock/journal/journal.hpp"
#include "weighlock/protocol/driver.hpp"
#include "weighlock/runtime/pool.hpp"

namespace weighlock {

struct ApiSettings {
  std::string admin_api_key;
  protocol::Policy policy;         // defaults of new pairs
  Milliseconds reply_by{280'000};  // below the compatible client's 300 s
  int compat_error_status = 200;   // of a failed transfer
};

struct ApiContext {
  Loop& loop;
  protocol::Driver& driver;
  Waiters& waiters;
  Journal& journal;
  Pool& read_pool;  // for reads of the journal, which block
  VersionStorage& storage;
  Pool& storage_pool;
  const Confinement& confinement;
  CredentialStore& credentials;
  Outside& outside;
  Readiness& readiness;
  Metrics& metrics;
  MetaStore& meta;
  AwexGroups& awex_groups;
  Pool& body_pool;  // for bodies of tens of MB
  WallClock clock;
  ApiSettings settings;
  bool stopping = false;
  // Expires with the gateway: timers and pool jobs may come after it on a loop that goes on.
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);

  const protocol::State& state() const { return driver.state(); }
  ViewContext view() const { return ViewContext{driver.state(), clock, loop.now()}; }
  const protocol::Pair* find_pair(const std::string& name) const;
  const protocol::Update* find_update(const protocol::UpdateId& id) const;
};

// A request that waits: for the machine's reply, an update's end, or its own deadline, whichever comes first. Kept
// alive by what it waits for.
class PendingAnswer : public std::enable_shared_from_this<PendingAnswer> {
 public:
  static std::shared_ptr<PendingAnswer> make(ApiContext& context, Responder responder);

  // The first answer counts; it ends all waiting.
  void answer(HttpResponse response);
  bool answered() const { return answered_; }
  // For reads: a client that hangs up isn't waited for to the end of the wait; `late` runs at once.
  void ends_with_client() { ends_with_client_ = true; }
  // Runs `late` after `after`, unless answered.
  void deadline(Milliseconds after, std::function<void()> late);
  // Runs `then` when the update is terminal: at once if it is, or if it is forgotten.
  void when_ended(const protocol::UpdateId& update, std::function<void()> then);
  // Token for an event; `then` runs with the machine's reply, also when answered already.
  protocol::ReplyToken when_replied(std::function<void(const protocol::Reply&)> then);

  Instant began() const { return began_; }
  ApiContext& context() { return context_; }

 private:
  PendingAnswer(ApiContext& context, Responder responder)
      : context_(context), alive_(context.alive), responder_(std::move(responder)), began_(context.loop.now()) {}

  ApiContext& context_;
  std::weak_ptr<bool> alive_;
  Responder responder_;
  Instant began_;
  bool answered_ = false;
  bool ends_with_client_ = false;
  std::optional<Loop::TimerId> timer_;
  std::optional<Waiters::WaitId> wait_;
};

// One per file of this folder.
void add_compat_routes(Router& router, ApiContext& context);
void add_meta_routes(Router& router, ApiContext& context);
void add_pair_routes(Router& router, ApiContext& context);
void add_update_routes(Router& router, ApiContext& context);
void add_version_routes(Router& router, ApiContext& context);
void add_worker_routes(Router& router, ApiContext& context);
void add_event_routes(Router& router, ApiContext& context);
void add_health_routes(Router& router, ApiContext& context);

// /v1: the refusal if the bearer key isn't right.
std::optional<HttpResponse> refuse_key(const ApiContext& context, const RouteRequest& request);
// "wait=SECONDS", at most ten minutes; none without it. The failure is a problem's.
struct WaitAsked {
  std::optional<Milliseconds> wait;
  std::optional<FieldError> failure;
};
WaitAsked read_wait(const RouteRequest& request);
// The strict JSON body of a /v1 call.
Result<json::value> read_body(const RouteRequest& request);
// The same for calls that need none: no body is an empty object.
Result<json::value> read_optional_body(const RouteRequest& request);
// On a full disk of the journal, with nothing put by any more, what would be recorded is refused, with storage_full as
// the reply to `token` and `what` named in it: a record that can't be written ends the process. Else `post` runs, now
// or when the disk was looked at.
void post_unless_full(ApiContext& context, protocol::ReplyToken token, std::string what, std::function<void()> post);
// The same for an event that is handed to the machine.
template <typename Event>
void post_event_unless_full(ApiContext& context, std::string what, Event event) {
  const protocol::ReplyToken token = event.token;
  post_unless_full(context, token, std::move(what),
                   [&context, event = std::move(event)] { context.driver.post(event); });
}

// Hands the event to the machine; on a full disk of the journal new work is refused instead, with storage_full as the
// reply to its token. A key that is known already is no new work.
void request_update(ApiContext& context, protocol::RequestUpdate event);
// Looks at what the body names outside of itself: hosts in `doubtful`, keys in files. `then` runs with the failure, or
// with the keys in place; at once when there is nothing to look at.
void look_outside(ApiContext& context, std::vector<DoubtfulHost> doubtful, PairBody body,
                  std::function<void(std::optional<FieldError>, PairBody)> then);
// The answer to a removal of the pair, when its trainers have left their group: who connects them elsewhere next finds
// them free. Adds "leaving", the trainers that haven't answered within limits::kLeaveWait, where there are any.
void answer_when_left(const std::shared_ptr<PendingAnswer>& pending, std::vector<std::string> trainers,
                      json::object answer);
// 404 as a problem.
HttpResponse no_such(std::string_view kind, std::string_view name, const RouteRequest& request);

}  // namespace weighlock
