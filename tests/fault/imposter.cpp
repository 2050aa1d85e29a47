#include "imposter.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace weighlock::fault {
namespace {

// A closed connection is seen within this; two calls at once are told from a call after one that was given up.
constexpr Milliseconds kCloseIsSeen{150};
constexpr Milliseconds kPerByte{1};

}  // namespace

Imposter::Imposter(Loop& loop) : loop_(loop) {
  port_ = reserve_port();
  start_server(port_);
  url_ = "http://127.0.0.1:" + std::to_string(port_);
}

Imposter::~Imposter() {
  ::close(reserved_);
}

// A port that nobody else gets while we don't listen: bound by a socket that never does.
int Imposter::reserve_port() {
  reserved_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  ::setsockopt(reserved_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(reserved_, reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
  socklen_t size = sizeof any;
  EXPECT_EQ(::getsockname(reserved_, reinterpret_cast<sockaddr*>(&any), &size), 0);
  return ntohs(any.sin_port);
}

void Imposter::start_server(int port) {
  server_ = std::make_unique<HttpServer>(loop_, [this](const HttpRequest& r, const Responder& a) { handle(r, a); });
  HttpServer::Settings settings;
  settings.port = port;
  const Status status = server_->listen(settings);
  EXPECT_TRUE(status) << "port " << port << ": " << status.error().text();
}

HttpResponse Imposter::reply(int status, json::value body) {
  return HttpResponse{status, {{"Content-Type", "application/json"}}, json::serialize(body)};
}

void Imposter::arm(Plan plan, std::optional<std::size_t> refuse_at) {
  plan_ = std::move(plan);
  if (plan_.fault != Fault::refuse) return;
  refuse_at_ = refuse_at;
  // From here on no connection is kept, so that the call that is to be refused needs a new one.
  server_.reset();
  start_server(port_);
  if (refuse_at_ == 0) stop_listening();
}

void Imposter::calm() {
  plan_ = Plan{};
  refuse_at_.reset();
  if (!server_) listen_again();
  if (frozen_) thaw();
  for (const auto& open : std::exchange(open_, {})) {
    if (!open->answered) open->responder.reset();
  }
}

void Imposter::stop_listening() {
  refuse_at_.reset();
  server_.reset();
  if (plan_.always) return;
  loop_.after(kAway, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired() && !server_) listen_again();
  });
}

void Imposter::listen_again() {
  start_server(port_);
}

int Imposter::count(std::string_view route) const {
  return static_cast<int>(all(route).size());
}

std::vector<const Seen*> Imposter::all(std::string_view route) const {
  std::vector<const Seen*> out;
  for (const Seen& one : seen) {
    if (one.route == route) out.push_back(&one);
  }
  return out;
}

// Two calls at once: one came while another was neither answered nor given up (its connection closed).
void Imposter::note_overlap(const std::string& route) {
  std::erase_if(open_, [](const auto& open) { return open->answered || open->responder.closed(); });
  for (const auto& open : open_) {
    loop_.after(kCloseIsSeen, [this, alive = std::weak_ptr(alive_), open, route] {
      if (!alive.expired() && !open->responder.closed())
        violation(route + " came while " + open->route + " was not answered");
    });
  }
}

void Imposter::handle(const HttpRequest& request, const Responder& responder) {
  Seen one;
  one.method = request.method;
  one.target = request.target;
  one.route = request.target.substr(0, request.target.find('?'));
  one.has_body = !request.body.empty();
  one.content_type = header(request.headers, "content-type");
  one.authorization = header(request.headers, "authorization");
  if (one.has_body) one.body = parse_json(request.body, "body").value_or(nullptr);
  if (takes_itself(one, responder)) return;
  note_overlap(one.route);
  seen.push_back(one);
  const auto open = std::make_shared<Open>(Open{one.route, responder});
  open_.push_back(open);
  if (!key.empty() && one.authorization != "Bearer " + key)
    return answer(open, reply(401, {{"error", "Unauthorized"}}));
  const Fault fault = take_fault(one.route);
  Action action = act(one);
  if (fault == Fault::none) {
    do_it(std::move(action), open);
  } else {
    fail(fault, one, std::move(action), open);
  }
}

Fault Imposter::take_fault(const std::string& route) {
  if (plan_.route != route || plan_.fault == Fault::refuse) return Fault::none;
  const Fault fault = plan_.fault;
  if (!plan_.always) plan_ = Plan{};
  return fault;
}

void Imposter::do_it(Action action, const std::shared_ptr<Open>& open) {
  if (frozen_ && action.queued) return waiting_.push_back({std::move(action), open});
  answer(open, action.run());
}

void Imposter::answer(const std::shared_ptr<Open>& open, HttpResponse response) {
  open->answered = true;
  const bool last = refuse_at_ && seen.size() >= *refuse_at_;
  if (refuse_at_) response.headers.push_back({"Connection", "close"});
  if (last) server_->stop_accepting();  // before the caller can have its answer, and go on
  open->responder.respond(std::move(response));
  if (!last) return;
  refuse_at_.reset();
  loop_.post([this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) stop_listening();
  });
}

void Imposter::fail(Fault fault, const Seen& request, Action action, const std::shared_ptr<Open>& open) {
  switch (fault) {
    case Fault::none:
    case Fault::refuse:
      return do_it(std::move(action), open);
    case Fault::reset_after:
      action.run();
      [[fallthrough]];
    case Fault::reset_before:
      open->answered = true;
      return open->responder.reset();
    case Fault::hang_after:
      action.run();
      [[fallthrough]];
    case Fault::hang:
      return;  // `open_` keeps it open
    case Fault::freeze:
      return freeze(std::move(action), open, freeze_for);
    case Fault::late:
      return freeze(std::move(action), open, late_by);
    case Fault::drip:
      open->answered = true;
      return open->responder.drip(action.run(), kPerByte);
    case Fault::status_500:
      damage(request, fault);
      return answer(open, reply(500, {{"error", {{"message", kWords}}}}));
    case Fault::status_400:
      damage(request, fault);
      return answer(open, reply(400, {{"success", false}, {"message", kWords}}));
    case Fault::not_success:
      damage(request, fault);
      return answer(open, reply(200, {{"success", false}, {"message", kWords}}));
    case Fault::garbage:
      action.run();
      return answer(
          open, HttpResponse{200, {{"Content-Type", "text/html"}}, std::string("<html><p>") + kWords + "</p></html>"});
    case Fault::empty:
      action.run();
      return answer(open, HttpResponse{200, {}, ""});
  }
}

// What doesn't pass through the queue takes effect at once, and only its answer is missing.
void Imposter::freeze(Action action, const std::shared_ptr<Open>& open, Milliseconds until) {
  if (!action.queued) {
    HttpResponse response = action.run();
    action.run = [response = std::move(response)] { return response; };
  }
  waiting_.push_back({std::move(action), open});
  if (std::exchange(frozen_, true)) return;
  loop_.after(until, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) thaw();
  });
}

// In order, also for callers that have left: an engine doesn't forget what it was told.
void Imposter::thaw() {
  frozen_ = false;
  for (const Waiting& one : std::exchange(waiting_, {})) answer(one.open, one.action.run());
}

}  // namespace weighlock::fault
