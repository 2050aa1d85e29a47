// Injected faults, deaths and restarts, the log, and engines side by side.
#include <gtest/gtest.h>

#include "tinyengine/testing/rig.hpp"

namespace weighlock::tiny {
namespace {

using Ending = Answer::Ending;

class Faults : public testing::Test {
 protected:
  int start(DialectKind dialect = DialectKind::sglang) {
    EngineSettings settings;
    settings.dialect = dialect;
    settings.model_directory = models("v1");
    settings.timings = quick_timings();
    return rig.start(settings);
  }
  void set(int port, const std::string& body) {
    ASSERT_EQ(call(port, "POST", "/_tiny/faults", body).status, 200) << body;
  }
  std::string load_body(const std::string& name) {
    return R"({"model_path":")" + models(name) + R"(","weight_version":"2"})";
  }
  Answer load(int port, const CallOptions& options = {}) {
    return call(port, "POST", "/update_weights_from_disk", load_body("v2"), options);
  }
  std::string state(int port, const std::string& member) {
    return call(port, "GET", "/_tiny/state").text("/" + member);
  }
  std::size_t logged(int port) {
    const Answer log = call(port, "GET", "/_tiny/log");
    return log.json.is_array() ? log.json.as_array().size() : 0;
  }
  static std::string summary(const Answer& answer) {
    if (answer.ending != Ending::answered) return answer.ending == Ending::reset ? "reset" : "timeout";
    return std::to_string(answer.status) + (answer.status == 200 ? " " + answer.text("/success") : "");
  }
  std::string load_fault(const std::string& fault, const std::string& more = "") {
    return R"({"route":"/update_weights_from_disk","fault":")" + fault + "\"" + more + "}";
  }

  TestModels& models = test_models();
  Rig rig;
};

TEST_F(Faults, faults_before_leave_the_weights_and_count_down) {
  for (const std::string word :
       {"reset_before", "status_500", "status_400", "success_false", "garbage", "hang", "refuse"}) {
    const int port = start();
    set(port, load_fault(word));
    const Answer answer = load(port, within(word == "hang" ? 50 : 5000));
    EXPECT_EQ(state(port, "label"), "default") << word;
    const std::map<std::string, std::string> seen = {{"reset_before", "reset"}, {"refuse", "reset"},
                                                     {"hang", "timeout"},       {"status_500", "500"},
                                                     {"status_400", "400"},     {"success_false", "200 false"},
                                                     {"garbage", "200 "}};
    EXPECT_EQ(summary(answer), seen.at(word));
    EXPECT_TRUE(load(port).ok()) << word << " was for one call";
  }
}

TEST_F(Faults, faults_after_have_applied_the_load) {
  for (const std::string word : {"reset_after", "hang_after", "drip"}) {
    const int port = start();
    set(port, load_fault(word));
    const Answer answer = load(port, within(word == "hang_after" ? 50 : 5000));
    EXPECT_TRUE(comes_true([&] { return state(port, "label") == "2"; })) << word;
    EXPECT_EQ(answer.ending, word == "reset_after"  ? Ending::reset
                             : word == "hang_after" ? Ending::timeout
                                                    : Ending::answered)
        << word;
  }
}

TEST_F(Faults, a_partial_load_reports_success_and_serves_a_mix) {
  const int port = start();
  set(port, load_fault("partial_load"));
  EXPECT_TRUE(load(port).ok());
  EXPECT_EQ(state(port, "mixed"), "true");
  EXPECT_EQ(state(port, "told_label"), "2");
  const int other = start(DialectKind::vllm);
  set(other, R"({"route":"/collective_rpc","fault":"partial_load"})");
  EXPECT_TRUE(call(other, "POST", "/collective_rpc",
                   R"({"method":"reload_weights","kwargs":{"weights_path":")" + models("v2") + "\"}}")
                  .ok());
  EXPECT_EQ(state(other, "mixed"), "true");
}

TEST_F(Faults, a_slow_load_takes_its_time_in_its_turn) {
  const int port = start();
  set(port, load_fault("slow", R"(,"delay_ms":100)"));
  auto loading = call_later(port, "POST", "/update_weights_from_disk", load_body("v2"));
  ASSERT_TRUE(comes_true([&] { return logged(port) == 1; }));
  EXPECT_TRUE(call(port, "GET", "/server_info").ok());
  EXPECT_EQ(state(port, "label"), "2") << "the load came first";
  EXPECT_TRUE(loading.get().ok());
  EXPECT_GE(std::stoi(call(port, "GET", "/_tiny/log").text("/0/took_ms")), 99);
}

