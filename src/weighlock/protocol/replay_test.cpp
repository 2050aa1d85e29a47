// The journal read back, and a gateway that dies after any group of any update.
#include "weighlock/protocol/replay.hpp"

#include <functional>

#include "weighlock/protocol/context.hpp"
#include "weighlock/protocol/fixture_test.hpp"
#include "weighlock/protocol/spec_record.hpp"

namespace weighlock::protocol {
namespace {

using namespace std::chrono_literals;
using K = OperationKind;

// A world of its own, so that one test can have many.
struct World : Fixture {
  void TestBody() override {}
};

json::object books_of(const Worker& worker) {
  json::array labels;
  for (const std::string& label : worker.labels) labels.push_back(json::string(label));
  json::array earlier;
  // A step that was planned, and of which nobody knows whether it began, is a doubt that only the replay has.
  for (const EarlierCall& call : worker.earlier) {
    if (call.call == 0) continue;
    earlier.push_back(json::object{{"call", call.call}, {"kind", name(call.kind)}});
  }
  if (worker.in_flight && worker.in_flight->kind != K::verify && worker.in_flight->kind != K::read_state &&
      worker.in_flight->kind != K::barrier && worker.in_flight->kind != K::identify &&
      worker.in_flight->kind != K::probe)
    earlier.push_back(json::object{{"call", worker.in_flight->call}, {"kind", name(worker.in_flight->kind)}});
  return {{"pair", worker.pair},
          {"incarnation", worker.incarnation},
          {"start", worker.start_label + " " + worker.start_path},
          {"labels", std::move(labels)},
          {"earlier", std::move(earlier)},
          {"paused_by_us", worker.paused_by_us},
          {"dialect", worker.dialect && !worker.start_path.empty() ? name(*worker.dialect) : ""}};
}

// What must be known again at any moment.
std::string books(const State& state) {
  json::object out;
  for (const auto& [url, worker] : state.workers) {
    json::object one = books_of(worker);
    one.erase("labels");  // of planned steps, and of answers that were held, the replay has more and fewer
    one.erase("earlier");
    out[url] = std::move(one);
  }
  for (const auto& [trainer, busy] : state.busy) out[trainer] = busy.update;
  return json::serialize(out);
}

json::value version_text(const std::optional<VersionRef>& version) {
  return version ? json::value(version_body(*version)) : json::value(nullptr);
}

json::object text_of_update(const Update& update) {
  json::object targets;
  for (const auto& [url, target] : update.targets) {
    targets[url] = {{"verdict", name(target.verdict)},
                    {"evidence", name(target.evidence)},
                    {"ended_as", target.ended_as ? name(*target.ended_as) : "-"},
                    {"cause", cause_body(target.cause)}};
  }
  return {{"state", name(update.state)},
          {"version", version_body(update.version)},
          {"attempt", update.attempt},
          {"key", update.key},
          {"rollback", update.rollback},
          {"kind", name(update.kind)},
          {"committed", update.committed ? json::value(*update.committed) : json::value("undecided")},
          {"error", update.error ? json::value(update.error->text()) : json::value(nullptr)},
          {"code", update.error ? json::value(info(update.error->code).type) : json::value(nullptr)},
          {"targets", std::move(targets)}};
}

// All of it, while nothing runs.
std::string at_rest(const State& state) {
  json::object out;
  for (const auto& [url, worker] : state.workers) {
    json::object one = books_of(worker);
    one["state"] = name(worker.state);
    one["cause"] = cause_body(worker.cause);
    one["version"] = worker.version ? json::value(version_key(*worker.version)) : json::value(nullptr);
    one["joins_failed"] = worker.joins.failures;
    one["owes_flush"] = worker.owes_flush.has_value();
    one["serves_owing"] = worker.owes_flush && worker.owes_flush->since;
    out[url] = std::move(one);
  }
  for (const auto& [name, pair] : state.pairs) {
    json::object keys, deaths, spoiled;
    json::array stored;
    for (const StoredVersion& one : pair.stored)
      stored.push_back(json::object{{"version", version_body(one.version)},
                                    {"is", json::array{one.committed, one.handed, one.withdrawn}},
                                    {"bytes", one.bytes}});
    json::array doomed;
    for (const DoomedDirectory& one : pair.doomed)
      doomed.push_back(json::string(one.directory + " " + one.save_path + " " + one.update));
    for (const auto& [key, id] : pair.keys) keys[key] = id;
    for (const auto& [version, who] : pair.deaths) deaths[version] = who.size();
    for (const auto& [version, who] : pair.spoiled) {
      if (!who.empty()) spoiled[version] = who.size();
    }
    out["pair " + name] = {{"spec", spec_body(pair.spec)},
                           {"lineage", pair.lineage},
                           {"attempts", pair.attempts},
                           {"committed", version_text(pair.committed)},
                           {"last_good", version_text(pair.last_good)},
                           {"previous_good", version_text(pair.previous_good)},
                           {"highest", version_text(pair.highest)},
                           {"stored", std::move(stored)},
                           {"doomed", std::move(doomed)},
                           {"why", pair.last_good ? "" : pair.rollback_reason},
                           {"bytes", pair.bytes_last},
                           {"active", pair.active},
                           {"history", pair.history.size()},
                           {"joins", pair.joins.size()},
                           {"joins_ended", pair.joins_ended.size()},
                           {"distrusted", pair.distrusted},
                           {"keys", std::move(keys)},
                           {"deaths", std::move(deaths)},
                           {"spoiled", std::move(spoiled)}};
  }
  for (const auto& [id, update] : state.updates) out["update " + id] = text_of_update(update);
  return json::serialize(out);
}

using Play = std::function<void(World&)>;

Policy all_or_nothing() {
  Policy policy;
  policy.quorum.kind = Quorum::Kind::all;
  return policy;
}

// Each ends with version 2 asked for; what it meets there differs.
struct Named {
  const char* name;
  Play play;
};

const std::vector<Named>& plays() {
  static const std::vector<Named> kPlays = {
      {"both versions are served",
       [](World& w) {
         w.connect(3);
         w.engine(2).dialect = DialectKind::vllm;
         w.request(1, {}, "first");
         w.request(2, {}, "second");
       }},
      {"one refuses the load and is caught up",
       [](World& w) {
         w.connect(3);
         w.request(1);
         w.script(1, K::load, failed(OutcomeKind::touched, "500"));
         w.request(2);
       }},
      {"one refuses every load",
       [](World& w) {
         w.connect(3);
         w.request(1);
         w.script(1, K::load, failed(OutcomeKind::untouched, "400 no"), 2);
         w.request(2);
       }},
      {"the quorum is lost",
       [](World& w) {
         w.connect(3);
         w.engine(0).dialect = DialectKind::vllm;
         w.request(1);
         w.script(1, K::load, failed(OutcomeKind::touched, "500"));
         w.request(2, all_or_nothing());
       }},
      {"a heal fails",
       [](World& w) {
         w.connect(2);
         w.request(1);
         w.script(1, K::load, failed(OutcomeKind::touched, "500"), 2);
         w.request(2, all_or_nothing());
       }},
      {"a load is never answered",
       [](World& w) {
         w.connect(3);
         w.request(1);
         w.silence(1, K::load);
         w.request(2);
         w.advance(700s);
       }},
      {"an engine restarts",
       [](World& w) {
         w.connect(2);
         w.request(1);
         w.restart(1);
         w.request(2);
       }},
      {"the first version fails on its canary",
       [](World& w) {
         w.connect(2);
         w.sealed.compared = false;
         w.script(0, K::verify, failed(OutcomeKind::mismatch, "garbage"));
         w.request(1);
         w.request(2);
       }},
      {"a trainer fails",
       [](World& w) {
         w.connect(1);
         w.save_answers[Fixture::trainer(1)] = SaveEnded{0, SaveOutcomeKind::failed, "disk quota"};
         w.request(1);
         w.save_answers.clear();
         w.request(2);
       }},
      {"the version before is gone back to",
       [](World& w) {
         w.connect(3);
         w.engine(2).dialect = DialectKind::vllm;
         w.request(1);
         w.request(2);
         if (!w.dead()) w.rollback(std::nullopt, "back");
       }},
      {"one refuses the version that is gone back to",
       [](World& w) {
         w.connect(3);
         w.request(1);
         w.request(2);
         w.script(1, K::load, failed(OutcomeKind::touched, "500"), 2);
         if (!w.dead()) w.rollback(1);
       }},
      {"the way back fails, and is undone",
       [](World& w) {
         w.connect(2);
         w.request(1);
         w.request(2);
         for (int i = 0; i < 2; ++i) w.script(i, K::load, failed(OutcomeKind::touched, "500"));
         if (!w.dead()) w.rollback();
       }},
      {"an engine restarts and is brought back",
       [](World& w) {
         w.reconciles = true;
         w.connect(3);
         w.engine(2).dialect = DialectKind::vllm;
         w.request(1);
         w.restart(1);
         w.restart(2);
         w.advance(15s);
         w.request(2);
         w.flush();
       }},
      {"a worker fails twice and is brought back",
       [](World& w) {
         w.reconciles = true;
         w.connect(2);
         w.request(1);
         w.script(1, K::load, failed(OutcomeKind::touched, "500"), 4);
         w.request(2);
         w.advance(10s);
         w.flush();
       }},
      {"an operator drains one, removes one and adds one",
       [](World& w) {
         w.reconciles = true;
         w.connect(4);
         w.request(1);
         const auto change = [&](WorkerChange what, int i) {
           ChangeWorker event;
           event.pair = "actor";
           event.change = what;
           event.worker.url = Fixture::url(i);
           w.post(event);
         };
         change(WorkerChange::drain, 1);
         change(WorkerChange::remove, 2);
         w.engine_at(Fixture::url(4));
         change(WorkerChange::add, 4);
         w.advance(5s);
         change(WorkerChange::release, 1);
         w.advance(5s);
         w.request(2);
         w.flush();
       }},
      {"a pair loses a quarantined worker",
       [](World& w) {
         w.connect(2);
         w.request(1);
         w.script(1, K::load, failed(OutcomeKind::untouched, "400 no"), 3);
         w.request(2);
         w.connect(1);
       }},
  };
  return kPlays;
}

int groups_of(const Play& play) {
  World world;
  world.die_at_group(1'000'000, false);
  play(world);
  return 1'000'000 - world.groups_left();
}

TEST(Replay, what_is_at_rest_is_read_back_as_it_was) {
  for (const Named& one : plays()) {
    World world;
    one.play(world);
    world.flush();
    EXPECT_EQ(at_rest(world.replayed()), at_rest(world.state())) << one.name;
  }
}

TEST(Replay, at_any_moment_the_books_of_the_workers_are_read_back_as_they_were) {
  for (const Named& one : plays()) {
    const int groups = groups_of(one.play);
    for (int n = 1; n <= groups; ++n) {
      World world;
      world.die_at_group(n, true);
      one.play(world);
      EXPECT_EQ(books(world.replayed()), books(world.state_at_death())) << one.name << ", group " << n;
      EXPECT_EQ(books(world.replayed()), books(world.replayed())) << one.name << ", group " << n;
    }
  }
}

// Whole and served, or kept out with a cause.
void expect_resolved(World& world, const std::string& where) {
  for (const auto& [name, pair] : world.state().pairs) {
    EXPECT_EQ(pair.active, "") << where;
    EXPECT_TRUE(pair.queue.empty()) << where;
  }
  for (const auto& [url, worker] : world.state().workers) {
    const FakeWorker& engine = world.engine_at(url);
    if (worker.state == WorkerState::ready) {
      EXPECT_FALSE(engine.paused) << where << ": " << url;
      const auto pair = world.state().pairs.find(worker.pair);
      ASSERT_NE(pair, world.state().pairs.end());
      if (engine.incarnation != worker.incarnation) continue;  // it restarted, and nobody has read it since
      const std::string wanted = pair->second.committed ? pair->second.committed->directory : "/models/start";
      EXPECT_EQ(engine.loaded, wanted) << where << ": " << url;
    } else {
      EXPECT_TRUE(worker.state == WorkerState::quarantined || worker.state == WorkerState::abandoned ||
                  worker.state == WorkerState::joining || worker.state == WorkerState::draining)
          << where << ": " << url << ": " << name(worker.state);
      EXPECT_TRUE(worker.cause.has_value()) << where << ": " << url;
    }
    EXPECT_FALSE(worker.in_flight.has_value()) << where << ": " << url;
  }
  for (const auto& [id, update] : world.state().updates) EXPECT_TRUE(is_terminal(update.state)) << where;
}

TEST(Recovery, gateway_that_dies_after_any_group_leaves_nobody_paused_without_a_cause) {
  for (const Named& one : plays()) {
    const int groups = groups_of(one.play);
    for (int n = 1; n <= groups; ++n) {
      for (const bool performed : {false, true}) {
        World world;
        world.die_at_group(n, performed);
        one.play(world);
        ASSERT_TRUE(world.dead());
        const std::string where =
            std::string(one.name) + ", group " + std::to_string(n) + (performed ? " performed" : "");
        world.start_again();
        world.advance(3000s);
        expect_resolved(world, where);
        if (world.state().pairs.empty()) continue;
        world.sealed.compared = true;
        world.silent_trainers.clear();
        world.save_answers.clear();
        world.advance(7300s);  // a save that was on its way keeps its trainer busy
        const UpdateId next = world.request(9);
        ASSERT_NE(next, "") << where;
        EXPECT_EQ(world.update(next).state, UpdateState::succeeded)
            << where << ": " << (world.update(next).error ? world.update(next).error->text() : "");
        world.flush();  // nothing waits for the record that a removal was done
        EXPECT_EQ(at_rest(world.replayed()), at_rest(world.state())) << where;
      }
    }
  }
}

TEST(Recovery, gateway_that_dies_again_while_it_takes_over_is_taken_over_likewise) {
  const Play& play = plays()[3].play;  // the quorum is lost
  const int groups = groups_of(play);
  for (int n = 1; n <= groups; ++n) {
    for (int again = 1; again <= 6; ++again) {
      World world;
      world.die_at_group(n, true);
      play(world);
      world.die_again_at_group(again);
      world.start_again();
      world.advance(3000s);
      if (world.dead()) {
        world.start_again();
        world.advance(3000s);
      }
      expect_resolved(world, "group " + std::to_string(n) + " and again " + std::to_string(again));
    }
  }
}

}  // namespace
}  // namespace weighlock::protocol
