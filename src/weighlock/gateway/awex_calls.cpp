#include "weighlock/gateway/awex_calls.hpp"

#include <fmt/format.h>

#include <utility>

#include "weighlock/core/check.hpp"
#include "weighlock/core/url.hpp"

namespace weighlock {
namespace {

Url url_of(const std::string& text) {
  Result<Url> url = parse_url(text);
  WEIGHLOCK_CHECK(url, "URLs are checked where they come in");
  return *std::move(url);
}

HttpResult timed_out(Milliseconds after) {
  return TransportError{TransportError::Kind::timeout, false, fmt::format("no answer within {} ms", after.count())};
}

}  // namespace

AwexCalls::AwexCalls(Loop& loop, HttpClient& http, Settings settings) : loop_(loop), http_(http), settings_(settings) {}

HttpClient::CallId AwexCalls::send(Request request, Milliseconds deadline, std::function<void(HttpResult)> done) {
  HttpCallOptions options;
  options.deadline = deadline;
  // Nothing is asked twice, so a connection that may be dying is not good enough; a GET would be repeated.
  options.fresh_connection = request.request.method == "GET";
  options.idle_at_most = kRecentConnection;
  options.never_waits = true;  // no member is out of a collective before all are in
  if (request.place) options.answer_bytes_max = settings_.report_bytes_max;
  options.answer_place = std::move(request.place);
  return http_.send(url_of(request.url), std::move(request.request), options,
                    [alive = std::weak_ptr(alive_), done = std::move(done)](HttpResult result) {
                      if (!alive.expired()) done(std::move(result));
                    });
}

void AwexCalls::ask_all(std::vector<Request> requests, Failed failed, std::function<void(Answers)> done) {
  struct Round {
    Answers answers;
    std::vector<std::optional<HttpClient::CallId>> calls;
    std::size_t open = 0;
    std::optional<Loop::TimerId> grace;
    Failed failed;
    std::function<void(Answers)> done;
  };
  const auto round = std::make_shared<Round>();
  round->answers.resize(requests.size(), timed_out(settings_.failure_grace));
  round->calls.resize(requests.size());
  round->open = requests.size();
  round->failed = std::move(failed);
  round->done = std::move(done);
  const auto conclude = [this, round] {
    if (!round->done) return;
    if (round->grace) loop_.cancel(*round->grace);
    for (auto& call : round->calls) {
      if (call) http_.cancel(*std::exchange(call, std::nullopt));
    }
    std::exchange(round->done, nullptr)(std::move(round->answers));
  };
  for (std::size_t i = 0; i < requests.size(); ++i) {
    round->calls[i] =
        send(std::move(requests[i]), settings_.step_timeout, [this, round, conclude, i](HttpResult result) {
          if (!round->done || !round->calls[i]) return;
          round->calls[i].reset();
          const bool bad = round->failed(i, result);
          round->answers[i] = std::move(result);
          if (--round->open == 0) return conclude();
          if (bad && !round->grace)
            round->grace = loop_.after(settings_.failure_grace, [conclude, alive = std::weak_ptr(alive_), round] {
              if (alive.expired()) return;
              round->grace.reset();
              conclude();
            });
        });
  }
}

}  // namespace weighlock