TEST_F(Faults, overlapping_loads_are_flagged_and_serialised) {
  const int port = start();
  call(port, "POST", "/_tiny/freeze");
  auto first = call_later(port, "POST", "/update_weights_from_disk", load_body("v2"));
  ASSERT_TRUE(comes_true([&] { return logged(port) == 1; }));
  auto second = call_later(port, "POST", "/update_weights_from_disk", load_body("v3"));
  ASSERT_TRUE(comes_true([&] { return logged(port) == 2; }));
  call(port, "POST", "/_tiny/thaw");
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_EQ(state(port, "directory"), models("v3")) << "the last one wins";
  const Answer log = call(port, "GET", "/_tiny/log");
  EXPECT_EQ(log.text("/0/overlap"), "false");
  EXPECT_EQ(log.text("/0/body"), load_body("v2"));
  EXPECT_EQ(log.text("/1/overlap"), "true");
}

TEST_F(Faults, one_after_the_other_isnt_an_overlap) {
  const int port = start();
  EXPECT_TRUE(load(port).ok());
  EXPECT_TRUE(load(port).ok());
  const Answer log = call(port, "GET", "/_tiny/log");
  for (const json::value& row : log.json.as_array()) EXPECT_FALSE(*find_bool(row, "overlap"));
}

TEST_F(Faults, an_engine_that_dies_leaves_the_others_and_restarts_on_its_port) {
  const int port = start(), other = start(DialectKind::vllm);
  EXPECT_TRUE(load(port).ok());
  const std::string began = call(port, "GET", "/server_info").text("/startup_time");
  set(port, load_fault("die"));
  EXPECT_EQ(load(port).ending, Ending::reset);
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/ready").ending == Ending::refused; }));
  EXPECT_EQ(call(other, "GET", "/health").status, 200);
  rig.on_loop([&] { EXPECT_TRUE(rig.engine(port).restart()); });
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "default");
  EXPECT_EQ(call(port, "GET", "/model_info").text("/model_path"), models("v1"));
  EXPECT_NE(call(port, "GET", "/server_info").text("/startup_time"), began);
  EXPECT_TRUE(load(port).ok());
}

TEST_F(Faults, die_after_has_applied_and_kills) {
  const int port = start();
  set(port, load_fault("die_after"));
  EXPECT_EQ(load(port).ending, Ending::reset);
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/ready").ending == Ending::refused; }));
}

TEST_F(Faults, a_kill_in_the_middle_of_generation_and_load_is_survived) {
  const int port = start();
  set(port, load_fault("slow", R"(,"delay_ms":600000)"));
  auto loading = call_later(port, "POST", "/update_weights_from_disk", load_body("v2"));
  auto generating = call_later(port, "POST", "/generate",
                               R"({"text":"w","sampling_params":{"max_new_tokens":4000,"ignore_eos":true}})");
  ASSERT_TRUE(comes_true([&] { return logged(port) == 2; }));
  rig.on_loop([&] { rig.engine(port).kill(); });
  EXPECT_EQ(loading.get().ending, Ending::reset);
  EXPECT_EQ(generating.get().ending, Ending::reset);
  rig.on_loop([&] { EXPECT_TRUE(rig.engine(port).restart()); });
  EXPECT_TRUE(call(port, "POST", "/generate", R"({"text":"w"})").ok());
  EXPECT_EQ(state(port, "directory"), models("v1")) << "a load of an earlier life doesn't reach this one";
}

TEST_F(Faults, refuse_closes_the_port_for_a_while) {
  const int port = start();
  set(port, R"({"fault":"refuse","delay_ms":1000})");
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/ready").ending == Ending::refused; }));
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/ready").ok(); }));
  EXPECT_EQ(state(port, "lives"), "1");
}

TEST_F(Faults, an_unknown_fault_is_refused_with_the_list) {
  const int port = start();
  const Answer answer = call(port, "POST", "/_tiny/faults", R"({"fault":"explode"})");
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.text("/error").find("reset_before"), std::string::npos);
}

TEST_F(Faults, a_fault_for_ever_ends_when_cleared) {
  const int port = start();
  set(port, R"({"route":"/ready","fault":"status_503","times":-1})");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(call(port, "GET", "/ready").status, 503);
  call(port, "DELETE", "/_tiny/faults");
  EXPECT_EQ(call(port, "GET", "/ready").status, 200);
}

}  // namespace
}  // namespace weighlock::tiny
