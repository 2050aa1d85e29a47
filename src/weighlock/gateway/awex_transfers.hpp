// The collectives of transfer groups, and the steps by which members of a colocated pair hand memory over: one request
// to each member of the order, and nothing by itself.
//
// Thread rule: loop thread only. Owned by AwexGroups; callbacks are never called after the end of this.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weighlock/gateway/awex_calls.hpp"
#include "weighlock/gateway/awex_trainers.hpp"
#include "weighlock/gateway/meta_store.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"

namespace weighlock {

class AwexTransfers {
 public:
  using WorkerEnded = std::function<void(protocol::CallId, Outcome)>;
  using TrainerEnded = std::function<void(protocol::SaveEnded)>;

  AwexTransfers(AwexCalls& calls, AwexTrainers& trainers, MetaStore& meta)
      : calls_(calls), trainers_(trainers), meta_(meta) {}
  ~AwexTransfers();
  AwexTransfers(const AwexTransfers&) = delete;
  AwexTransfers& operator=(const AwexTransfers&) = delete;

  // Each member's end once, unless it was cancelled.
  void run(const protocol::RunTransfer& order, WorkerEnded worker_ended, TrainerEnded trainer_ended);
  // Closes the member's connection by reset.
  void cancel(protocol::CallId call);

 private:
  struct Keys {  // that members leave for each other; they go when all have ended
    std::string group;
    std::vector<std::string> keys;
    std::size_t open = 0;
  };
  struct Asked {
    HttpClient::CallId id = 0;
    std::string trainer;  // of a colocated pair: it joins no other group before it has answered
    std::shared_ptr<Keys> keys;
  };
  static HttpRequest request_of(const protocol::RunTransfer& order);
  void over(const Asked& asked);

  AwexCalls& calls_;
  AwexTrainers& trainers_;
  MetaStore& meta_;
  std::map<protocol::CallId, Asked> asked_;
};

}  // namespace weighlock
