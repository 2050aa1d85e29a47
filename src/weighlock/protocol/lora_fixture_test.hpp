// For the tests of LoRA pairs: one pair "lora" of the adapter "policy". Included by tests only.
#pragma once

#include <string>
#include <utility>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {

class LoraFixture : public Fixture {
 public:
  LoraFixture() {
    sealed.adapter_rank = 8;
    spec.policy = all();
  }
  static Policy all() {
    Policy policy;
    policy.quorum.kind = Quorum::Kind::all;
    return policy;
  }
  // With the policy of `spec`; what was connected is in `spec` then.
  void connect_lora(int workers, std::int64_t keep = 2) {
    spec.name = "lora";
    spec.save_path = "/shared";
    spec.lora = LoraSpec{"policy", keep};
    spec.workers.clear();
    for (int i = 0; i < workers; ++i) {
      spec.workers.push_back(WorkerSpec{url(i), std::nullopt});
      engine(i);
    }
    spec.trainer_urls = {trainer(9)};
    ConnectPair event;
    event.token = 1;
    event.spec = spec;
    post(event);
  }
  UpdateId request_lora(std::int64_t version) { return request_lora(version, spec.policy); }
  UpdateId request_lora(std::int64_t version, Policy policy) {
    RequestUpdate event;
    event.token = 500 + static_cast<ReplyToken>(version);
    event.pair = "lora";
    event.version = version;
    event.policy = std::move(policy);
    const std::size_t before = replies.size();
    post(event);
    return replies.size() > before ? replies[before].update : UpdateId{};
  }
  const Pair& lora() const { return state().pairs.at("lora"); }
  const WorkerAdapters& known(int i) const { return lora().adapters.at(url(i)); }

  PairSpec spec;
};

}  // namespace weighlock::protocol
