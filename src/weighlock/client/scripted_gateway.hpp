// For tests: an HTTP server in this process that answers as the test says, and remembers what it was asked.
//
// Thread rule: made and destroyed by the test's thread; the answers run on the server's own.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "weighlock/core/check.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/net/server.hpp"
#include "weighlock/runtime/loop.hpp"

namespace weighlock::client {

class ScriptedGateway {
 public:
  ScriptedGateway() {
    server_ = std::make_unique<HttpServer>(
        loop_, [this](HttpRequest request, const Responder& responder) { answer(std::move(request), responder); });
    WEIGHLOCK_CHECK(server_->listen({"127.0.0.1", 0}).has_value(), "a free port");
    port_ = server_->port();
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~ScriptedGateway() {
    loop_.post([this] {
      server_.reset();
      loop_.stop();
    });
    thread_.join();
  }
  ScriptedGateway(const ScriptedGateway&) = delete;
  ScriptedGateway& operator=(const ScriptedGateway&) = delete;

  std::string url_text() const { return "http://127.0.0.1:" + std::to_string(port_); }
  Url url() const { return *parse_url(url_text()); }

  // Answers to "METHOD target", one after the other; the last one stays. Status 0 is a reset without an answer.
  void script(const std::string& call, std::vector<HttpResponse> answers) {
    const std::scoped_lock lock(mutex_);
    script_[call] = std::deque<HttpResponse>(answers.begin(), answers.end());
  }
  void script(const std::string& call, int status, std::string body) {
    script(call, {HttpResponse{status, {}, std::move(body)}});
  }

  std::vector<HttpRequest> requests() const {
    const std::scoped_lock lock(mutex_);
    return requests_;
  }

 private:
  void answer(HttpRequest request, const Responder& responder) {
    const std::scoped_lock lock(mutex_);
    requests_.push_back(request);
    const auto found = script_.find(request.method + " " + request.target);
    if (found == script_.end()) {
      responder.respond(
          {404, {}, R"({"code":"not_found","detail":"the test has no answer for )" + request.target + "\"}"});
      return;
    }
    const HttpResponse response = found->second.front();
    if (found->second.size() > 1) found->second.pop_front();
    if (response.status == 0) {
      responder.reset();
    } else {
      responder.respond(response);
    }
  }

  mutable std::mutex mutex_;
  std::map<std::string, std::deque<HttpResponse>> script_;
  std::vector<HttpRequest> requests_;
  Loop loop_;
  std::unique_ptr<HttpServer> server_;
  int port_ = 0;
  std::thread thread_;
};

}  // namespace weighlock::client
