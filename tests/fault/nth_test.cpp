// Fail the Nth: every call to a peer, file call and group of records of an update and of a recovery fails, or the
// gateway dies at it, for N = 1, 2, ... until a run doesn't reach N. One gateway, pair and fleet go through all of it,
// since whatever a fault leaves behind has to be put right by what follows.
#include <chrono>
#include <cstdlib>
#include <thread>

#include "at_rest.hpp"
#include "strikes.hpp"

namespace weighlock::fault {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kEnough = 2000;  // operations; an update of this fleet has a tenth of that

class NthTest : public test::NativeTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(directory.path("w"));
    write_single(directory.path("start"));
    for (int i = 0; i < 2; ++i) engines.push_back(std::make_unique<test::FakeEngine>(loop, directory.path("start")));
    trainers.push_back(std::make_unique<test::FakeTrainer>(loop));
    for (const auto& engine : engines) engine->fate = [this] { return request_fate(strikes_, "an engine"); };
    for (const auto& trainer : trainers) trainer->fate = [this] { return request_fate(strikes_, "the trainer"); };
    settings.admin_api_key = test::kKey;
    settings.state_dir = directory.path("state");
    settings.files = &files_;
    settings.around_journal = [this](std::unique_ptr<Journal> real) {
      return std::make_unique<StruckJournal>(std::move(real), strikes_);
    };
    settings.journal_failed = [this](const Error&) { strikes_.die(); };  // as the process does it
    arm(0, Way::error);
    start();
    make_pair();
    succeed("the first update");
  }

  void arm(std::size_t nth, Way way) {
    strikes_.arm(nth, way, [this] { loop.post([this] { gateway.reset(); }); });
  }
  // What a dying process leaves to the system: its connections are closed, its threads are gone.
  void take_away() {
    on_loop([this] { gateway.reset(); });
    on_loop([] {});  // what it had sent has been read by now, and had no effect
  }
  // Until one start works: each may be struck, too.
  void start_again() {
    take_away();
    for (int tries = 0; tries < 3; ++tries) {
      strikes_.bring_back();
      bool up = false;
      on_loop([&] {
        auto made = Gateway::make(loop, settings);
        if (!made) return;
        gateway = *std::move(made);
        up = static_cast<bool>(gateway->listen());
        port = gateway->port();
      });
      if (up) return;
      take_away();
    }
    FAIL() << "no start works";
  }

  // Brings the gateway back as often as it dies, until the pair is idle.
  void settle(const std::string& where) {
    const auto end = Clock::now() + 60s;
    while (Clock::now() < end) {
      if (strikes_.dead()) start_again();
      if (call("GET", "/readyz").status == 200 &&
          call("GET", "/v1/pairs/actor").body.find("\"state\":\"idle\"") != std::string::npos)
        return;
      std::this_thread::sleep_for(2ms);
    }
    FAIL() << where << ": the pair isn't idle: " << call("GET", "/v1/pairs/actor").body;
  }

  test::Reply ask(std::int64_t version) {
    return call("POST", "/v1/pairs/actor/updates?wait=30", {{"version", version}},
                {{"Idempotency-Key", "v" + std::to_string(version)}});
  }
  static std::string state_of(const test::Reply& reply) {
    const json::value body = reply.json();
    return std::string(find_string(body, "state").value_or(""));
  }

  // Without faults; patient with a rank whose save was cut off.
  void succeed(const std::string& where) {
    const auto end = Clock::now() + 20s;
    test::Reply reply;
    do {
      reply = ask(++version_);
      if (state_of(reply) == "succeeded") return;
      std::this_thread::sleep_for(20ms);
    } while (reply.body.find("trainer_busy") != std::string::npos && Clock::now() < end);
    FAIL() << where << ": the update after it: " << reply.body;
  }

  // Once nobody is being brought back, which begins a second after a worker was fenced; or after 10 s.
  json::value workers_at_rest() {
    const auto end = Clock::now() + 10s;
    while (true) {
      const test::Reply reply = call("GET", "/v1/pairs/actor/workers");
      if (!fault::shows_one_in_hand(reply.body) || Clock::now() > end) return reply.json();
      std::this_thread::sleep_for(5ms);
    }
  }

  // After any fault, once the pair is idle.
  void judge(const std::string& where) {
    const test::Reply first = ask(version_);  // what a client does that lost its answer
    const std::string state = state_of(first);
    EXPECT_TRUE(state == "succeeded" || state == "degraded" || state == "rolled_back" || state == "aborted" ||
                state == "failed" || state == "rejected")
        << where << ": " << first.body;
    settle(where);
    EXPECT_EQ(ask(version_).json().at("id"), first.json().at("id")) << where;
    const json::value committed = call("GET", "/v1/pairs/actor").json().at("committed");
    EXPECT_EQ(committed == json::value(version_), state == "succeeded" || state == "degraded") << where << first.body;
    const json::value workers = workers_at_rest();
    for (const json::value& worker : workers.at("items").as_array()) judge_worker(where, worker, committed);
  }

  void judge_worker(const std::string& where, const json::value& worker, const json::value& committed) {
    for (const auto& engine : engines) {
      if (find_string(worker, "url") != engine->url()) continue;
      bool paused = false;
      std::string label;
      on_loop([&] {
        paused = engine->paused;
        label = engine->label;
      });
      const std::string state(worker.at("state").as_string());
      if (state == "quarantined") {
        EXPECT_FALSE(worker.at("cause").is_null()) << where;
        continue;
      }
      EXPECT_EQ(state, "ready") << where << json::serialize(worker);
      EXPECT_FALSE(paused) << where << json::serialize(worker);
      EXPECT_EQ(label, std::to_string(committed.to_number<std::int64_t>())) << where << json::serialize(worker);
    }
  }

  // True if the run reached the Nth operation.
  bool run(std::size_t nth, Way way) {
    arm(nth, way);
    ask(++version_);  // its answer may be lost
    strikes_.disarm();
    const bool reached = strikes_.fired();
    const std::string where = "v" + std::to_string(version_) + ", " + name(way) + " at operation " +
                              std::to_string(nth) + " (" + strikes_.what() + "): ";
    settle(where);
    judge(where);
    succeed(where);
    judge(where + "and the next: ");
    return reached;
  }

  // Dies at operation `crash` of an update, and then at the Nth of what follows until the pair is idle.
  bool run_recovery(std::size_t crash, std::size_t nth, Way way) {
    arm(crash, Way::crash_after);
    ask(++version_);
    strikes_.disarm();
    const std::string first = strikes_.what();
    take_away();
    arm(nth, way);
    const std::string where = "v" + std::to_string(version_) + ", died at operation " + std::to_string(crash) + " (" +
                              first + "), then " + name(way) + " at " + std::to_string(nth) + ": ";
    start_again();
    settle(where);
    strikes_.disarm();
    settle(where);  // the Nth operation may have been one of an idle gateway, a moment ago
    const bool reached = strikes_.fired();
    judge(where + "(" + strikes_.what() + ") ");
    succeed(where);
    judge(where + "and the next: ");
    return reached;
  }

  std::size_t operations_of_an_update() {
    arm(0, Way::error);
    succeed("counting");
    return strikes_.count();
  }

  // 1 in `make nightly`; a quicker walk steps over some.
  static std::size_t stride(std::size_t otherwise) {
    const char* const given = std::getenv("WEIGHLOCK_NTH_STRIDE");
    return given ? std::strtoul(given, nullptr, 10) : otherwise;
  }

  // Declared after what the fixture's gateway borrows it through: destroyed by TearDown's order before these.
  Strikes strikes_;
  StruckFiles files_{strikes_};
  std::int64_t version_ = 0;
};

