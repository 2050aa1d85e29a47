#include "weighlock/gateway/awex_transfers.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weighlock/awex/calls.hpp"
#include "weighlock/core/limits.hpp"

namespace weighlock {
namespace {

Outcome outcome_of(const awex::Answer& answer) {
  Outcome out;
  out.code = answer.code;
  out.text = answer.text;
  out.blames_a_peer = answer.blames_a_peer;
  switch (answer.kind) {
    case awex::AnswerKind::ok:
      out.kind = OutcomeKind::ok;
      out.evidence = Evidence::acknowledged;
      break;
    case awex::AnswerKind::failed:
      out.kind = OutcomeKind::touched;
      break;
    case awex::AnswerKind::unknown:
      out.kind = OutcomeKind::unknown;
      break;
    case awex::AnswerKind::not_sent:
      out.kind = OutcomeKind::not_sent;
      break;
  }
  return out;
}

protocol::SaveEnded trainer_end(protocol::CallId call, const awex::Answer& answer) {
  using Kind = protocol::SaveOutcomeKind;
  const Kind kind = answer.kind == awex::AnswerKind::ok         ? Kind::ok
                    : answer.kind == awex::AnswerKind::failed   ? Kind::failed
                    : answer.kind == awex::AnswerKind::not_sent ? Kind::not_sent
                                                                : Kind::unknown;
  return protocol::SaveEnded{call, kind, answer.text, false, answer.blames_a_peer};
}

}  // namespace

AwexTransfers::~AwexTransfers() {
  for (const auto& [call, asked] : asked_) calls_.cancel(asked.id);
}

HttpRequest AwexTransfers::request_of(const protocol::RunTransfer& order) {
  using Step = protocol::HandOverStep;
  switch (order.step) {
    case Step::release_optimizer:
      return awex::memory_request(true, "optimizer");
    case Step::resume_weights:
      return awex::memory_request(false, "weights");
    case Step::release_weights:
      return awex::memory_request(true, "weights");
    case Step::resume_kv_cache:
      return awex::memory_request(false, "kv_cache");
    case Step::transfer:
      break;
  }
  return order.colocate ? awex::colocate_update_request(order.version) : awex::update_request(order.version);
}

void AwexTransfers::run(const protocol::RunTransfer& order, WorkerEnded worker_ended, TrainerEnded trainer_ended) {
  const HttpRequest request = request_of(order);
  const std::string target = "POST " + request.target;
  // Of the steps only the transfer's call has a version, which an answer may tell again.
  const auto version = order.step == protocol::HandOverStep::transfer ? std::optional(order.version) : std::nullopt;
  std::shared_ptr<Keys> keys;
  if (order.colocate && order.step == protocol::HandOverStep::transfer) {
    const auto ranks = static_cast<std::uint32_t>(order.trainers.size() * 2);
    keys = std::make_shared<Keys>(
        Keys{order.name, awex::colocate_keys(ranks, order.version), order.trainers.size() + order.workers.size()});
  }
  const auto ask = [&](const protocol::RunTransfer::Member& member, std::string trainer,
                       std::function<void(const awex::Answer&)> ended) {
    if (!trainer.empty()) trainers_.hold(trainer);
    Asked& asked = asked_[member.call];
    asked.trainer = std::move(trainer);
    asked.keys = keys;
    asked.id =
        calls_.send({member.url, request, nullptr}, limits::kCallHardTimeout,
                    [this, call = member.call, target, version, ended = std::move(ended)](const HttpResult& result) {
                      auto node = asked_.extract(call);
                      if (node.empty()) return;
                      over(node.mapped());
                      ended(awex::classify(target, result, version));
                    });
  };
  for (const auto& member : order.trainers)
    ask(member, order.colocate ? member.url : std::string(),
        [call = member.call, trainer_ended](const awex::Answer& answer) { trainer_ended(trainer_end(call, answer)); });
  for (const auto& member : order.workers)
    ask(member, "",
        [call = member.call, worker_ended](const awex::Answer& answer) { worker_ended(call, outcome_of(answer)); });
}

void AwexTransfers::over(const Asked& asked) {
  if (asked.keys && --asked.keys->open == 0) {
    for (const std::string& key : asked.keys->keys) meta_.erase(asked.keys->group, key);
  }
  if (!asked.trainer.empty()) trainers_.let_go(asked.trainer);
}

void AwexTransfers::cancel(protocol::CallId call) {
  auto node = asked_.extract(call);
  if (node.empty()) return;
  calls_.cancel(node.mapped().id);
  over(node.mapped());
}

}  // namespace weighlock
