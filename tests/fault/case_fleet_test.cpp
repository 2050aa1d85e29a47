// Cases about what is told, kept and left open while a fleet changes over.
#include <filesystem>
#include <future>

#include "case_fixture.hpp"

namespace weighlock::fault {
namespace {

constexpr const char* kSglangLoad = "/update_weights_from_disk";

// A15
TEST_F(CaseTest, no_update_opens_a_session_in_an_engine_that_could_outlive_it) {
  for (const DialectKind kind : {DialectKind::sglang, DialectKind::vllm}) {
    SCOPED_TRACE(name(kind));
    const auto one = fleet(kind, 1);
    ASSERT_EQ(state_of(one->update(1)), "succeeded");
    arm(*one, 0, kind == DialectKind::sglang ? kSglangLoad : "/collective_rpc", Fault::status_500);
    one->update(2);
    lab.on_peers([&] {
      for (const Seen& call : one->engine(0).seen) {
        for (const char* word : {"start_weight_update", "begin_weight_update", "init_weight", "weights_update_group"})
          EXPECT_EQ(call.route.find(word), std::string::npos) << call.route;
      }
    });
    ASSERT_EQ(lab.call("DELETE", "/v1/pairs/actor").status, 200);
  }
}

// A19
TEST_F(CaseTest, a_version_stays_on_storage_until_the_last_load_of_it_has_ended) {
  const auto two = fleet(DialectKind::sglang, 2, {{"keep_versions", 1}, {"pause_mode", "retract"}}, tight_deadlines());
  lab.on_peers([&] {
    two->engine(0).freeze_for = Milliseconds(600'000);
    two->engine(0).arm(Plan{kSglangLoad, Fault::freeze});
  });
  ASSERT_EQ(state_of(two->update(1)), "degraded");
  const std::string first = two->version_directory(1);
  for (const std::int64_t version : {2, 3, 4}) {
    EXPECT_EQ(state_of(two->update(version)), "degraded");  // no barrier passed: v1's load may still run
  }
  EXPECT_TRUE(std::filesystem::exists(first)) << "v1 may still be read, after v3";  // v4 came after any removal
  lab.on_peers([&] { two->engine(0).calm(); });
  for (std::int64_t version = 5; version <= 8; ++version) two->update(version);
  EXPECT_EQ(two->state(0), "ready");
  EXPECT_TRUE(soon([&] { return !std::filesystem::exists(first); })) << "nobody reads it any more";
  EXPECT_TRUE(std::filesystem::exists(two->version_directory(8)));
}

// A38
TEST_F(CaseTest, while_one_engine_is_slow_each_shows_its_own_version_and_the_fleet_the_committed_one) {
  const auto two = fleet(DialectKind::sglang, 2);
  ASSERT_EQ(state_of(two->update(5)), "succeeded");
  hold(*two, 1, kSglangLoad);
  auto update = std::async(std::launch::async, [&] { return two->update(6); });
  json::value fast;
  ASSERT_TRUE(soon([&] {
    fast = two->worker(0);
    return text_at(fast, "state") == "verified";
  }));
  const json::value slow = two->worker(1);
  EXPECT_EQ(find_int(fast, "version"), 6) << json::serialize(fast);
  EXPECT_EQ(find_int(slow, "version"), 5) << json::serialize(slow);
  EXPECT_EQ(find_int(two->pair(), "committed"), 5);
  let_go(*two, 1);
  EXPECT_EQ(state_of(update.get()), "succeeded");
  EXPECT_EQ(find_int(two->pair(), "committed"), 6);
}

}  // namespace
}  // namespace weighlock::fault
