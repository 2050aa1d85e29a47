// LoRA pairs and a gateway that dies: names that were loaded and never committed go again, the window is known again.
#include <functional>

#include "weighlock/protocol/lora_fixture_test.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

struct LoraWorld : LoraFixture {
  void TestBody() override {}
};

using Play = std::function<void(LoraWorld&)>;

const std::vector<Play>& plays() {
  static const std::vector<Play> kPlays = {
      [](LoraWorld& w) {
        w.connect_lora(2, 2);
        for (std::int64_t v = 1; v <= 4; ++v) w.request_lora(v);
      },
      [](LoraWorld& w) {  // one refuses: undone on the other
        w.connect_lora(2, 2);
        w.request_lora(1);
        w.script(1, K::load_adapter, failed(OutcomeKind::untouched, "400 no"));
        w.request_lora(2);
        w.request_lora(3);
      },
      [](LoraWorld& w) {  // a lost answer
        w.connect_lora(2, 0);
        w.request_lora(1);
        w.silence(0, K::load_adapter);
        w.request_lora(2);
        w.advance(400s);
      },
      [](LoraWorld& w) {  // a new process
        w.connect_lora(2, 3);
        w.request_lora(1);
        w.request_lora(2);
        w.restart(1);
        w.request_lora(3);
      },
  };
  return kPlays;
}

void expect_window(LoraWorld& world, std::size_t play, const std::string& where) {
  std::map<std::string, std::string> wanted;
  const auto keep = static_cast<std::size_t>(world.lora().spec.lora->keep);
  const auto& window = world.lora().window;
  const std::size_t first = keep == 0 || window.size() < keep ? 0 : window.size() - keep;
  for (std::size_t i = first; i < window.size(); ++i) wanted[window[i].name] = window[i].version.directory;
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(world.engine(i).adapters, wanted) << "play " << play << where << ", engine " << i;
}

TEST(LoraRecovery, gateway_that_dies_after_any_group_leaves_no_stray_name_and_the_window_whole) {
  for (std::size_t p = 0; p < plays().size(); ++p) {
    LoraWorld whole;
    whole.die_at_group(1'000'000, false);
    plays()[p](whole);
    const int groups = 1'000'000 - whole.groups_left();
    for (int n = 1; n <= groups; ++n) {
      for (const bool performed : {false, true}) {
        LoraWorld world;
        world.die_at_group(n, performed);
        plays()[p](world);
        world.start_again();
        world.advance(1000s);
        const std::string where = ", group " + std::to_string(n) + (performed ? " performed" : "");
        if (!world.state().pairs.contains("lora")) continue;
        EXPECT_EQ(world.lora().active, "") << where;
        for (const auto& [id, update] : world.state().updates) EXPECT_TRUE(is_terminal(update.state)) << where;
        for (const auto& [url, worker] : world.state().workers) {
          EXPECT_EQ(worker.state, WorkerState::ready) << where;
          EXPECT_EQ(worker.locked_by, "") << where;
        }
        world.advance(7300s);  // a save that was on its way keeps its trainer busy
        const UpdateId next = world.request_lora(9);
        ASSERT_NE(next, "") << where;
        EXPECT_EQ(world.update(next).state, UpdateState::succeeded)
            << "play " << p << where << ": " << (world.update(next).error ? world.update(next).error->text() : "");
        world.advance(100s);
        expect_window(world, p, where);
      }
    }
  }
}

TEST(LoraRecovery, name_that_was_being_loaded_is_unloaded_again) {
  LoraWorld world;
  world.connect_lora(2, 2);
  world.request_lora(1);
  world.die_at_record(RecordKind::intent, "load_adapter", true);
  world.request_lora(2);
  ASSERT_TRUE(world.engine(0).adapters.contains("policy-v2"));
  world.start_again();
  EXPECT_EQ(world.update(world.lora().history.back()).state, UpdateState::rolled_back);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(world.engine(i).adapters.contains("policy-v2"));
    EXPECT_TRUE(world.engine(i).adapters.contains("policy-v1"));
  }
}

// Nobody looks at it any more, and it may read its adapter again.
TEST(LoraRecovery, directories_of_a_worker_that_left_stay_whoever_reads_that_it_did) {
  LoraWorld world;
  world.connect_lora(2, 1);
  world.spec.policy.keep_versions = 1;
  ConnectPair again{2, world.lora().spec, false};
  again.spec.policy = world.spec.policy;
  world.post(again);
  world.request_lora(1);
  world.post(ChangeWorker{7, "lora", WorkerChange::remove, WorkerSpec{LoraWorld::url(1), std::nullopt}, ""});
  world.die_at_record(RecordKind::update_ended, "", true);
  world.request_lora(2);
  ASSERT_TRUE(world.dead());
  world.discards.clear();
  world.start_again();
  for (const std::int64_t version : {3, 4, 5}) world.request_lora(version);
  EXPECT_FALSE(world.discards.empty());
  for (const Discard& discard : world.discards) EXPECT_NE(discard.directory, "/shared/v1.a1");
}

TEST(LoraRecovery, committed_adapter_is_committed_whoever_reads_its_record) {
  LoraWorld world;
  world.connect_lora(2, 2);
  world.request_lora(1);
  world.die_at_record(RecordKind::commit, "", false);
  world.request_lora(2);
  world.start_again();
  EXPECT_EQ(world.update(world.lora().history.back()).state, UpdateState::succeeded);
  EXPECT_EQ(world.lora().committed->version, 2);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(world.engine(i).adapters.contains("policy-v2"));
}

}  // namespace
}  // namespace weighlock::protocol
