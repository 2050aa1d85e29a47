// An AWEX pair over real sockets: what its workers are asked, in which order, and what is left when one of them fails.
#include "weighlock/gateway/awex_pair_fixture.hpp"

namespace weighlock::test {
namespace {

TEST_F(AwexPairTest, connect_asks_for_reports_serves_the_metadata_and_brings_all_up) {
  const Reply reply = connect();
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json().at("pair_name").as_string(), "actor");
  EXPECT_EQ(reply.json().at("rollback").as_string(), "unavailable");
  for (Member& member : train) {
    EXPECT_EQ(count(member, "report_weight_meta"), 1);
    EXPECT_EQ(body_of(member, "report_weight_meta"), "");
    EXPECT_EQ(count(member, "init_weights_update_group"), 1);
    EXPECT_EQ(body_of(member, "batch_isend_irecv"), R"({"world_size": 5})");
  }
  const std::string name = group_name();
  EXPECT_TRUE(name.starts_with("actor.e")) << name;
  const auto expected = [&](int rank) {
    return fmt::format(
        R"({{"pair_name": "{}", "master_addr": "127.0.0.1", "master_port": 29511, "world_size": 5, )"
        R"("kv_store_url": "http://127.0.0.1:{}", "infer_world_size": 3, "train_world_size": 2, "num_engines": 3, )"
        R"("transfer_rank": {}}})",
        name, port, rank);
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(body_of(infer[i], "init_weights_update_group"), expected(i));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(body_of(train[i], "init_weights_update_group"), expected(3 + i));
  const Reply meta = raw_call("GET", "/weight_meta/" + name + "/training_params_meta", "", {});
  EXPECT_EQ(meta.status, 200);
  EXPECT_EQ(meta.json().at("value").as_array().size(), 1u);
  on_loop([&] {
    EXPECT_EQ(train[0].count("report_parallelism"), 1);
    EXPECT_EQ(infer[0].count("report_parallelism"), 1);
    EXPECT_EQ(train[1].count("report_parallelism") + infer[1].count("report_parallelism"), 0);
  });
}

TEST_F(AwexPairTest, an_update_asks_each_member_once_and_all_serve_it) {
  ASSERT_EQ(connect().status, 200);
  const Reply reply = update(1);
  EXPECT_EQ(reply.json().at("status").as_string(), "ok") << reply.body;
  for (Member& member : train) EXPECT_EQ(body_of(member, "update_weights"), R"({"version": 1})");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(count(infer[i], "update_weights"), 1);
    EXPECT_EQ(worker_told(i).at("state").as_string(), "ready");
    EXPECT_EQ(worker_told(i).at("version").as_int64(), 1);
    EXPECT_FALSE(engines[static_cast<std::size_t>(i)]->paused);
    EXPECT_EQ(engines[static_cast<std::size_t>(i)]->loads, 0);
  }
  on_loop([&] {
    for (auto& engine : engines) EXPECT_EQ(engine->label, "1");
    for (auto& trainer : trainers) EXPECT_EQ(trainer->saves, 0);
  });
  EXPECT_EQ(update(2).json().at("status").as_string(), "ok");
  EXPECT_EQ(count(train[0], "init_weights_update_group"), 1);
}

TEST_F(AwexPairTest, whatever_fails_in_a_connect_names_its_worker_and_leaves_nothing) {
  for (const std::string what :
       {"report_parallelism", "report_weight_meta", "init_weights_update_group", "batch_isend_irecv"}) {
    for (const Turn how : {Turn::refuses, Turn::drops, Turn::stays_silent}) {
      if (how == Turn::stays_silent && what.starts_with("report_p")) continue;  // until the time-out
      const bool first = what == "report_parallelism";
      Member& culprit = infer[first ? 0 : 1];
      turn(culprit, what, how);
      if (how == Turn::stays_silent) turn(train[1], what, Turn::refuses);  // somebody speaks up
      const int inits = count(train[0], "init_weights_update_group");
      const int teardowns = count(train[0], "teardown");
      const Reply reply = connect();
      EXPECT_GE(reply.status, 400) << what;
      EXPECT_NE(reply.body.find(engines[first ? 0 : 1]->url()), std::string::npos) << what << reply.body;
      EXPECT_EQ(call("GET", "/v1/pairs/actor").status, 404) << what;
      const bool sent = count(train[0], "init_weights_update_group") > inits;
      EXPECT_EQ(count(train[0], "teardown"), teardowns + (sent ? 1 : 0)) << what;
      if (sent) {
        EXPECT_EQ(meta_status(group_name(static_cast<std::size_t>(inits))), 404) << what;
      }
      turn(culprit, what, Turn::well);
      turn(train[1], what, Turn::well);
      on_loop([&] {
        for (auto& engine : engines) EXPECT_FALSE(engine->paused);
      });
    }
  }
  ASSERT_EQ(connect().status, 200);
  EXPECT_EQ(update(1).json().at("status").as_string(), "ok");
}

TEST_F(AwexPairTest, whoever_fails_in_an_update_tears_all_and_the_next_one_builds_anew) {
  ASSERT_EQ(connect().status, 200);
  std::int64_t version = 0;
  for (Member* culprit : {&infer[1], &train[1]}) {
    for (const Turn how : {Turn::refuses, Turn::drops}) {
      turn(*culprit, "update_weights", how);
      const int before = count(train[0], "init_weights_update_group");
      const Reply torn = update(++version);
      EXPECT_EQ(torn.status, 200);
      EXPECT_EQ(torn.json().at("status").as_string(), "error") << torn.body;
      const std::string url = culprit == &infer[1] ? engines[1]->url() : trainers[1]->url();
      EXPECT_NE(torn.body.find(url), std::string::npos) << torn.body;
      expect_all_fenced();
      EXPECT_EQ(count(*culprit, "update_weights"), count(train[0], "update_weights"));
      turn(*culprit, "update_weights", Turn::well);
      const Reply healed = update(++version);
      EXPECT_EQ(healed.json().at("status").as_string(), "ok") << healed.body;
      EXPECT_EQ(count(train[0], "init_weights_update_group"), before + 1);
      EXPECT_NE(group_name(static_cast<std::size_t>(before)), group_name(static_cast<std::size_t>(before) - 1));
    }
  }
}

TEST_F(AwexPairTest, an_answer_for_another_version_fails_the_update_and_names_its_worker) {
  ASSERT_EQ(connect().status, 200);
  turn(infer[1], "update_weights", Turn::tells_another_version);
  const Reply reply = update(7);
  EXPECT_EQ(reply.json().at("status").as_string(), "error") << reply.body;
  EXPECT_NE(reply.body.find("for version 7 was answered with version 6"), std::string::npos) << reply.body;
  EXPECT_NE(reply.body.find(engines[1]->url()), std::string::npos) << reply.body;
  expect_all_fenced();
}

TEST_F(AwexPairTest, a_worker_that_wants_a_key_at_an_awex_route_is_told_with_what_to_do) {
  for (const std::string what : {"report_parallelism", "report_weight_meta", "init_weights_update_group"}) {
    turn(infer[0], what, Turn::wants_a_key);
    const Reply reply = connect();
    EXPECT_GE(reply.status, 400) << what << reply.body;
    EXPECT_NE(reply.body.find("calls to /awex routes carry no key"), std::string::npos) << what << reply.body;
    EXPECT_NE(reply.body.find(engines[0]->url()), std::string::npos) << what << reply.body;
    turn(infer[0], what, Turn::well);
  }
}

// A worker puts the group's name into a path as it is.
TEST_F(AwexPairTest, workers_find_their_lists_whatever_the_pair_is_called) {
  std::size_t groups = 0;
  for (const std::string name : {"a/b", "a?b", "a#b", "a%41b", "..", "a b", "ä☃", "a\\b", "a+b"}) {
    json::object body = awex_body();
    body["pair_name"] = name;
    ASSERT_EQ(call("POST", "/connect", body).status, 200) << name;
    const std::string group = group_name(groups++);
    EXPECT_EQ(group.find_first_of("/?#% \\+"), std::string::npos) << group;
    EXPECT_EQ(meta_status(group), 200) << group;
    ASSERT_EQ(call("POST", "/disconnect", {{"pair_name", name}}).status, 200) << name;
    EXPECT_EQ(meta_status(group), 404) << group;
  }
}

TEST_F(AwexPairTest, a_disconnect_tears_down_trainers_and_forgets_the_metadata) {
  ASSERT_EQ(connect().status, 200);
  EXPECT_EQ(call("POST", "/disconnect", {{"pair_name", "actor"}}).status, 200);
  EXPECT_EQ(meta_status(group_name()), 404);
  const Reply again = connect();  // after the teardowns
  ASSERT_EQ(again.status, 200) << again.body;
  EXPECT_EQ(count(train[0], "teardown"), 1);
  EXPECT_EQ(count(infer[0], "teardown"), 0);
  EXPECT_NE(group_name(0), group_name(1));
}

TEST_F(AwexPairTest, a_disconnect_is_answered_when_its_trainers_have_left) {
  ASSERT_EQ(connect().status, 200);
  turn(train[1], "teardown", Turn::stays_silent);
  std::thread later([this] {
    while (count(train[1], "teardown") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    on_loop([this] { train[1].silent.back().respond(json_reply(200, {{"status", "success"}})); });
  });
  const auto began = std::chrono::steady_clock::now();
  const Reply reply = call("POST", "/disconnect", {{"pair_name", "actor"}});
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds(200));
  later.join();
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_FALSE(reply.json().as_object().contains("leaving"));
}

TEST_F(AwexPairTest, a_trainer_that_does_not_leave_holds_a_disconnect_up_for_a_moment_and_is_named) {
  ASSERT_EQ(connect().status, 200);
  turn(train[1], "teardown", Turn::stays_silent);
  const Reply reply = call("POST", "/disconnect", {{"pair_name", "actor"}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json().at("leaving").as_array(), (json::array{json::string(trainers[1]->url())}));
}

class AwexReportsTest : public AwexPairTest {
 protected:
  static constexpr std::size_t kRoom = 4 * 1024 * 1024;
  AwexReportsTest() {
    settings.report_bytes_max = kRoom;
    settings.reports_bytes_max = kRoom;
  }
  void pad(std::size_t bytes) {
    on_loop([&] {
      for (Member& member : train) member.padding = bytes;
      for (Member& member : infer) member.padding = bytes;
    });
  }
};

TEST_F(AwexReportsTest, reports_that_have_no_room_together_are_read_one_after_the_other) {
  pad(kRoom - 10'000);
  const Reply reply = connect();
  EXPECT_EQ(reply.status, 200) << reply.body;
}

TEST_F(AwexReportsTest, a_report_that_is_too_large_is_refused_with_its_worker_named) {
  on_loop([&] { infer[1].padding = kRoom + 1; });
  const Reply reply = connect();
  EXPECT_EQ(reply.status, 502) << reply.body;
  EXPECT_NE(reply.body.find(engines[1]->url()), std::string::npos) << reply.body;
  EXPECT_EQ(count(train[0], "init_weights_update_group"), 0);
}

TEST_F(AwexPairTest, what_can_not_be_right_is_refused_with_the_tensor_named) {
  on_loop([&] { infer[1].side = awex::Side::infer, infer[1].turns.clear(); });
  on_loop([&] {
    engines[0]->awex = [this](const HttpRequest& request, const Responder& answer) {
      if (request.target != "/awex/report_weight_meta") return infer[0].answer(request, answer);
      answer.respond(
          HttpResponse{200, {}, awex::body(awex::Side::infer, {awex::whole_of("other.weight", {6, 4}, 0, 1)})});
    };
  });
  const Reply reply = connect();
  EXPECT_EQ(reply.status, 400) << reply.body;
  EXPECT_NE(reply.body.find("other.weight"), std::string::npos) << reply.body;
  EXPECT_EQ(count(train[0], "init_weights_update_group"), 0);
}

TEST_F(AwexPairTest, colocated_workers_hand_memory_over_and_their_keys_go) {
  json::object body = awex_body();
  body["colocate"] = true;
  const Reply reply = call("POST", "/connect", body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(count(train[0], "batch_isend_irecv"), 0);
  const json::value init = parse_json(body_of(train[1], "init_colocate_weight_update"), "body").value_or(nullptr);
  EXPECT_EQ(init.at("transfer_rank").as_int64(), 4);
  EXPECT_EQ(init.at("infer_world_size").as_int64(), 3);
  const std::string name(init.at("pair_name").as_string());
  EXPECT_EQ(call("PUT", "/weight_meta/" + name + "/colocate_weights_rank3_1", {{"value", "ff"}},
                 {{"Content-Type", "application/json"}})
                .status,
            200);
  on_loop([&] { log.clear(); });
  EXPECT_EQ(update(1).json().at("status").as_string(), "ok");
  on_loop([&] {
    const std::vector<std::string> of_train{"release_memory", "execute_colocate_weight_update", "release_memory"};
    const std::vector<std::string> of_infer{"resume_memory", "execute_colocate_weight_update", "resume_memory"};
    const auto calls_of = [&](const std::string& who) {
      std::vector<std::string> out;
      for (const std::string& line : log) {
        if (line.starts_with(who + " ")) out.push_back(line.substr(who.size() + 1));
      }
      return out;
    };
    EXPECT_EQ(calls_of("train0"), of_train);
    EXPECT_EQ(calls_of("infer2"), of_infer);
    EXPECT_EQ(train[0].bodies["release_memory"],
              (std::vector<std::string>{R"({"tags": ["optimizer"]})", R"({"tags": ["weights"]})"}));
    EXPECT_EQ(infer[0].bodies["resume_memory"],
              (std::vector<std::string>{R"({"tags": ["weights"]})", R"({"tags": ["kv_cache"]})"}));
  });
  EXPECT_EQ(raw_call("GET", "/weight_meta/" + name + "/colocate_weights_rank3_1", "", {}).status, 404);
  EXPECT_EQ(call("POST", "/disconnect", {{"pair_name", "actor"}}).status, 200);
  EXPECT_EQ(count(train[0], "teardown"), 0);  // it would forget what is released
}

TEST_F(AwexPairTest, a_colocated_update_that_fails_gives_engines_their_memory_back) {
  json::object body = awex_body();
  body["colocate"] = true;
  ASSERT_EQ(call("POST", "/connect", body).status, 200);
  turn(train[1], "release_memory", Turn::refuses);
  const Reply torn = update(1);
  EXPECT_EQ(torn.json().at("status").as_string(), "error");
  EXPECT_NE(torn.body.find(trainers[1]->url()), std::string::npos) << torn.body;
  EXPECT_EQ(count(train[0], "execute_colocate_weight_update"), 0);
  EXPECT_EQ(count(infer[0], "resume_memory"), 2);
  expect_all_fenced();
}

TEST_F(AwexPairTest, colocation_is_refused_with_the_texts_that_clients_know) {
  json::object body = awex_body();
  body["colocate"] = true;
  body["mode"] = "disk";
  EXPECT_EQ(call("POST", "/connect", body).json().at("error").as_string(), "colocate=True requires mode='awex'");
  body["mode"] = "awex";
  body["use_lora"] = true;
  body["lora_name"] = "a";
  EXPECT_EQ(call("POST", "/connect", body).json().at("error").as_string(),
            "AWEX colocation does not support LoRA weights");
}

}  // namespace
}  // namespace weighlock::test
