#include "weighlock/gateway/awex_transfers.hpp"

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

// Memory is handed from one side to the other around the transfer, each step by all workers before the next. After a
// failure the steps that leave memory as it is after an update are done all the same: what is released stays the
// trainer's to take back, and an engine that has nothing answers nobody.
struct AwexTransfers::Colocated {
  protocol::RunTransfer order;
  WorkerEnded worker_ended;
  TrainerEnded trainer_ended;
  std::size_t step = 0;
  bool failed = false;
  std::map<protocol::CallId, awex::Answer> ended;  // the first failure of each, else its transfer's answer
};

AwexTransfers::~AwexTransfers() {
  for (const auto& [call, id] : members_) calls_.cancel(id);
}

void AwexTransfers::run(const protocol::RunTransfer& order, WorkerEnded worker_ended, TrainerEnded trainer_ended) {
  if (order.colocate) {
    const auto run = std::make_shared<Colocated>();
    run->order = order;
    run->worker_ended = std::move(worker_ended);
    run->trainer_ended = std::move(trainer_ended);
    return colocated_step(run);
  }
  constexpr const char* kTarget = "POST /awex/update_weights";
  const auto ask = [&](const protocol::RunTransfer::Member& member, std::function<void(const awex::Answer&)> ended) {
    members_[member.call] = calls_.send(
        {member.url, awex::update_request(order.version), nullptr}, limits::kCallHardTimeout,
        [this, call = member.call, version = order.version, ended = std::move(ended)](const HttpResult& result) {
          if (members_.erase(call) != 0) ended(awex::classify(kTarget, result, version));
        });
  };
  for (const auto& member : order.trainers)
    ask(member,
        [call = member.call, trainer_ended](const awex::Answer& answer) { trainer_ended(trainer_end(call, answer)); });
  for (const auto& member : order.workers)
    ask(member,
        [call = member.call, worker_ended](const awex::Answer& answer) { worker_ended(call, outcome_of(answer)); });
}

void AwexTransfers::cancel(protocol::CallId call) {
  if (const auto node = members_.extract(call); !node.empty()) calls_.cancel(node.mapped());
}

void AwexTransfers::colocated_end(const Colocated& run) {
  const auto ranks = static_cast<std::uint32_t>(run.order.trainers.size() * 2);
  for (const std::string& key : awex::colocate_keys(ranks, run.order.version)) meta_.erase(run.order.name, key);
  const awex::Answer other{awex::AnswerKind::failed, ErrorCode::worker_failed,
                           "the transfer was not begun, since another worker failed before it", true, false};
  const auto end_of = [&](protocol::CallId call) {
    const auto it = run.ended.find(call);
    return it == run.ended.end() ? other : it->second;
  };
  for (const auto& member : run.order.trainers) run.trainer_ended(trainer_end(member.call, end_of(member.call)));
  for (const auto& member : run.order.workers) run.worker_ended(member.call, outcome_of(end_of(member.call)));
}

void AwexTransfers::colocated_step(const std::shared_ptr<Colocated>& run) {
  struct Stage {
    bool trainers, workers, release;
    const char* tag;  // null: the transfer
  };
  static constexpr Stage kStages[] = {{true, false, true, "optimizer"},
                                      {false, true, false, "weights"},
                                      {true, true, false, nullptr},
                                      {true, false, true, "weights"},
                                      {false, true, false, "kv_cache"}};
  constexpr std::size_t kTransfer = 2;
  if (run->failed && run->step == kTransfer) ++run->step;
  if (run->step == std::size(kStages)) return colocated_end(*run);
  const Stage& stage = kStages[run->step];
  const HttpRequest request =
      stage.tag ? awex::memory_request(stage.release, stage.tag) : awex::colocate_update_request(run->order.version);
  std::vector<AwexCalls::Request> requests;
  std::vector<protocol::CallId> calls;
  const auto add = [&](const std::vector<protocol::RunTransfer::Member>& members) {
    for (const auto& member : members) {
      requests.push_back({member.url, request, nullptr});
      calls.push_back(member.call);
    }
  };
  if (stage.trainers) add(run->order.trainers);
  if (stage.workers) add(run->order.workers);
  const std::string target = "POST " + request.target;
  const auto version = stage.tag ? std::nullopt : std::optional(run->order.version);
  calls_.ask_all(
      std::move(requests),
      [target, version](std::size_t, const HttpResult& result) {
        return !awex::classify(target, result, version).ok();
      },
      [this, run, calls, target, version](const AwexCalls::Answers& answers) {
        for (std::size_t i = 0; i < answers.size(); ++i) {
          const awex::Answer answer = awex::classify(target, answers[i], version);
          run->failed = run->failed || !answer.ok();
          const auto known = run->ended.find(calls[i]);
          const bool told = known != run->ended.end() && !known->second.ok();
          if (!answer.ok() && !told) run->ended[calls[i]] = answer;
          if (answer.ok() && run->step == kTransfer) run->ended.try_emplace(calls[i], answer);
        }
        ++run->step;
        colocated_step(run);
      });
}

}  // namespace weighlock
