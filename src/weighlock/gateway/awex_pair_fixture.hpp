// A gateway with three engines and two trainers that have AReaL's /awex routes, over real sockets. Included by tests
// only.
#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "weighlock/awex/report_fixture.hpp"
#include "weighlock/gateway/gateway_fixture.hpp"

namespace weighlock::test {

// What a member does with a call.
enum class Turn { well, refuses, drops, stays_silent, tells_another_version, wants_a_key };

// The /awex routes of one worker; loop only.
struct Member {
  awex::Side side;
  int rank = 0;
  int world = 1;
  std::string name;
  std::vector<std::string>* log = nullptr;  // of all members: "train0 update_weights"
  std::map<std::string, std::vector<std::string>> bodies;
  std::map<std::string, Turn> turns;
  std::vector<Responder> silent;
  json::object told;                                          // beside what it always reports of its parallelism
  std::function<RequestFate()> fate = nullptr;                // asked of each call but a teardown
  std::function<Turn(const HttpRequest&)> turn_of = nullptr;  // instead of `turns`

  void answer(const HttpRequest& request, const Responder& answer) {
    const std::string call = request.target.substr(std::string("/awex/").size());
    bodies[call].push_back(request.body);
    log->push_back(name + " " + call);
    if (call != "teardown" && struck(fate, answer)) return;
    const Turn turn = turn_of ? turn_of(request) : turns[call];
    if (turn == Turn::refuses) return answer.respond(json_reply(500, {{"error", "told to refuse"}}));
    if (turn == Turn::tells_another_version) return answer.respond(json_reply(200, {{"status", "ok"}, {"version", 6}}));
    if (turn == Turn::wants_a_key) return answer.respond(json_reply(401, {{"error", "Unauthorized"}}));
    if (turn == Turn::drops) return answer.reset();
    if (turn == Turn::stays_silent) return silent.push_back(answer);
    if (call.starts_with("report_parallelism")) {
      json::object parallelism{{"world_size", world}, {"tp_size", 1}, {"pp_size", 1}};
      for (const auto& more : told) parallelism[more.key()] = more.value();
      return answer.respond(json_reply(200, parallelism));
    }
    if (call == "report_weight_meta") return answer.respond(HttpResponse{200, {}, report()});
    const bool is_train = side == awex::Side::train;
    answer.respond(json_reply(200, {{"status", is_train ? "success" : "ok"}}));
  }
  std::size_t padding = 0;  // bytes in front of its report
  std::string report() const {
    const awex::Sizes shape{6, 4};
    const bool is_train = side == awex::Side::train;
    return std::string(padding, ' ') +
           awex::body(side, {is_train ? awex::fsdp_of("w", shape, rank, world) : awex::whole_of("w", shape, 0, 1)});
  }
  int count(const std::string& call) { return static_cast<int>(bodies[call].size()); }
};

class AwexPairTest : public GatewayTest {
 protected:
  void SetUp() override {
    GatewayTest::SetUp();
    settings.transfer_failure_grace = Milliseconds(100);
    for (int i = 0; i < 2; ++i) {
      train[i] = {awex::Side::train, i, 2, fmt::format("train{}", i), &log, {}, {}, {}, {}};
      trainers[static_cast<std::size_t>(i)]->awex = [this, i](const auto& r, const auto& a) { train[i].answer(r, a); };
    }
    for (int i = 0; i < 3; ++i) {
      infer[i] = {awex::Side::infer, i, 1, fmt::format("infer{}", i), &log, {}, {}, {}, {}};
      engines[static_cast<std::size_t>(i)]->awex = [this, i](const auto& r, const auto& a) { infer[i].answer(r, a); };
    }
    if (starts) start();
  }
  void TearDown() override {
    on_loop([this] {
      for (Member& member : train) member.silent.clear();
      for (Member& member : infer) member.silent.clear();
    });
    GatewayTest::TearDown();
  }
  json::object awex_body() {
    json::object body = connect_body();
    body["mode"] = "awex";
    body["save_path"] = "";
    body["nccl_master_addr"] = "127.0.0.1";
    body["nccl_master_port"] = 29'511;
    return body;
  }
  Reply connect() { return call("POST", "/connect", awex_body()); }
  void turn(Member& member, const std::string& what, Turn how) {
    on_loop([&] { member.turns[what] = how; });
  }
  int count(Member& member, const std::string& what) {
    int n = 0;
    on_loop([&] { n = member.count(what); });
    return n;
  }
  std::string body_of(Member& member, const std::string& what, std::size_t which = 0) {
    std::string out;
    on_loop([&] {
      const auto& all = member.bodies[what];
      if (which < all.size()) out = all[which];
    });
    return out;
  }
  std::vector<std::string> bodies_of(Member& member, const std::string& what) {
    std::vector<std::string> out;
    on_loop([&] { out = member.bodies[what]; });
    return out;
  }
  std::string group_name(std::size_t which = 0) {
    const json::value body =
        parse_json(body_of(train[0], "init_weights_update_group", which), "body").value_or(nullptr);
    return std::string(find_string(body, "pair_name").value_or(""));
  }
  int meta_status(const std::string& name) {
    return raw_call("GET", "/weight_meta/" + name + "/training_params_meta", "", {}).status;
  }
  json::value worker_told(int i) {
    const json::value told = call("GET", "/v1/pairs/actor/workers").json();
    for (const json::value& one : told.at("items").as_array()) {
      if (one.at("url").as_string() == engines[static_cast<std::size_t>(i)]->url()) return one;
    }
    return nullptr;
  }
  void expect_all_fenced() {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(worker_told(i).at("state").as_string(), "quarantined") << i;
      EXPECT_TRUE(worker_told(i).at("version").is_null()) << i;
      EXPECT_TRUE(engines[static_cast<std::size_t>(i)]->paused) << i;
    }
  }
  bool starts = true;  // false: the test does, when it has changed what it likes
  std::vector<std::string> log;
  Member train[2];
  Member infer[3];
};

}  // namespace weighlock::test
