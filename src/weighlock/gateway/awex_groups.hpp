// The edge of AWEX pairs: brings workers together to a transfer group, runs its collectives, takes it apart.
//
// Decides nothing: what a group is for, and what a failure means, stands in protocol/awex*.cpp. Every request of a
// collective is sent once, all of them at the same time, each on a connection of its own.
//
// Thread rule: loop thread only; metadata is read and put right on `pool`. Owned by Gateway and destroyed before what
// it borrows; callbacks are never called afterwards.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weighlock/awex/calls.hpp"
#include "weighlock/core/limits.hpp"
#include "weighlock/gateway/meta_store.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/protocol/effect.hpp"
#include "weighlock/protocol/event.hpp"
#include "weighlock/runtime/loop.hpp"
#include "weighlock/runtime/pool.hpp"

namespace weighlock {

class AwexGroups {
 public:
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
  };
  AwexGroups(Loop& loop, HttpClient& http, Pool& pool, MetaStore& meta, Settings settings);
  ~AwexGroups();
  AwexGroups(const AwexGroups&) = delete;
  AwexGroups& operator=(const AwexGroups&) = delete;

  // `done` once. On an error the group's keys are gone, and trainers that may be in it were told to leave.
  void build(protocol::BuildGroup order, std::function<void(protocol::GroupBuilt)> done);
  void drop(const protocol::DropGroup& order);
  // Once, when none of these trainers still leaves a group, or after `at_most`; with those that do.
  void when_left(std::vector<std::string> trainers, Milliseconds at_most,
                 std::function<void(const std::vector<std::string>& still)> then);
  // Each member's end once, unless it was cancelled.
  void transfer(const protocol::RunTransfer& order, std::function<void(protocol::CallId, Outcome)> worker_ended,
                std::function<void(protocol::SaveEnded)> trainer_ended);
  // Closes the worker's connection by reset.
  void cancel(protocol::CallId call);

 private:
  struct Build;
  struct Colocated;
  struct Leaving {
    std::vector<std::string> trainers;
    std::function<void(const std::vector<std::string>&)> then;
    std::optional<Loop::TimerId> timer;
  };
  struct Request {
    std::string url;
    HttpRequest request;
    std::shared_ptr<AnswerRoom::Place> place = {};  // of a report
  };
  struct Failure {
    Error error;
    bool port_taken = false;
  };
  using Answers = std::vector<HttpResult>;
  using Failed = std::function<bool(std::size_t, HttpResult&)>;  // may take what it needs of the answer

  // All at once. `done` when all have answered, or `failure_grace` after the first that `failed`: the rest is closed
  // and counts as timed out.
  void ask_all(std::vector<Request> requests, Failed failed, std::function<void(Answers)> done);
  HttpClient::CallId send(Request request, Milliseconds deadline, std::function<void(HttpResult)> done);
  // Runs `next` when no trainer of the build is in another one, or still leaves a group: a teardown that came late
  // would end the new one.
  void when_free(const std::shared_ptr<Build>& build, std::function<void()> next);
  void someone_is_free();
  std::vector<std::string> still_leaving(const std::vector<std::string>& trainers) const;
  void end_leaving(std::uint64_t id);
  void ended(const std::shared_ptr<Build>& build, std::optional<Error> error, bool port_taken);
  void begin(const std::shared_ptr<Build>& build);
  void report(const std::shared_ptr<Build>& build, const Answers& answers);
  void ask_for_metadata(const std::shared_ptr<Build>& build);
  // At which a worker that we reached from `local` reaches us.
  Result<std::string> store_url_for(const Build& build, std::size_t member, const std::string& local) const;
  bool take_report(const std::shared_ptr<Build>& build, std::size_t member, HttpResult& result,
                   std::shared_ptr<AnswerRoom::Place> place);
  void reported(const std::shared_ptr<Build>& build, const Answers& answers);
  void merge(const std::shared_ptr<Build>& build);
  void bring_up(const std::shared_ptr<Build>& build);
  void warm_up(const std::shared_ptr<Build>& build);
  void fail(const std::shared_ptr<Build>& build, Error error, bool port_taken = false);
  // Of a step, by its answers; none if all are ok.
  std::optional<Failure> failure_of(const Build& build, const Answers& answers, std::string_view target) const;
  // Of those whose last group it was; others have left it by joining another.
  void teardown(const std::string& name, const std::vector<std::string>& trainers);
  void colocated_step(const std::shared_ptr<Colocated>& run);

  Loop& loop_;
  HttpClient& http_;
  Pool& pool_;
  MetaStore& meta_;
  Settings settings_;
  std::shared_ptr<AnswerRoom> room_;  // of reports
  std::map<protocol::CallId, HttpClient::CallId> members_;
  std::multiset<std::string> leaving_;         // trainers whose teardown hasn't been answered
  std::map<std::string, std::string> joined_;  // trainer -> the group that it was last asked to join
  std::map<std::string, const Build*> built_;  // trainer -> the build that it is in
  std::vector<std::pair<std::shared_ptr<Build>, std::function<void()>>> waiting_;
  std::map<std::uint64_t, Leaving> leavings_;
  std::uint64_t next_leaving_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weighlock
