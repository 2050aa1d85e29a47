// SGLang's measured behaviour, over real sockets.
#include <gtest/gtest.h>

#include "tinyengine/testing/rig.hpp"

namespace weighlock::tiny {
namespace {

using Ending = Answer::Ending;
constexpr auto kEndless = R"({"text":"weighlock","sampling_params":{"max_new_tokens":4000,"ignore_eos":true}})";
constexpr auto kShort =
    R"({"text":"a longer prompt that is worth caching","sampling_params":{"max_new_tokens":12,"ignore_eos":true},"return_logprob":true})";

class Sglang : public testing::Test {
 protected:
  int start(EngineTimings timings = quick_timings(), std::string key = "", std::string admin = "") {
    EngineSettings settings;
    settings.dialect = DialectKind::sglang;
    settings.model_directory = models("v1");
    settings.api_key = std::move(key);
    settings.admin_api_key = std::move(admin);
    settings.timings = timings;
    return rig.start(settings);
  }
  int start_slow() {  // a request of thousands of tokens stays running
    EngineTimings timings = quick_timings();
    timings.step_least = Milliseconds{4};
    return start(timings);
  }
  Answer load(int port, const std::string& name, const std::string& version = "", const std::string& more = "") {
    std::string body = R"({"model_path":")" + models(name) + "\"";
    if (!version.empty()) body += R"(,"weight_version":")" + version + "\"";
    return call(port, "POST", "/update_weights_from_disk", body + more + "}");
  }
  std::string state(int port, const std::string& member) {
    return call(port, "GET", "/_tiny/state").text("/" + member);
  }
  std::string text_of(int port) { return call(port, "POST", "/generate", kShort).text("/text"); }
  // What a fresh engine on that directory says.
  std::string clean_text(const std::string& name) {
    EngineSettings settings;
    settings.model_directory = models(name);
    settings.timings = quick_timings();
    return text_of(rig.start(settings));
  }
  bool runs(int port, const std::string& count) {
    return comes_true([&] { return state(port, "running") == count; });
  }

  TestModels& models = test_models();
  Rig rig;
};

TEST_F(Sglang, a_good_update_serves_what_a_fresh_engine_serves) {
  const int port = start();
  EXPECT_EQ(text_of(port), clean_text("v1"));
  const Answer loaded = load(port, "v2s", "2");
  EXPECT_EQ(
      loaded.body,
      R"({"success":true,"message":"Succeeded to update model weights. Weight version updated to 2.","num_paused_requests":0})");
  EXPECT_EQ(text_of(port), clean_text("v2"));
  EXPECT_NE(text_of(port), clean_text("v1"));
  const Answer info = call(port, "GET", "/model_info");
  EXPECT_EQ(info.text("/weight_version"), "2");
  EXPECT_EQ(info.text("/model_path"), models("v2s"));
  EXPECT_EQ(info.text("/tokenizer_path"), models("v1"));
  EXPECT_EQ(call(port, "GET", "/v1/models").text("/data/0/id"), models("v2s")) << "the served name becomes the path";
  EXPECT_EQ(call(port, "GET", "/server_info").text("/model_path"), models("v1")) << "the start arguments stay";
  EXPECT_EQ(call(port, "POST", "/generate", kShort).text("/meta_info/weight_version"), "2");
  EXPECT_EQ(state(port, "mixed"), "false");
}

TEST_F(Sglang, the_label_stays_old_when_none_is_sent) {
  const int port = start();
  EXPECT_EQ(load(port, "v2").text("/message"), "Succeeded to update model weights.");
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "default");
  EXPECT_EQ(call(port, "GET", "/model_info").text("/model_path"), models("v2"));
}

