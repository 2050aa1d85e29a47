// For this folder's tests: an engine that answers by a script, and remembers what it was asked.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "weighlock/core/json.hpp"
#include "weighlock/engines/dialect.hpp"

namespace weighlock {

inline HttpResponse answer(int status, std::string body) {
  return HttpResponse{status, {}, std::move(body)};
}

inline TransportError lost(TransportError::Kind kind, bool nothing_sent = false) {
  return {kind, nothing_sent, std::string(name(kind))};
}

inline Operation operation(OperationKind kind) {
  Operation made;
  made.kind = kind;
  made.directory = "/w/v2";
  made.label = "7";
  made.adapter = "policy-v7";
  return made;
}

class ScriptedEngine {
 public:
  // Answers to one route, in turn; the last one again and again. The route is "METHOD /path", with its query.
  ScriptedEngine& on(const std::string& route, HttpResult result) {
    script_[route].push_back(std::move(result));
    return *this;
  }

  Outcome run(Conversation& conversation) {
    Turn turn = conversation.begin();
    while (const Step* step = std::get_if<Step>(&turn)) {
      asked.push_back(*step);
      const std::string route = step->request.method + " " + step->request.target;
      std::deque<HttpResult>& answers = script_[route];
      HttpResult result = answers.empty() ? HttpResult(answer(404, R"({"detail":"Not Found"})")) : answers.front();
      if (answers.size() > 1) answers.pop_front();
      if (asked.size() > 100) ADD_FAILURE() << "the conversation doesn't end";
      if (asked.size() > 100) return {};
      turn = conversation.next(result);
    }
    return std::get<Outcome>(turn);
  }

  Outcome run(DialectKind kind, EngineTask task) { return run(*start_conversation(kind, std::move(task))); }

  std::vector<std::string> routes() const {
    std::vector<std::string> all;
    for (const Step& step : asked) all.push_back(step.request.method + " " + step.request.target);
    return all;
  }
  std::string body(std::size_t i) const { return asked.at(i).request.body; }
  std::string authorization(std::size_t i) const {
    return std::string(header(asked.at(i).request.headers, "Authorization"));
  }

  std::vector<Step> asked;

 private:
  std::map<std::string, std::deque<HttpResult>> script_;
};

}  // namespace weighlock
