// long because each rule of a LoRA update has its own short test.
#include <algorithm>

#include "weighlock/protocol/fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;
using Calls = std::vector<std::string>;
using Names = std::map<std::string, std::string>;

class LoraTest : public Fixture {
 public:
  LoraTest() { sealed.adapter_rank = 8; }

  void connect_lora(int workers, std::int64_t keep = 2) {
    ConnectPair event;
    event.token = 1;
    event.spec.name = "lora";
    event.spec.save_path = "/shared";
    event.spec.lora = LoraSpec{"policy", keep};
    for (int i = 0; i < workers; ++i) {
      event.spec.workers.push_back(WorkerSpec{url(i), std::nullopt});
      engine(i);
    }
    event.spec.trainer_urls.push_back(trainer(9));
    event.spec.policy = all();
    spec = event.spec;
    post(event);
  }
  static Policy all() {
    Policy policy;
    policy.quorum.kind = Quorum::Kind::all;
    return policy;
  }
  UpdateId request_lora(std::int64_t version, Policy policy = all()) {
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
  std::string words(const UpdateId& id) const { return update(id).error ? update(id).error->text() : ""; }
  void expect_state(const UpdateId& id, UpdateState state) {
    EXPECT_EQ(name(update(id).state), name(state)) << words(id);
  }

  PairSpec spec;
};

TEST_F(LoraTest, update_loads_the_versioned_name_without_a_pause_or_a_label) {
  connect_lora(2);
  const UpdateId id = request_lora(1);
  expect_state(id, UpdateState::succeeded);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(engine(i).adapters, (Names{{"policy-v1", "/shared/v1.a1"}}));
    EXPECT_EQ(count(i, K::pause) + count(i, K::resume) + count(i, K::set_label) + count(i, K::load), 0);
    EXPECT_EQ(worker(i).state, WorkerState::ready);
    EXPECT_EQ(update(id).targets.at(url(i)).evidence, Evidence::label);
    EXPECT_EQ(known(i).version->version, 1);
  }
  EXPECT_EQ(lora().committed->version, 1);
}

TEST_F(LoraTest, window_keeps_the_last_versions_and_the_client_is_answered_before_older_ones_go) {
  connect_lora(1, 2);
  engine(0).adapters["policy-v0"] = "/elsewhere";  // loaded when the engine started
  for (std::int64_t v = 1; v <= 6; ++v) expect_state(request_lora(v), UpdateState::succeeded);
  EXPECT_EQ(engine(0).adapter_calls, (Calls{"load policy-v1", "load policy-v2", "unload policy-v0", "load policy-v3",
                                            "unload policy-v1", "load policy-v4", "unload policy-v2", "load policy-v5",
                                            "unload policy-v3", "load policy-v6", "unload policy-v4"}));
  EXPECT_EQ(engine(0).adapters.size(), 2u);
}

}  // namespace
}  // namespace weighlock::protocol