TEST_F(Sglang, pause_and_continue_want_a_body_and_a_known_mode) {
  const int port = start();
  for (const char* route : {"/pause_generation", "/continue_generation"}) {
    const Answer bare = call(port, "POST", route);
    EXPECT_EQ(bare.status, 400);
    EXPECT_EQ(bare.text("/object"), "error");
    EXPECT_EQ(bare.text("/type"), "Bad Request");
  }
  EXPECT_EQ(call(port, "POST", "/pause_generation", R"({"mode":"nap"})").status, 400);
  EXPECT_EQ(call(port, "POST", "/pause_generation", "{}").body,
            R"({"message":"Generation paused successfully.","status":"ok"})");
  EXPECT_EQ(call(port, "POST", "/pause_generation", "{}").status, 200) << "again is harmless";
  EXPECT_EQ(call(port, "GET", "/ready").status, 503);
  EXPECT_EQ(call(port, "POST", "/continue_generation", "{}").body,
            R"({"message":"Generation continued successfully.","status":"ok"})");
  EXPECT_EQ(call(port, "GET", "/ready").status, 200);
  EXPECT_EQ(call(port, "GET", "/pause_generation").status, 405);
  EXPECT_EQ(call(port, "GET", "/get_weight_version").body, R"({"detail":"Not Found"})");
}

TEST_F(Sglang, an_abort_pause_ends_running_requests_with_what_they_have) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate", kEndless);
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_TRUE(call(port, "POST", "/pause_generation", "{}").ok());
  const Answer ended = running.get();
  EXPECT_EQ(ended.text("/meta_info/finish_reason/type"), "abort");
  EXPECT_EQ(ended.text("/meta_info/finish_reason/message"), "Aborted");
}

TEST_F(Sglang, a_request_during_a_pause_waits_and_gets_the_new_weights) {
  const int port = start();
  ASSERT_TRUE(call(port, "POST", "/pause_generation", "{}").ok());
  auto waiting = call_later(port, "POST", "/generate", kShort);
  EXPECT_EQ(call(port, "POST", "/generate", kShort, within(50)).ending, Ending::timeout);
  ASSERT_TRUE(load(port, "v2", "2").ok());
  ASSERT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  EXPECT_EQ(waiting.get().text("/text"), clean_text("v2"));
  EXPECT_TRUE(runs(port, "0")) << "the one whose client had gone isn't served";
}

TEST_F(Sglang, in_place_with_a_running_request_and_a_flush_answers_400_with_new_weights) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate", kEndless);
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

TEST_F(Sglang, retracted_requests_let_the_flush_succeed_and_are_computed_anew) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate",
                            R"({"text":"weighlock","sampling_params":{"max_new_tokens":200,"ignore_eos":true}})");
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

TEST_F(Sglang, an_update_outside_a_pause_waits_for_running_requests) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate",
                            R"({"text":"w","sampling_params":{"max_new_tokens":150,"ignore_eos":true}})");
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_TRUE(load(port, "v2", "2").ok());
  EXPECT_EQ(running.wait_for(Milliseconds{1000}), std::future_status::ready);
  EXPECT_EQ(running.get().text("/meta_info/weight_versions/0/version"), "default");
}

TEST_F(Sglang, abort_all_requests_lets_an_update_through_at_once) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate", kEndless);
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_TRUE(load(port, "v2", "2", R"(,"abort_all_requests":true)").ok());
  EXPECT_EQ(running.get().text("/meta_info/finish_reason/type"), "abort");
}

TEST_F(Sglang, without_a_flush_stale_prefixes_are_used) {
  const int port = start();
  const std::string old = text_of(port);
  ASSERT_TRUE(load(port, "v2", "2", R"(,"flush_cache":false)").ok());
  const Answer stale = call(port, "POST", "/generate", kShort);
  EXPECT_NE(stale.text("/meta_info/cached_tokens"), "0");
  EXPECT_NE(stale.text("/meta_info/output_token_logprobs"), "");
  ASSERT_TRUE(call(port, "POST", "/flush_cache").ok());
  const Answer fresh = call(port, "POST", "/generate", kShort);
  EXPECT_EQ(fresh.text("/meta_info/cached_tokens"), "0");
  EXPECT_EQ(fresh.text("/text"), clean_text("v2"));
  EXPECT_NE(fresh.text("/meta_info/output_token_logprobs"), stale.text("/meta_info/output_token_logprobs"));
}

