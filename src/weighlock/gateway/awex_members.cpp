#include "weighlock/gateway/awex_members.hpp"

#include <fmt/format.h>

#include <utility>

#include "weighlock/awex/calls.hpp"
#include "weighlock/protocol/awex_blame.hpp"

namespace weighlock {
namespace {

bool is_silence(const HttpResult& result) {
  const TransportError* error = std::get_if<TransportError>(&result);
  return error && error->kind == TransportError::Kind::timeout && !error->nothing_sent;
}

protocol::RefusedWorker refusal_of(const AwexMembers& members, std::size_t i, const HttpResult& result,
                                   std::string words) {
  return {members.url(i), std::move(words), std::holds_alternative<TransportError>(result)};
}

std::optional<StepFailure> failure_of_those(const AwexMembers& members, const AwexCalls::Answers& answers,
                                            std::string_view target,
                                            const std::function<bool(const HttpResult&)>& is_well) {
  std::vector<protocol::MemberEnd> ends;
  std::optional<ErrorCode> of_first, of_silent, of_others;
  bool port_taken = false, is_trainers = false;
  std::vector<protocol::RefusedWorker> refused;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (is_well(answers[i])) continue;
    const awex::Answer answer = awex::classify(target, answers[i]);
    const bool silent = is_silence(answers[i]);
    auto& first = silent ? of_silent : answer.blames_a_peer ? of_others : of_first;
    if (!first) first = answer.code;
    port_taken = port_taken || answer.port_taken;
    if (!silent && !answer.blames_a_peer) {
      is_trainers = is_trainers || members.is_trainer(i);
      refused.push_back(refusal_of(members, i, answers[i], answer.text));
    }
    ends.push_back({members.who(i), answer.text, silent, answer.blames_a_peer});
  }
  if (ends.empty()) return std::nullopt;
  const ErrorCode code = of_first ? *of_first : of_silent ? *of_silent : *of_others;
  if (is_trainers || port_taken) refused.clear();
  return StepFailure{Error{code, protocol::blame_text(std::move(ends)), nullptr}, port_taken, std::move(refused)};
}

}  // namespace

std::string AwexMembers::who(std::size_t i) const {
  return fmt::format("{} {}", is_trainer(i) ? "trainer" : "worker", url(i));
}

std::vector<AwexCalls::Request> AwexMembers::each(const std::function<HttpRequest(std::size_t)>& make) const {
  std::vector<AwexCalls::Request> out;
  for (std::size_t i = 0; i < size(); ++i) out.push_back({url(i), make(i), nullptr});
  return out;
}

bool is_bad_status(const HttpResult& result) {
  const HttpResponse* response = std::get_if<HttpResponse>(&result);
  return !response || response->status != 200;
}

std::vector<protocol::RefusedWorker> refusal_of_report(const AwexMembers& members, std::size_t i,
                                                       const HttpResult& result, const std::string& words) {
  if (members.is_trainer(i) || is_silence(result) || !is_bad_status(result)) return {};
  return {refusal_of(members, i, result, words)};
}

std::optional<StepFailure> failure_of(const AwexMembers& members, const AwexCalls::Answers& answers,
                                      std::string_view target) {
  return failure_of_those(members, answers, target,
                          [&](const HttpResult& result) { return awex::classify(target, result).ok(); });
}

std::optional<StepFailure> failure_of_reports(const AwexMembers& members, const AwexCalls::Answers& answers) {
  return failure_of_those(members, answers, "POST /awex/report_weight_meta",
                          [](const HttpResult& result) { return !is_bad_status(result); });
}

}  // namespace weighlock
