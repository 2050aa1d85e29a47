// Performs the machine's effects; every completion comes back as an event of the driver, on the loop.
//
// Thread rule: loop thread only. Journal groups are written on `journal_pool` (one thread: order), storage work on
// `storage_pool`. Owned by Gateway, destroyed before the parts that it borrows; completions that come later are
// dropped.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "weighlock/gateway/awex_groups.hpp"
#include "weighlock/gateway/credentials.hpp"
#include "weighlock/gateway/engine_calls.hpp"
#include "weighlock/gateway/epochs.hpp"
#include "weighlock/gateway/version_storage.hpp"
#include "weighlock/gateway/waiters.hpp"
#include "weighlock/journal/journal.hpp"
#include "weighlock/net/client.hpp"
#include "weighlock/protocol/driver.hpp"
#include "weighlock/runtime/loop.hpp"
#include "weighlock/runtime/pool.hpp"

namespace weighlock {

class Executor final : public protocol::Ports {
 public:
  // Borrowed; all of them outlive the executor.
  struct Parts {
    Loop& loop;
    Pool& journal_pool;
    Pool& storage_pool;
    Pool& epoch_pool;  // of its own: a digest must not hold up a look at who owns a pair
    Pool& fence_pool;  // of its own: a hook that hangs must not hold up a seal
    Journal& journal;
    HttpClient& http;
    EngineCalls& engine_calls;
    VersionStorage& storage;
    const Epochs& epochs;
    const CredentialStore& credentials;
    Waiters& waiters;
    AwexGroups& awex_groups;
  };
  struct Hooks {
    std::string fence;                                            // fence.hpp
    std::function<void(const protocol::UpdateId&)> update_ended;  // before its waiters are answered
    std::function<void()> stopped;
    // Must not return to the driver: a gateway that can't record must not act. Default: log, exit with 70
    // (EX_SOFTWARE).
    std::function<void(const Error&)> journal_failed;
  };

  Executor(Parts parts, Hooks hooks);
  ~Executor() override;
  // Once, before the driver's first event.
  void attach(protocol::Driver& driver) { driver_ = &driver; }

  Instant now() const override;
  void append(std::vector<protocol::Record> group, std::function<void()> durable) override;
  void perform(protocol::Effect effect) override;
  void records_held() override;
  // Logs when the disk of the journal becomes full, and when it has space again; as long as it is full, space is looked
  // for. Called once at the start, then by itself.
  void tell_space();

 private:
  void run(const protocol::Append&) {}
  void run(const protocol::AwaitDurable&) {}
  void run(const protocol::Call& call);
  void run(const protocol::Cancel& cancel);
  void run(const protocol::TriggerSave& save);
  void run(const protocol::AskTrainer& ask);
  void run(const protocol::Prepare& prepare);
  void run(const protocol::Seal& seal);
  void run(const protocol::ComputeDigest& compute);
  void run(const protocol::Discard& discard);
  void run(const protocol::MarkLatest& mark);
  void run(const protocol::ClaimEpoch& claim);
  void run(const protocol::LookEpoch& look);
  void run(const protocol::BuildGroup& build);
  void run(const protocol::DropGroup& drop);
  void run(const protocol::RunTransfer& transfer);
  void run(const protocol::StartTimer& timer);
  void run(const protocol::CancelTimer& timer);
  void run(const protocol::Fence& fence);
  void run(const protocol::Reply& reply);
  void run(const protocol::UpdateEnded& ended);
  void run(const protocol::Stopped& stopped);

  void begin(const protocol::Call& call);
  void look_for_space();
  std::string empty_checkpoint_for(const protocol::UpdateId& id) const;
  // Runs `job` on the pool, then `done` here, unless we are gone.
  void in_pool(Pool& pool, std::function<void()> job, std::function<void()> done);
  void in_storage(std::function<void()> job, std::function<void()> done) {
    in_pool(parts_.storage_pool, std::move(job), std::move(done));
  }
  void post(protocol::EventBody body);

  Parts parts_;
  Hooks hooks_;
  protocol::Driver* driver_ = nullptr;
  std::map<protocol::CallId, EngineCalls::Id> calls_;
  std::set<protocol::CallId> recalling_;  // verifications that wait for the storage
  std::map<protocol::CallId, HttpClient::CallId> saves_;
  std::map<protocol::TimerId, Loop::TimerId> timers_;
  std::optional<Loop::TimerId> flush_;  // of records that are held
  bool space_told_ = false;
  std::optional<Loop::TimerId> space_look_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace weighlock