TEST_F(Sglang, a_missing_or_empty_directory_is_400_and_changes_nothing) {
  const int port = start();
  const std::string before = state(port, "sha256");
  const Answer missing = load(port, "nowhere", "2");
  EXPECT_EQ(missing.status, 400);
  EXPECT_TRUE(
      missing.text("/message").starts_with("Failed to get weights iterator: Repo id must use alphanumeric chars"));
  const Answer nothing = load(port, "nothing", "2");
  EXPECT_EQ(nothing.status, 400);
  EXPECT_EQ(nothing.text("/success"), "false");
  EXPECT_TRUE(nothing.text("/message").starts_with("Failed to get weights iterator: Cannot find any model weights"));
  EXPECT_EQ(load(port, "v2", "2", R"(,"load_format":"dummy")").status, 400);
  EXPECT_EQ(state(port, "sha256"), before);
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "default");
}

TEST_F(Sglang, a_truncated_file_closes_the_connection_and_kills_the_engine) {
  const int port = start();
  EXPECT_EQ(load(port, "truncated", "2").ending, Ending::reset);
  EXPECT_EQ(call(port, "GET", "/model_info").ending, Ending::refused);
}

TEST_F(Sglang, an_unknown_load_format_kills_the_engine) {
  const int port = start();
  EXPECT_EQ(load(port, "v2", "2", R"(,"load_format":"zip")").ending, Ending::reset);
  EXPECT_EQ(call(port, "GET", "/ready").ending, Ending::refused);
}

TEST_F(Sglang, half_a_checkpoint_and_a_wrong_shape_answer_200_and_serve_a_mix) {
  for (const std::string bad : {"half", "shape"}) {
    const int port = start();
    EXPECT_TRUE(load(port, bad, "2").ok());
    EXPECT_EQ(state(port, "mixed"), "true") << bad;
    EXPECT_NE(text_of(port), clean_text("v2")) << bad;
    EXPECT_TRUE(load(port, "v2", "2").ok());
    EXPECT_EQ(state(port, "mixed"), "false") << "a good update heals " << bad;
    EXPECT_EQ(text_of(port), clean_text("v2"));
  }
}

TEST_F(Sglang, health_hangs_in_a_pause_and_leaves_ready_at_503_until_it_succeeds) {
  EngineTimings timings = quick_timings();
  timings.health_limit = Milliseconds{60};
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

TEST_F(Sglang, server_info_queues_behind_a_load_and_the_http_process_answers_alone) {
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
  EXPECT_EQ(call(port, "GET", "/ready").status, 503);
  EXPECT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  call(port, "POST", "/_tiny/thaw");
  EXPECT_TRUE(info.get().ok());
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "2") << "the abandoned load had run before";
}

TEST_F(Sglang, versions_are_strings_and_update_weight_version_moves_both_labels) {
  const int port = start();
  EXPECT_EQ(load(port, "v2", "", R"(,"weight_version":2)").status, 400);
  EXPECT_EQ(call(port, "POST", "/update_weight_version", R"({"new_version":7})").status, 400);
  EXPECT_EQ(call(port, "POST", "/update_weight_version", R"({"new_version":"7","abort_all_requests":false})").body,
            R"({"success":true,"message":"Weight version updated to 7","new_version":"7"})");
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "7");
  EXPECT_EQ(call(port, "POST", "/generate", kShort).text("/meta_info/weight_version"), "7");
}

TEST_F(Sglang, update_weight_version_aborts_requests_unless_told_not_to) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/generate", kEndless);
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_TRUE(call(port, "POST", "/update_weight_version", R"({"new_version":"7","abort_all_requests":false})").ok());
  EXPECT_EQ(state(port, "running"), "1");
  EXPECT_TRUE(call(port, "POST", "/update_weight_version", R"({"new_version":"8"})").ok());
  EXPECT_EQ(running.get().text("/meta_info/finish_reason/type"), "abort");
}

TEST_F(Sglang, weights_are_shown_by_name_row_by_row) {
  const int port = start();
  const Answer norm = call(port, "POST", "/get_weights_by_name", R"({"name":"model.norm.weight","truncate_size":3})");
  ASSERT_TRUE(norm.json.is_array());
  EXPECT_EQ(norm.json.as_array().size(), 3u);
  const Answer rows = call(port, "GET", "/get_weights_by_name",
                           R"({"name":"model.layers.0.self_attn.q_proj.weight","truncate_size":2})");
  ASSERT_TRUE(rows.json.is_array());
  EXPECT_EQ(rows.json.as_array().size(), 2u);
  EXPECT_EQ(rows.json.as_array()[0].as_array().size(), 64u);
  const Answer unknown = call(port, "POST", "/get_weights_by_name", R"({"name":"x"})");
  EXPECT_EQ(unknown.status, 400);
  EXPECT_EQ(unknown.body, R"({"error":{"message":"Get parameter by name failed"}})");
}