class NthOfAnUpdate : public NthTest, public ::testing::WithParamInterface<Way> {};

TEST_P(NthOfAnUpdate, leaves_every_worker_whole_or_fenced_and_the_next_update_succeeds) {
  const std::size_t step = stride(1);
  std::size_t nth = 1;
  while (run(nth, GetParam()) && nth < kEnough && !HasFailure()) nth += step;
  RecordProperty("operations", static_cast<int>(nth));
  EXPECT_GT(nth, 20u) << "an update has more operations than that";
  EXPECT_LT(nth, kEnough);
}

class NthOfARecovery : public NthTest, public ::testing::WithParamInterface<Way> {};

TEST_P(NthOfARecovery, leaves_every_worker_whole_or_fenced_and_the_next_update_succeeds) {
  const std::size_t total = operations_of_an_update();
  ASSERT_GT(total, 20u);
  for (const std::size_t share : {30u, 60u, 75u, 90u}) {
    std::size_t nth = 1;
    while (run_recovery(total * share / 100, nth, GetParam()) && nth < kEnough && !HasFailure()) nth += stride(12);
    EXPECT_GT(nth, 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, NthOfAnUpdate, ::testing::Values(Way::error, Way::crash_before, Way::crash_after),
                         [](const auto& one) { return std::string(name(one.param)); });
INSTANTIATE_TEST_SUITE_P(Ways, NthOfARecovery, ::testing::Values(Way::error, Way::crash_before, Way::crash_after),
                         [](const auto& one) { return std::string(name(one.param)); });

}  // namespace
}  // namespace weighlock::fault
