// SGLang's measured behaviour, over real sockets: what waits for what in pauses, and with requests running.
#include "tinyengine/testing/sglang_fixture.hpp"

namespace weighlock::tiny {
namespace {

using Ending = Answer::Ending;

class SglangOrder : public SglangTest {};

TEST_F(SglangOrder, an_abort_pause_ends_running_requests_with_what_they_have) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate", kSglangEndless);
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_TRUE(call(port, "POST", "/pause_generation", "{}").ok());
  const Answer ended = running.get();
  EXPECT_EQ(ended.text("/meta_info/finish_reason/type"), "abort");
  EXPECT_EQ(ended.text("/meta_info/finish_reason/message"), "Aborted");
}

TEST_F(SglangOrder, server_info_doesnt_wait_for_the_drain_of_an_abort_pause_and_a_load_does) {
  EngineTimings timings = quick_timings();
  timings.step_least = Milliseconds{4};
  timings.pause_poll = Milliseconds{2000};
  const int port = start(timings);
  auto running = call_later(port, "POST", "/generate", kSglangEndless);
  ASSERT_TRUE(runs(port, "1"));
  auto pausing = call_later(port, "POST", "/pause_generation", "{}");
  ASSERT_TRUE(comes_true([&] { return call(port, "GET", "/ready").status == 503; }));
  EXPECT_TRUE(call(port, "GET", "/server_info").ok());
  EXPECT_EQ(state(port, "running"), "1") << "told to end, and not ended";
  EXPECT_EQ(call(port, "POST", "/flush_cache").status, 400);
  EXPECT_TRUE(load(port, "v2", "2").ok()) << "flushed, so nothing ran any more";
  EXPECT_EQ(running.get().text("/meta_info/finish_reason/type"), "abort");
  EXPECT_TRUE(pausing.get().ok());
}

TEST_F(SglangOrder, an_abandoned_abort_pause_ends_no_request_that_is_sent_after_the_continue) {
  EngineTimings timings = quick_timings();
  timings.step_least = Milliseconds{4};
  timings.pause_poll = Milliseconds{100};
  const int port = start(timings);
  auto aborted = call_later(port, "POST", "/generate", kSglangEndless);
  ASSERT_TRUE(runs(port, "1"));
  call(port, "POST", "/_tiny/freeze");
  EXPECT_EQ(call(port, "POST", "/pause_generation", "{}", within(30)).ending, Ending::timeout);
  EXPECT_EQ(call(port, "GET", "/ready").status, 503);
  ASSERT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  auto later = call_later(port, "POST", "/generate",
                          R"({"text":"w","sampling_params":{"max_new_tokens":100,"ignore_eos":true}})");
  ASSERT_TRUE(comes_true([&] { return state(port, "waiting") == "1"; }));
  call(port, "POST", "/_tiny/thaw");
  EXPECT_EQ(aborted.get().text("/meta_info/finish_reason/type"), "abort");
  const Answer ended = later.get();  // 400 ms, four times the poll
  EXPECT_EQ(ended.text("/meta_info/finish_reason/type"), "length");
}

TEST_F(SglangOrder, a_request_during_a_pause_waits_and_gets_the_new_weights) {
  const int port = start();
  ASSERT_TRUE(call(port, "POST", "/pause_generation", "{}").ok());
  auto waiting = call_later(port, "POST", "/generate", kSglangShort);
  EXPECT_EQ(call(port, "POST", "/generate", kSglangShort, within(50)).ending, Ending::timeout);
  ASSERT_TRUE(load(port, "v2", "2").ok());
  ASSERT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  EXPECT_EQ(waiting.get().text("/text"), clean_text("v2"));
  EXPECT_TRUE(runs(port, "0")) << "the one whose client had gone isn't served";
}

TEST_F(SglangOrder, in_place_with_a_running_request_and_a_flush_answers_400_with_new_weights) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate", kSglangEndless);
  ASSERT_TRUE(runs(port, "1"));
  ASSERT_TRUE(call(port, "POST", "/pause_generation", R"({"mode":"in_place"})").ok());
  const Answer answer = load(port, "v2", "3");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.text("/message"),
            "Weights were updated, but the cache was not flushed because requests are still running or queued. Retract "
            "or finish "
            "them, then call /flush_cache.");
  EXPECT_EQ(state(port, "label"), "3");
  EXPECT_EQ(state(port, "directory"), models("v2"));
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "default") << "the HTTP process was not told";
  EXPECT_EQ(call(port, "GET", "/model_info").text("/model_path"), models("v1"));
  EXPECT_EQ(call(port, "POST", "/flush_cache").body, "Flush cache failed.\n");
  ASSERT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  EXPECT_EQ(call(port, "POST", "/abort_request", R"({"abort_all":true})").status, 200);
  const Answer ended = running.get();
  EXPECT_EQ(ended.text("/meta_info/weight_versions/0/version"), "default");
  EXPECT_EQ(ended.text("/meta_info/weight_versions/1/version"), "3") << "it went on under the new weights";
}