TEST_F(Sglang, checksums_agree_between_replicas_and_differ_between_versions) {
  const int one = start(), other = start();
  const auto sum = [&](int port) { return call(port, "POST", "/weights_checker").text("/per_engine_checksum"); };
  EXPECT_EQ(sum(one).size(), 64u);
  EXPECT_EQ(sum(one), sum(other));
  ASSERT_TRUE(load(other, "v2", "2").ok());
  EXPECT_NE(sum(one), sum(other));
  EXPECT_EQ(call(one, "POST", "/weights_checker", R"({"action":"zzz"})").body,
            R"({"success":false,"message":"Unsupported action='zzz'"})");
}

TEST_F(Sglang, with_two_keys_control_routes_take_only_the_admin_key) {
  const int port = start(quick_timings(), "nk", "ak");
  const CallOptions normal = bearer("Bearer nk"), admin = bearer("bearer ak");
  const Answer refused = call(port, "POST", "/pause_generation", "{}", normal);
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.body, R"({"error":"Unauthorized"})");
  EXPECT_EQ(call(port, "POST", "/pause_generation", "{}", admin).status, 200);
  EXPECT_EQ(call(port, "GET", "/model_info", "", admin).status, 401);
  EXPECT_EQ(call(port, "GET", "/model_info", "", normal).status, 200);
  EXPECT_EQ(call(port, "GET", "/ready").status, 503) << "open, and paused";
  const int single = start(quick_timings(), "nk");
  EXPECT_EQ(call(single, "POST", "/pause_generation", "{}", normal).status, 200);
  EXPECT_EQ(call(single, "POST", "/pause_generation", "{}").status, 401);
}

TEST_F(Sglang, logprobs_come_with_ids_and_prompt_logprobs_from_where_asked) {
  const int port = start();
  const Answer answer = call(
      port, "POST", "/generate",
      R"({"input_ids":[50,51,52,53],"sampling_params":{"max_new_tokens":3,"ignore_eos":true},"return_logprob":true,"logprob_start_len":1,"top_logprobs_num":2})");
  const auto& output = answer.json.at_pointer("/meta_info/output_token_logprobs").as_array();
  ASSERT_EQ(output.size(), 3u);
  EXPECT_LT(output[0].as_array()[0].as_double(), 0.0);
  EXPECT_EQ(answer.text("/output_ids/0"), answer.text("/meta_info/output_token_logprobs/0/1"));
  EXPECT_EQ(answer.text("/meta_info/output_top_logprobs/0/0/1"), answer.text("/output_ids/0"))
      << "greedy takes the best";
  const auto& input = answer.json.at_pointer("/meta_info/input_token_logprobs").as_array();
  ASSERT_EQ(input.size(), 3u);
  EXPECT_TRUE(input[0].as_array()[0].is_null());
  EXPECT_EQ(answer.text("/meta_info/input_token_logprobs/2/1"), "53");
}

TEST_F(Sglang, a_stream_ends_with_done_and_says_what_the_whole_answer_says) {
  const int port = start();
  const Answer stream = call(
      port, "POST", "/generate",
      R"({"text":"a longer prompt that is worth caching","stream":true,"sampling_params":{"max_new_tokens":12,"ignore_eos":true}})");
  EXPECT_EQ(stream.status, 200);
  ASSERT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
  const std::size_t last = stream.body.rfind("data: {");
  auto event = parse_json(stream.body.substr(last + 6, stream.body.find('\n', last) - last - 6), "event");
  ASSERT_TRUE(event);
  EXPECT_EQ(std::string(*find_string(*event, "text")), text_of(port));
}

TEST_F(Sglang, generation_is_fast_enough_for_the_demo) {
  const int port = start();
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(
      call(port, "POST", "/generate", R"({"text":"w","sampling_params":{"max_new_tokens":200,"ignore_eos":true}})")
          .ok());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  RecordProperty("tokens_per_second", static_cast<int>(200 / took.count()));
  EXPECT_LT(took.count(), 1.0);
}

}  // namespace
}  // namespace weighlock::tiny
