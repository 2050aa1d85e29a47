// Requests to the members of a transfer group: each sent once, on a connection that is new or has just answered, all of
// a step at the same time.
//
// Thread rule: loop thread only. Owned by AwexGroups; callbacks are never called after the end of this.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/core/http.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock {

class AwexCalls {
 public:
  struct Settings {
    Milliseconds step_timeout{0};   // of each request of a step
    Milliseconds failure_grace{0};  // after the first failure of a step the others' words are waited for
    std::size_t report_bytes_max = limits::kReportBytesMax;
  };
  struct Request {
    std::string url;  // was checked where it came in
    HttpRequest request;
    std::shared_ptr<AnswerRoom::Place> place = {};  // of a report
  };
  using Answers = std::vector<HttpResult>;
  using Failed = std::function<bool(std::size_t, HttpResult&)>;  // may take what it needs of the answer

  AwexCalls(Loop& loop, HttpClient& http, Settings settings);
  AwexCalls(const AwexCalls&) = delete;
  AwexCalls& operator=(const AwexCalls&) = delete;

  // All at once. `done` when all have answered, or `failure_grace` after the first that `failed`: the rest is closed
  // and counts as timed out.
  void ask_all(std::vector<Request> requests, Failed failed, std::function<void(Answers)> done);
  HttpClient::CallId send(Request request, Milliseconds deadline, std::function<void(HttpResult)> done);
  // Closes the connection by reset.
  void cancel(HttpClient::CallId call) { http_.cancel(call); }
  Milliseconds step_timeout() const { return settings_.step_timeout; }

 private:
  Loop& loop_;
  HttpClient& http_;
  Settings settings_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weighlock
