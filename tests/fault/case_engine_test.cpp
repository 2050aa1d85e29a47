// Cases in which an engine answers in a way that misled others.
#include "case_fixture.hpp"

namespace weighlock::fault {
namespace {

constexpr const char* kSglangLoad = "/update_weights_from_disk";

// A fenced engine stays so until the next update, and isn't "loading" when it is looked at a second later.
const json::object kNotBroughtBack{{"pair_lease_ms", 0}};

// A1
TEST_F(CaseTest, a_paused_engine_is_continued_once_whatever_became_of_the_load) {
  for (const Fault fault :
       {Fault::none, Fault::status_400, Fault::status_500, Fault::reset_before, Fault::reset_after, Fault::hang}) {
    SCOPED_TRACE(name(fault));
    const auto one = fleet(DialectKind::sglang, 1, {}, fault == Fault::hang ? tight_deadlines() : patient_deadlines());
    arm(*one, 0, kSglangLoad, fault);
    const json::value ended = one->update(1);
    // An engine whose answer was lost is asked, and may take the load after all (A6).
    const bool may_succeed = fault == Fault::none || fault == Fault::reset_before || fault == Fault::reset_after;
    EXPECT_EQ(state_of(ended), may_succeed ? "succeeded" : "rolled_back") << json::serialize(ended);
    EXPECT_EQ(count(*one, 0, "/continue_generation"), 1);
    EXPECT_EQ(one->state(0), "ready");
    expect_well(*one);
  }
}

// A2
TEST_F(CaseTest, one_failed_engine_is_fenced_and_a_retry_does_not_touch_the_others) {
  const auto three = fleet(DialectKind::sglang, 3, kNotBroughtBack);
  arm(*three, 1, kSglangLoad, Fault::status_400, true);
  const json::value first = three->update(1);
  EXPECT_EQ(state_of(first), "degraded") << json::serialize(first);
  EXPECT_EQ(three->state(1), "quarantined");
  EXPECT_EQ(find_int(three->pair(), "committed"), 1);
  expect_in(told(first), three->engine(1).url());
  expect_well(*three);
  lab.on_peers([&] { three->engine(1).calm(); });
  const json::value again = three->update(1);
  EXPECT_EQ(count(*three, 0, kSglangLoad), 1) << json::serialize(again);
  EXPECT_EQ(count(*three, 2, kSglangLoad), 1);
  EXPECT_EQ(state_of(three->update(2)), "succeeded");
  EXPECT_EQ(three->state(1), "ready");
}

// A6
TEST_F(CaseTest, a_load_whose_answer_was_lost_is_sent_again_only_if_the_engine_holds_the_old_version) {
  for (const Fault fault : {Fault::reset_after, Fault::reset_before}) {
    SCOPED_TRACE(name(fault));
    const auto one = fleet(DialectKind::sglang, 1);
    ASSERT_EQ(state_of(one->update(1)), "succeeded");
    lab.on_peers([&] { one->engine(0).begin_script(); });
    arm(*one, 0, kSglangLoad, fault);
    const json::value ended = one->update(2);
    EXPECT_EQ(state_of(ended), "succeeded") << json::serialize(ended);
    EXPECT_EQ(count(*one, 0, kSglangLoad), fault == Fault::reset_after ? 1 : 2);
    EXPECT_EQ(count(*one, 0, "/continue_generation"), 1);
    EXPECT_EQ(one->state(0), "ready");
    expect_well(*one);
    ASSERT_EQ(lab.call("DELETE", "/v1/pairs/actor").status, 200);
  }
}

// A7
TEST_F(CaseTest, the_engines_own_words_reach_the_caller_at_once) {
  const auto one = fleet(DialectKind::vllm, 1);
  arm(*one, 0, "/collective_rpc", Fault::status_500, true);
  const Stopwatch watch;
  const json::value body = one->compat_update(1).json();
  EXPECT_LT(watch.read(), kBelowAnyDeadline);
  EXPECT_EQ(text_at(body, "status"), "error");
  expect_in(text_at(body, "error"), kWords);
  expect_in(text_at(body, "error"), one->engine(0).url());
}

// A11
TEST_F(CaseTest, a_load_that_never_answers_is_given_up_and_the_engine_continued_on_another_connection) {
  const auto one = fleet(DialectKind::sglang, 1, {{"pause_mode", "retract"}}, tight_deadlines());
  arm(*one, 0, kSglangLoad, Fault::hang);
  const json::value ended = one->update(1);
  EXPECT_EQ(state_of(ended), "rolled_back") << json::serialize(ended);
  expect_in(told(ended), "no answer within 1500 ms");
  EXPECT_EQ(count(*one, 0, "/continue_generation"), 1);
  EXPECT_EQ(count(*one, 0, kSglangLoad), 2);  // it was dirty: healed before it was continued
  expect_well(*one);
}

// A12
TEST_F(CaseTest, a_flush_that_is_refused_three_times_is_tried_again) {
  const auto one = fleet(DialectKind::vllm, 1);
  lab.on_peers([&] { static_cast<VllmImposter&>(one->engine(0)).flush_refusals = 3; });
  const json::value ended = one->update(1);
  EXPECT_EQ(state_of(ended), "succeeded") << json::serialize(ended);
  EXPECT_EQ(count(*one, 0, "/reset_prefix_cache"), 4);
  expect_well(*one);
}

TEST_F(CaseTest, a_flush_that_is_always_refused_fails_the_update_and_leaves_nobody_paused_without_a_cause) {
  const auto one = fleet(DialectKind::vllm, 1, kNotBroughtBack, tight_deadlines());
  lab.on_peers([&] { static_cast<VllmImposter&>(one->engine(0)).flush_refusals = 1'000; });
  const json::value ended = one->update(1);
  EXPECT_EQ(state_of(ended), "failed") << json::serialize(ended);
  expect_in(told(ended), "flush");
  EXPECT_EQ(one->state(0), "quarantined");
  expect_well(*one);
}

TEST_F(CaseTest, new_weights_whose_cache_was_not_flushed_are_no_success) {
  const auto one = fleet(DialectKind::sglang, 1);
  const std::string words =
      "Weights were updated, but the cache was not flushed because requests are still running or queued. "
      "Retract or finish them, then call /flush_cache.";
  lab.on_peers([&] {
    one->sglang(0).load_answer = HttpResponse{
        400, {}, json::serialize(json::object{{"success", false}, {"message", words}, {"num_paused_requests", 1}})};
  });
  const json::value ended = one->update(1);
  EXPECT_EQ(state_of(ended), "rolled_back") << json::serialize(ended);
  expect_in(told(ended), "the cache was not flushed");
  expect_well(*one);  // back on the start model, and running
}

// A13
TEST_F(CaseTest, no_field_of_an_engines_body_is_left_to_its_default) {
  const auto one = fleet(DialectKind::sglang, 1);
  ASSERT_EQ(state_of(one->update(1)), "succeeded");
  lab.on_peers([&] {
    for (const Seen* label : one->engine(0).all("/update_weight_version"))
      EXPECT_EQ(find_bool(label->body, "abort_all_requests"), false) << json::serialize(label->body);
    const json::value expected{{"model_path", one->version_directory(1)},
                               {"load_format", nullptr},
                               {"abort_all_requests", false},
                               {"weight_version", "1"},
                               {"is_async", false},
                               {"torch_empty_cache", false},
                               {"keep_pause", false},
                               {"recapture_cuda_graph", false},
                               {"token_step", 0},
                               {"flush_cache", true},
                               {"manifest", nullptr}};
    ASSERT_EQ(one->engine(0).count(kSglangLoad), 1);
    EXPECT_EQ(one->engine(0).all(kSglangLoad)[0]->body, expected);
    EXPECT_EQ(one->engine(0).all("/pause_generation")[0]->body, json::value({{"mode", "abort"}}));
    EXPECT_EQ(one->engine(0).all("/continue_generation")[0]->body, json::value({{"torch_empty_cache", true}}));
  });
}

// A17
class SuccessThatIsNone : public CaseTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(SuccessThatIsNone, a_200_that_loaded_nothing_is_a_failure_and_the_engine_gets_its_old_weights_back) {
  const auto one = fleet(DialectKind::sglang, 1);
  lab.on_peers([&] {
    one->sglang(0).load_answer = HttpResponse{200, {{"Content-Type", "application/json"}}, GetParam()};
  });
  const json::value ended = one->update(1);
  EXPECT_EQ(state_of(ended), "rolled_back") << json::serialize(ended);
  expect_in(told(ended), one->engine(0).url());
  EXPECT_TRUE(find(one->pair(), "committed")->is_null());
  expect_well(*one);
}

INSTANTIATE_TEST_SUITE_P(Bodies, SuccessThatIsNone,
                         ::testing::Values(R"({"success":false,"message":"m"})",
                                           R"({"success":true,"message":"updated 0 weights"})", ""));

TEST_F(CaseTest, a_200_under_which_the_version_stays_old_is_a_failure) {
  const auto one = fleet(DialectKind::sglang, 1, kNotBroughtBack);
  lab.on_peers([&] { one->engine(0).ignores_loads = one->engine(0).ignores_labels = true; });
  const json::value ended = one->update(1);
  EXPECT_EQ(state_of(ended), "failed") << json::serialize(ended);
  expect_in(told(ended), "the label is");
  EXPECT_EQ(one->state(0), "quarantined");
  EXPECT_EQ(count(*one, 0, "/continue_generation"), 0);
}

// A43
TEST_F(CaseTest, every_post_has_a_json_body_and_says_so) {
  for (const DialectKind kind : {DialectKind::sglang, DialectKind::vllm}) {
    const auto one = fleet(kind, 1);
    ASSERT_EQ(state_of(one->update(1)), "succeeded");
    lab.on_peers([&] {
      int posts = 0;
      for (const Seen& call : one->engine(0).seen) {
        if (call.method != "POST") continue;
        ++posts;
        EXPECT_TRUE(call.body.is_object()) << call.route;
        EXPECT_EQ(call.content_type, "application/json") << call.route;
      }
      EXPECT_GE(posts, 4);
    });
  }
}

TEST_F(CaseTest, a_422_is_final_and_shown) {
  const auto one = fleet(DialectKind::sglang, 1);
  lab.on_peers([&] { one->sglang(0).refuses_bodies = true; });
  const json::value ended = one->update(1);
  EXPECT_EQ(state_of(ended), "rolled_back") << json::serialize(ended);
  expect_in(told(ended), "422");
  EXPECT_EQ(count(*one, 0, "/pause_generation"), 1);
  EXPECT_EQ(count(*one, 0, kSglangLoad), 0);
  EXPECT_EQ(one->state(0), "ready");
}

// B37
TEST_F(CaseTest, after_a_failed_update_an_engine_is_not_ready_till_a_whole_load_has_succeeded) {
  const auto two = fleet(DialectKind::sglang, 2, kNotBroughtBack);
  arm(*two, 0, kSglangLoad, Fault::status_400, true);  // the heal fails as well
  EXPECT_EQ(state_of(two->update(1)), "degraded");
  const std::string ready = "/v1/pairs/actor/workers/" + two->engine(0).url().substr(7) + "/ready";
  EXPECT_EQ(lab.call("GET", ready).status, 503);
  lab.on_peers([&] {
    EXPECT_TRUE(two->engine(0).paused);
    two->engine(0).calm();
  });
  EXPECT_EQ(state_of(two->update(2)), "succeeded");
  EXPECT_EQ(lab.call("GET", ready).status, 200);
  expect_well(*two);
}

// B38
class OldWeights : public CaseTest, public ::testing::WithParamInterface<DialectKind> {};

TEST_P(OldWeights, an_engine_that_says_the_new_version_and_serves_the_old_weights_is_found_out) {
  const auto one = fleet(GetParam(), 1);
  ASSERT_EQ(state_of(one->update(1)), "succeeded");
  lab.on_peers([&] { one->engine(0).ignores_loads = true; });
  const json::value ended = one->update(2);
  EXPECT_EQ(state_of(ended), "rolled_back") << json::serialize(ended);
  expect_in(told(ended), "tensor '");
  EXPECT_EQ(find_int(one->pair(), "committed"), 1);
  expect_well(*one);
}

INSTANTIATE_TEST_SUITE_P(Dialects, OldWeights, ::testing::Values(DialectKind::sglang, DialectKind::vllm),
                         [](const auto& test) { return std::string(weighlock::name(test.param)); });

}  // namespace
}  // namespace weighlock::fault
