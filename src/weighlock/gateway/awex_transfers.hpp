// The collectives of transfer groups: of separated pairs, and of colocated ones with the memory that goes from hand to
// hand.
//
// Thread rule: loop thread only. Owned by AwexGroups; callbacks are never called after the end of this.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "weighlock/gateway/awex_calls.hpp"
#include "weighlock/gateway/meta_store.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"

namespace weighlock {

class AwexTransfers {
 public:
  using WorkerEnded = std::function<void(protocol::CallId, Outcome)>;
  using TrainerEnded = std::function<void(protocol::SaveEnded)>;

  AwexTransfers(AwexCalls& calls, MetaStore& meta) : calls_(calls), meta_(meta) {}
  ~AwexTransfers();
  AwexTransfers(const AwexTransfers&) = delete;
  AwexTransfers& operator=(const AwexTransfers&) = delete;

  // Each member's end once, unless it was cancelled.
  void run(const protocol::RunTransfer& order, WorkerEnded worker_ended, TrainerEnded trainer_ended);
  // Closes the member's connection by reset.
  void cancel(protocol::CallId call);

 private:
  struct Colocated;
  void colocated_step(const std::shared_ptr<Colocated>& run);
  void colocated_end(const Colocated& run);

  AwexCalls& calls_;
  MetaStore& meta_;
  std::map<protocol::CallId, HttpClient::CallId> members_;  // asked, and not ended
};

}  // namespace weighlock
