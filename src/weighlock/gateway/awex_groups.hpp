// The edge of AWEX pairs: brings workers together to a transfer group, runs its collectives, takes it apart.
//
// Decides nothing: what a group is for, and what a failure means, stands in protocol/awex*.cpp. Here is the order of a
// bring-up; AwexReports reads what members report, AwexTrainers keeps a trainer in one group at a time, AwexTransfers
// asks for one step of an update, AwexCalls sends.
//
// Thread rule: loop thread only; metadata is read and put right on `pool`. Owned by Gateway and destroyed before what
// it borrows; callbacks are never called afterwards.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weighlock/awex/repair.hpp"
#include "weighlock/awex/serve.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/awex_calls.hpp"
#include "weighlock/gateway/awex_reports.hpp"
#include "weighlock/gateway/awex_trainers.hpp"
#include "weighlock/gateway/awex_transfers.hpp"
#include "weighlock/gateway/meta_store.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"
#include "weighlock/runtime/loop.hpp"
#include "weighlock/runtime/pool.hpp"

namespace weighlock {

class AwexGroups {
 public:
  using PutRight = std::function<decltype(awex::repair)>;
  struct Settings {
    std::string kv_store_url;  // how workers reach the store; "" = the address by which each was reached
    std::string admin_api_key;
    Milliseconds init_timeout{300'000};  // AReaL's; each step of a bring-up
    Milliseconds failure_grace{
        limits::kTransferGrace};          // after the first failure of a step the others' words are waited for
    std::string host = "127.0.0.1";       // at which we listen
    std::function<int()> port = nullptr;  // ... once we do
    std::size_t report_bytes_max = limits::kReportBytesMax;
    std::size_t reports_bytes_max = limits::kReportsBytesMax;
    std::size_t proven_pairs_max = limits::kProvenPairsMax;
    PutRight put_right = awex::repair;  // tests put a mistake there
  };
  AwexGroups(Loop& loop, HttpClient& http, Pool& pool, MetaStore& meta, Settings settings);
  AwexGroups(const AwexGroups&) = delete;
  AwexGroups& operator=(const AwexGroups&) = delete;

  // `done` once. On an error the group's keys are gone, and trainers that may be in it were told to leave.
  void build(protocol::BuildGroup order, std::function<void(protocol::GroupBuilt)> done);
  void drop(const protocol::DropGroup& order);
  // Once, when none of these trainers still leaves a group, or after `at_most`; with those that do.
  void when_left(std::vector<std::string> trainers, Milliseconds at_most,
                 std::function<void(const std::vector<std::string>& still)> then) {
    trainers_.when_left(std::move(trainers), at_most, std::move(then));
  }
  // Each member's end once, unless it was cancelled.
  void transfer(const protocol::RunTransfer& order, AwexTransfers::WorkerEnded worker_ended,
                AwexTransfers::TrainerEnded trainer_ended) {
    transfers_.run(order, std::move(worker_ended), std::move(trainer_ended));
  }
  // Closes the worker's connection by reset.
  void cancel(protocol::CallId call) { transfers_.cancel(call); }

 private:
  struct Build;
  using BuildRef = std::shared_ptr<Build>;
  void put_right(const BuildRef& build, AwexReported reported);
  Status store(const std::string& name, awex::Served lists);
  void bring_up(const BuildRef& build);
  void warm_up(const BuildRef& build);
  void stands(const BuildRef& build);
  void fail(const BuildRef& build, StepFailure failure);

  Pool& pool_;
  MetaStore& meta_;
  std::string admin_api_key_;
  std::size_t proven_pairs_max_;
  PutRight put_right_;
  AwexCalls calls_;
  AwexTrainers trainers_;
  AwexReports reports_;
  AwexTransfers transfers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weighlock
