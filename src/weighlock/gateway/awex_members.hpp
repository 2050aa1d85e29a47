// The members of a transfer group in the order in which they are asked, and what came of a step that all were asked
// for.
//
// Values; any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weighlock/core/error.hpp"
#include "weighlock/core/transport.hpp"
#include "weighlock/gateway/awex_calls.hpp"
#include "weighlock/protocol/event.hpp"

namespace weighlock {

// Trainers, in the order of ranks, then engines.
struct AwexMembers {
  std::vector<std::string> trainers;
  std::vector<std::string> workers;

  std::size_t size() const { return trainers.size() + workers.size(); }
  bool is_trainer(std::size_t i) const { return i < trainers.size(); }
  const std::string& url(std::size_t i) const { return is_trainer(i) ? trainers[i] : workers[i - trainers.size()]; }
  std::string who(std::size_t i) const;  // "trainer http://10.0.0.4:8003"
  std::vector<AwexCalls::Request> each(const std::function<HttpRequest(std::size_t)>& make) const;
};

// No answer, or one whose status isn't 200. What a report says is read with the rest of it.
bool is_bad_status(const HttpResult& result);

struct StepFailure {
  Error error;              // names each member that failed
  bool port_taken = false;  // one of them says so
  // Workers that failed by themselves; none if a trainer did, too, or if the port is to blame.
  std::vector<protocol::RefusedWorker> refused = {};
};
// Of the step `target`, by all members' answers; none if all are well.
std::optional<StepFailure> failure_of(const AwexMembers& members, const AwexCalls::Answers& answers,
                                      std::string_view target);
// Likewise of the step in which members report their metadata.
std::optional<StepFailure> failure_of_reports(const AwexMembers& members, const AwexCalls::Answers& answers);
// The member `i` as one that failed by itself with its own report, if that is what `result` says.
std::vector<protocol::RefusedWorker> refusal_of_report(const AwexMembers& members, std::size_t i,
                                                       const HttpResult& result, const std::string& words);

}  // namespace weighlock
