// What the members of a new transfer group report of themselves: how many ranks, devices, and each one's metadata.
//
// Thread rule: loop thread only; metadata is read on `pool`, as it comes. Owned by AwexGroups; callbacks are never
// called after the end of this.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "weighlock/awex/calls.hpp"
#include "weighlock/awex/repair.hpp"
#include "weighlock/awex/report.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/core/result.hpp"
#include "weighlock/gateway/awex_calls.hpp"
#include "weighlock/gateway/awex_members.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/runtime/loop.hpp"
#include "weighlock/runtime/pool.hpp"

namespace weighlock {

struct AwexReported {
  awex::Topology topology;
  std::vector<std::string> store_urls;  // by member: at which it reaches the metadata here
  std::vector<std::uint32_t> numbers;   // of engines in the group, by worker: where devices are shared, by these
  std::vector<awex::Report> train;      // by trainer
  std::vector<awex::Report> infer;      // by engine
};

class AwexReports {
 public:
  struct Settings {
    std::string kv_store_url;             // how workers reach the store; "" = the address by which each was reached
    std::string host = "127.0.0.1";       // at which we listen
    std::function<int()> port = nullptr;  // ... once we do
    std::size_t reports_bytes_max = limits::kReportsBytesMax;
  };
  // With an error: the workers that failed by themselves, if no trainer did.
  using Done = std::function<void(Result<AwexReported>, std::vector<protocol::RefusedWorker>)>;

  AwexReports(Loop& loop, Pool& pool, AwexCalls& calls, Settings settings);
  AwexReports(const AwexReports&) = delete;
  AwexReports& operator=(const AwexReports&) = delete;

  // `done` once. An error names the member, or the members.
  void gather(AwexMembers members, bool colocate, Done done);

 private:
  struct Gathering;
  void take_parallelism(const std::shared_ptr<Gathering>& all, const AwexCalls::Answers& answers);
  void ask_for_metadata(const std::shared_ptr<Gathering>& all);
  // At which a member that we reached from `local` reaches us.
  Result<std::string> store_url_for(const std::string& who, const std::string& local) const;
  // False if it isn't a report.
  bool take_report(const std::shared_ptr<Gathering>& all, std::size_t member, HttpResult& result,
                   std::shared_ptr<AnswerRoom::Place> place);
  void all_answered(const std::shared_ptr<Gathering>& all, const AwexCalls::Answers& answers);

  Pool& pool_;
  AwexCalls& calls_;
  Settings settings_;
  std::shared_ptr<AnswerRoom> room_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weighlock