TEST_F(SglangOrder, retracted_requests_let_the_flush_succeed_and_are_computed_anew) {
  const int port = start_slow();
  auto running =
      call_later(port, "POST", "/generate",
                 R"({"text":"weighlock","sampling_params":{"max_new_tokens":300,"ignore_eos":true}})", within(20'000));
  ASSERT_TRUE(runs(port, "1"));
  ASSERT_TRUE(call(port, "POST", "/pause_generation", R"({"mode":"retract"})").ok());
  EXPECT_TRUE(load(port, "v2", "2").ok());
  EXPECT_EQ(call(port, "GET", "/flush_cache?timeout=0").status, 200);
  ASSERT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  const Answer ended = running.get();
  EXPECT_EQ(ended.text("/meta_info/num_retractions"), "1");
  EXPECT_EQ(ended.text("/meta_info/finish_reason/type"), "length");
  EXPECT_EQ(ended.text("/meta_info/weight_versions/1/version"), "2");
}

TEST_F(SglangOrder, an_update_outside_a_pause_waits_for_running_requests) {
  const int port = start_slow();
  auto running =
      call_later(port, "POST", "/generate",
                 R"({"text":"w","sampling_params":{"max_new_tokens":300,"ignore_eos":true}})", within(20'000));
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_TRUE(load(port, "v2", "2").ok());
  EXPECT_EQ(state(port, "running"), "0");
  EXPECT_EQ(running.get().text("/meta_info/weight_versions/0/version"), "default");
}

TEST_F(SglangOrder, abort_all_requests_lets_an_update_through_at_once) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate", kSglangEndless);
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_TRUE(load(port, "v2", "2", R"(,"abort_all_requests":true)").ok());
  EXPECT_EQ(running.get().text("/meta_info/finish_reason/type"), "abort");
}

TEST_F(SglangOrder, a_load_that_waits_for_a_request_is_passed_by_all_that_is_sent_after_it) {
  const int port = start_slow();
  auto running =
      call_later(port, "POST", "/generate",
                 R"({"text":"w","sampling_params":{"max_new_tokens":600,"ignore_eos":true}})", within(20'000));
  ASSERT_TRUE(runs(port, "1"));
  auto loading = call_later(port, "POST", "/update_weights_from_disk",
                            R"({"model_path":")" + models("v2") + R"(","weight_version":"2"})", within(20'000));
  EXPECT_EQ(loading.wait_for(Milliseconds{50}), std::future_status::timeout);
  EXPECT_TRUE(call(port, "GET", "/server_info").ok());
  EXPECT_TRUE(call(port, "POST", "/weights_checker").ok());
  EXPECT_EQ(call(port, "POST", "/flush_cache").status, 400);
  EXPECT_TRUE(call(port, "POST", "/update_weight_version", R"({"new_version":"7","abort_all_requests":false})").ok());
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "7");
  EXPECT_EQ(state(port, "directory"), models("v1")) << "no barrier";
  EXPECT_TRUE(loading.get().ok());
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "2") << "seconds later, over the label";
  EXPECT_EQ(running.get().text("/meta_info/finish_reason/type"), "length");
}

TEST_F(SglangOrder, a_killed_scheduler_is_paused_and_continued_and_all_that_waits_is_reset_later) {
  EngineTimings timings = quick_timings();
  timings.sglang_killed = Milliseconds{2000};
  const int port = start(timings);
  call(port, "POST", "/_tiny/freeze");
  ASSERT_TRUE(call(port, "POST", "/pause_generation", "{}").ok());
  auto loading = call_later(port, "POST", "/update_weights_from_disk", R"({"model_path":")" + models("v2") + R"("})");
  auto barrier = call_later(port, "GET", "/server_info");
  EXPECT_EQ(barrier.wait_for(Milliseconds{20}), std::future_status::timeout);
  ASSERT_TRUE(call(port, "POST", "/_tiny/kill_core").ok());
  EXPECT_EQ(call(port, "GET", "/ready").status, 503);
  EXPECT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  EXPECT_EQ(call(port, "GET", "/ready").status, 200) << "says nothing of the scheduler";
  EXPECT_EQ(barrier.wait_for(Milliseconds{0}), std::future_status::timeout);
  EXPECT_EQ(loading.get().ending, Ending::reset);
  EXPECT_EQ(barrier.get().ending, Ending::reset);
  EXPECT_EQ(call(port, "GET", "/ready").ending, Ending::refused);
}

TEST_F(SglangOrder, health_hangs_in_a_pause_and_leaves_ready_at_503_until_it_succeeds) {
  EngineTimings timings = quick_timings();
  timings.health_limit = Milliseconds{400};
  const int port = start(timings);
  EXPECT_EQ(call(port, "GET", "/health").status, 200);
  ASSERT_TRUE(call(port, "POST", "/pause_generation", "{}").ok());
  EXPECT_EQ(call(port, "GET", "/health", "", within(30)).ending, Ending::timeout);
  EXPECT_EQ(call(port, "GET", "/health").status, 503);
  ASSERT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  EXPECT_EQ(call(port, "GET", "/ready").status, 503) << "the trap";
  EXPECT_EQ(call(port, "GET", "/health").status, 200);
  EXPECT_EQ(call(port, "GET", "/ready").status, 200);
}

TEST_F(SglangOrder, server_info_queues_behind_a_load_and_the_http_process_answers_alone) {
  const int port = start();
  call(port, "POST", "/_tiny/freeze");
  ASSERT_TRUE(call(port, "POST", "/pause_generation", "{}").ok()) << "nothing runs: no scheduler needed";
  EXPECT_EQ(call(port, "POST", "/update_weights_from_disk",
                 R"({"model_path":")" + models("v2") + R"(","weight_version":"2"})", within(30))
                .ending,
            Ending::timeout);
  auto info = call_later(port, "GET", "/server_info");
  EXPECT_EQ(call(port, "GET", "/server_info", "", within(30)).ending, Ending::timeout);
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "default");
  EXPECT_EQ(call(port, "GET", "/v1/loads").text("/loads/0/num_running_reqs"), "0") << "a snapshot";
  EXPECT_EQ(call(port, "GET", "/ready").status, 503);
  EXPECT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  call(port, "POST", "/_tiny/thaw");
  EXPECT_TRUE(info.get().ok());
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "2") << "the abandoned load had run before";
}

TEST_F(SglangOrder, update_weight_version_aborts_requests_unless_told_not_to) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate", kSglangEndless);
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_TRUE(call(port, "POST", "/update_weight_version", R"({"new_version":"7","abort_all_requests":false})").ok());
  EXPECT_EQ(state(port, "running"), "1");
  EXPECT_TRUE(call(port, "POST", "/update_weight_version", R"({"new_version":"8"})").ok());
  EXPECT_EQ(running.get().text("/meta_info/finish_reason/type"), "abort");
}

}  // namespace
}  // namespace weighlock::tiny
