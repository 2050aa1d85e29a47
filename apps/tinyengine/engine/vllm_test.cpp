// vLLM's measured behaviour, over real sockets.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tinyengine/model/checkpoint.hpp"
#include "tinyengine/testing/rig.hpp"

namespace weighlock::tiny {
namespace {

using Ending = Answer::Ending;
constexpr auto kEndless = R"({"model":"policy","prompt":"weighlock","max_tokens":4000,"ignore_eos":true})";
constexpr auto kShort =
    R"({"prompt":"a longer prompt that is worth caching","max_tokens":12,"ignore_eos":true,"logprobs":1})";
constexpr auto kEmptySha = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

class Vllm : public testing::Test {
 protected:
  int start(EngineTimings timings = quick_timings(), std::string key = "", int world_size = 1) {
    EngineSettings settings;
    settings.dialect = DialectKind::vllm;
    settings.model_directory = models("v1");
    settings.served_model_name = "policy";
    settings.api_key = std::move(key);
    settings.world_size = world_size;
    settings.timings = timings;
    return rig.start(settings);
  }
  int start_slow() {
    EngineTimings timings = quick_timings();
    timings.step_least = Milliseconds{4};
    return start(timings);
  }
  std::string reload_body(const std::string& name) {
    return R"({"method":"reload_weights","kwargs":{"weights_path":")" + models(name) +
           R"(","is_checkpoint_format":true}})";
  }
  Answer load(int port, const std::string& name) { return call(port, "POST", "/collective_rpc", reload_body(name)); }
  Answer complete(int port) { return call(port, "POST", "/v1/completions", kShort); }
  std::string text_of(int port) { return complete(port).text("/choices/0/text"); }
  std::string state(int port, const std::string& member) {
    return call(port, "GET", "/_tiny/state").text("/" + member);
  }
  std::string clean_text(const std::string& name) {
    EngineSettings settings;
    settings.dialect = DialectKind::vllm;
    settings.model_directory = models(name);
    settings.timings = quick_timings();
    return text_of(rig.start(settings));
  }
  bool runs(int port, const std::string& count) {
    return comes_true([&] { return state(port, "running") == count; });
  }
  void pause(int port, const std::string& query = "") {
    EXPECT_EQ(call(port, "POST", "/pause" + query).body, R"({"status":"paused"})");
  }
  void resume(int port) { EXPECT_EQ(call(port, "POST", "/resume").body, R"({"status":"resumed"})"); }

  TestModels& models = test_models();
  Rig rig;
};

TEST_F(Vllm, a_good_reload_serves_what_a_fresh_engine_serves) {
  const int port = start();
  EXPECT_EQ(text_of(port), clean_text("v1"));
  pause(port);
  EXPECT_EQ(load(port, "v2s").body, R"({"results":[null]})");
  EXPECT_EQ(call(port, "POST", "/update_weight_version", R"({"new_version":"v2"})").body,
            R"({"success":true,"new_version":"v2"})");
  EXPECT_EQ(call(port, "GET", "/is_paused").body, R"({"is_paused":true})");
  EXPECT_EQ(call(port, "GET", "/is_sleeping").body, R"({"is_sleeping":true})");
  resume(port);
  EXPECT_EQ(call(port, "GET", "/weight_info").body, R"({"weight_version":"v2"})");
  EXPECT_EQ(text_of(port), clean_text("v2"));
  EXPECT_NE(clean_text("v1"), clean_text("v2"));
  EXPECT_EQ(call(port, "GET", "/v1/models").text("/data/0/id"), "policy");
  EXPECT_EQ(call(port, "GET", "/v1/models").text("/data/0/root"), models("v1")) << "stays the start path";
}

TEST_F(Vllm, small_reads_answer_as_measured) {
  const int port = start(quick_timings(), "", 4);
  EXPECT_EQ(call(port, "GET", "/version").body, R"({"version":"0.32.0"})");
  const Answer health = call(port, "GET", "/health");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, "");
  EXPECT_EQ(health.headers.find("Content-Type"), std::string::npos);
  EXPECT_EQ(call(port, "GET", "/get_world_size").body, R"({"world_size":4})");
  EXPECT_EQ(load(port, "v2").body, R"({"results":[null,null,null,null]})");
  EXPECT_NE(call(port, "GET", "/metrics").body.find("\nprocess_start_time_seconds 1."), std::string::npos);
  EXPECT_EQ(call(port, "GET", "/weight_info").body, R"({"weight_version":"default"})");
  EXPECT_EQ(call(port, "GET", "/collective_rpc").body, R"({"detail":"Method Not Allowed"})");
  EXPECT_EQ(call(port, "POST", "/collective_rpc", "{}").text("/error/message"), "Missing 'method' in request body");
  EXPECT_EQ(call(port, "POST", "/collective_rpc", R"({"method":"no_such_method"})").status, 500);
  EXPECT_TRUE(complete(port).ok()) << "an unknown method harms nothing";
  EXPECT_EQ(call(port, "POST", "/pause?mode=nonsense").text("/error/param"), "query.mode");
  EXPECT_EQ(call(port, "POST", "/update_weight_version", R"({"new_version":7})").status, 400);
  EXPECT_GE(call(port, "GET", "/server_info").body.size(), 19'000u);
  EXPECT_EQ(call(port, "POST", "/v1/completions", R"({"model":"fresh","prompt":"a"})").status, 404);
}

TEST_F(Vllm, a_reload_without_a_path_reads_the_last_one_again) {
  const int port = start();
  ASSERT_TRUE(load(port, "v2").ok());
  ASSERT_TRUE(load(port, "v3").ok());
  ASSERT_TRUE(call(port, "POST", "/collective_rpc", R"({"method":"reload_weights"})").ok());
  EXPECT_EQ(state(port, "directory"), models("v3"));
}

TEST_F(Vllm, a_request_during_a_pause_waits_and_gets_the_new_weights) {
  const int port = start();
  pause(port);
  auto waiting = call_later(port, "POST", "/v1/completions", kShort);
  EXPECT_EQ(call(port, "POST", "/v1/completions", kShort, within(50)).ending, Ending::timeout);
  ASSERT_TRUE(load(port, "v2").ok());
  EXPECT_EQ(waiting.wait_for(Milliseconds{20}), std::future_status::timeout);
  resume(port);
  EXPECT_EQ(waiting.get().text("/choices/0/text"), clean_text("v2"));
  EXPECT_EQ(state(port, "waiting"), "0") << "a client that gave up leaves nothing behind";
}

TEST_F(Vllm, abort_ends_running_requests_and_wait_drains_them) {
  const int port = start_slow();
  auto aborted = call_later(port, "POST", "/v1/completions", kEndless);
  ASSERT_TRUE(runs(port, "1"));
  pause(port, "?mode=abort&clear_cache=true");
  EXPECT_EQ(aborted.get().text("/choices/0/finish_reason"), "abort");
  resume(port);
  auto drained = call_later(port, "POST", "/v1/completions", R"({"prompt":"w","max_tokens":300,"ignore_eos":true})",
                            within(20'000));
  ASSERT_TRUE(runs(port, "1"));
  auto pausing = call_later(port, "POST", "/pause?mode=wait", "", within(20'000));
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/is_paused").body == R"({"is_paused":true})"; })) << "at once";
  EXPECT_TRUE(pausing.get().ok());
  EXPECT_EQ(state(port, "running"), "0");
  EXPECT_EQ(drained.get().text("/choices/0/finish_reason"), "length");
}

TEST_F(Vllm, keep_lets_a_request_go_on_after_the_resume) {
  const int port = start_slow();
  auto kept = call_later(port, "POST", "/v1/completions", R"({"prompt":"w","max_tokens":300,"ignore_eos":true})",
                         within(20'000));
  ASSERT_TRUE(runs(port, "1"));
  pause(port, "?mode=keep&clear_cache=false");
  EXPECT_EQ(call(port, "POST", "/reset_prefix_cache").body, R"({"success":false})") << "a request holds its cache";
  ASSERT_TRUE(load(port, "v2").ok());
  EXPECT_EQ(kept.wait_for(Milliseconds{20}), std::future_status::timeout);
  EXPECT_EQ(call(port, "POST", "/reset_prefix_cache?reset_running_requests=true").body, R"({"success":true})");
  resume(port);
  const Answer ended = kept.get();
  EXPECT_EQ(ended.text("/choices/0/finish_reason"), "length");
  EXPECT_EQ(ended.text("/usage/completion_tokens"), "300");
}

TEST_F(Vllm, is_paused_doesnt_wait_for_the_drain_of_a_pause_in_mode_wait) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/v1/completions", R"({"prompt":"w","max_tokens":500,"ignore_eos":true})",
                            within(20'000));
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_EQ(call(port, "POST", "/pause?mode=wait", "", within(50)).ending, Ending::timeout);
  EXPECT_EQ(call(port, "GET", "/is_paused").body, R"({"is_paused":true})");
  EXPECT_EQ(state(port, "running"), "1");
  EXPECT_EQ(running.get().text("/choices/0/finish_reason"), "length");
  EXPECT_EQ(call(port, "GET", "/is_paused").body, R"({"is_paused":true})") << "the pause stays";
}

TEST_F(Vllm, a_flush_in_mode_keep_is_done_by_the_pause_or_refused_or_makes_requests_start_anew) {
  const int port = start_slow();
  auto running = call_later(port, "POST", "/v1/completions", R"({"prompt":"w","max_tokens":300,"ignore_eos":true})",
                            within(20'000));
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_EQ(call(port, "POST", "/reset_prefix_cache").body, R"({"success":false})") << "running";
  pause(port, "?mode=keep&clear_cache=false");
  EXPECT_EQ(call(port, "POST", "/reset_prefix_cache").body, R"({"success":false})");
  EXPECT_EQ(call(port, "POST", "/reset_prefix_cache?reset_running_requests=true").body, R"({"success":true})");
  resume(port);
  ASSERT_TRUE(runs(port, "1"));
  pause(port, "?mode=keep&clear_cache=true");
  EXPECT_EQ(call(port, "POST", "/reset_prefix_cache").body, R"({"success":true})") << "the pause has cleared it";
  resume(port);
  EXPECT_EQ(running.get().text("/choices/0/finish_reason"), "length");
}

TEST_F(Vllm, an_abandoned_pause_ends_no_request_that_is_sent_after_it) {
  const int port = start();
  call(port, "POST", "/_tiny/freeze");
  EXPECT_EQ(call(port, "POST", "/pause", "", within(30)).ending, Ending::timeout);
  auto later = call_later(port, "POST", "/v1/completions", kShort);
  ASSERT_TRUE(comes_true([&] { return state(port, "waiting") == "1"; }));
  call(port, "POST", "/_tiny/thaw");
  EXPECT_EQ(call(port, "GET", "/is_paused").body, R"({"is_paused":true})");
  resume(port);
  EXPECT_EQ(later.get().text("/choices/0/finish_reason"), "length");
}

TEST_F(Vllm, a_killed_core_ends_what_waits_with_500_and_is_refused_soon) {
  const int port = start();
  call(port, "POST", "/_tiny/freeze");
  auto barrier = call_later(port, "GET", "/is_paused");
  EXPECT_EQ(barrier.wait_for(Milliseconds{20}), std::future_status::timeout);
  ASSERT_TRUE(call(port, "POST", "/_tiny/kill_core").ok());
  EXPECT_EQ(barrier.get().status, 500);
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/health").ending == Ending::refused; }));
}

TEST_F(Vllm, without_a_cache_reset_stale_prefixes_are_used) {
  const int port = start();
  text_of(port);
  pause(port, "?clear_cache=false");
  ASSERT_TRUE(load(port, "v2").ok());
  resume(port);
  const Answer stale = complete(port);
  EXPECT_EQ(stale.text("/usage/prompt_tokens_details/cached_tokens"), "32") << "two blocks of 16";
  EXPECT_EQ(call(port, "POST", "/reset_prefix_cache").body, R"({"success":true})");
  const Answer fresh = complete(port);
  EXPECT_EQ(fresh.text("/usage/prompt_tokens_details/cached_tokens"), "0");
  EXPECT_EQ(fresh.text("/choices/0/text"), clean_text("v2"));
  EXPECT_NE(fresh.text("/choices/0/logprobs/token_logprobs"), stale.text("/choices/0/logprobs/token_logprobs"));
}

TEST_F(Vllm, a_failed_reload_looks_harmless_until_the_first_request_kills_the_engine) {
  for (const std::string bad : {"nowhere", "nothing", "truncated", "lost", "extra", "stray", "shape"}) {
    const int port = start();
    pause(port);
    const Answer failed = load(port, bad);
    EXPECT_EQ(failed.status, 500) << bad;
    EXPECT_TRUE(failed.text("/error/message").starts_with("Call to collective_rpc method failed: ")) << failed.body;
    EXPECT_EQ(call(port, "GET", "/health").status, 200) << bad;
    EXPECT_EQ(call(port, "GET", "/weight_info").status, 200) << bad;
    resume(port);
    EXPECT_EQ(call(port, "GET", "/health").status, 200) << bad;
    const Answer killed = complete(port);
    EXPECT_EQ(killed.status, 500) << bad;
    EXPECT_EQ(killed.text("/error/message"),
              "EngineCore encountered an issue. See stack trace (above) for the root cause.");
    EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/health").ending == Ending::refused; })) << bad;
  }
}

TEST_F(Vllm, a_dead_core_says_503_for_a_moment_and_its_pause_fails_in_words) {
  EngineTimings timings = quick_timings();
  timings.vllm_death = Milliseconds{10'000};
  const int port = start(timings);
  EXPECT_EQ(load(port, "nothing").status, 500);
  EXPECT_EQ(complete(port).status, 500);
  EXPECT_EQ(call(port, "GET", "/health").status, 503);
  EXPECT_EQ(call(port, "POST", "/pause").text("/error"),
            "Failed to pause generation: EngineCore encountered an issue. See stack trace (above) for the root cause.");
}

TEST_F(Vllm, a_good_directory_heals_what_it_can) {
  for (const std::string bad : {"nowhere", "nothing", "truncated", "lost", "stray", "half"}) {
    const int port = start();
    pause(port);
    load(port, bad);
    EXPECT_TRUE(load(port, "v2").ok()) << bad;
    resume(port);
    EXPECT_EQ(text_of(port), clean_text("v2")) << bad;
    EXPECT_EQ(state(port, "mixed"), "false") << bad;
  }
}

TEST_F(Vllm, an_unknown_tensor_needs_the_empty_checkpoint_first) {
  const int port = start();
  pause(port);
  EXPECT_NE(load(port, "extra")
                .text("/error/message")
                .find("There is no module or parameter named 'layers.0.mlp.surprise' in LlamaModel"),
            std::string::npos);
  EXPECT_EQ(call(port, "POST", "/weight_checker", R"({"action":"checksum"})").text("/error/message"),
            "Call to compute_weight_checksums method failed: Cannot copy out of meta tensor; no data!");
  EXPECT_NE(load(port, "v2").text("/error/message").find("'Parameter' object has no attribute 'weight_loader'"),
            std::string::npos);
  EXPECT_TRUE(load(port, "empty").ok());
  EXPECT_TRUE(load(port, "v2").ok());
  resume(port);
  EXPECT_EQ(text_of(port), clean_text("v2"));
}

TEST_F(Vllm, the_empty_checkpoint_keeps_the_old_weights_and_harms_nothing) {
  const int port = start();
  const std::string before = state(port, "sha256");
  EXPECT_TRUE(load(port, "empty").ok());
  EXPECT_EQ(load(port, "nowhere").status, 500);
  EXPECT_TRUE(load(port, "empty").ok());
  EXPECT_EQ(state(port, "sha256"), before);
  EXPECT_EQ(text_of(port), clean_text("v1"));
}

TEST_F(Vllm, a_wrong_shape_never_heals_until_a_restart) {
  const int port = start();
  pause(port);
  EXPECT_NE(load(port, "shape").text("/error/message").find("start (0) + length (128) exceeds dimension size (64)."),
            std::string::npos);
  EXPECT_EQ(load(port, "empty").status, 500);
  EXPECT_EQ(load(port, "v2").status, 500);
  EXPECT_EQ(call(port, "POST", "/weight_checker", R"({"action":"checksum"})").status, 200) << "200 doesn't prove clean";
  const std::string start_time = state(port, "start_time");
  call(port, "POST", "/_tiny/restart");
  ASSERT_TRUE(comes_true([&] {
    const Answer now = call(port, "GET", "/_tiny/state");
    return now.ok() && now.text("/lives") == "2";
  }));
  EXPECT_NE(state(port, "start_time"), start_time);
  EXPECT_TRUE(load(port, "v2").ok());
  EXPECT_EQ(text_of(port), clean_text("v2"));
}

TEST_F(Vllm, half_a_checkpoint_answers_200_and_serves_a_mix) {
  const int port = start();
  EXPECT_TRUE(load(port, "half").ok());
  EXPECT_EQ(state(port, "mixed"), "true");
  EXPECT_NE(text_of(port), clean_text("v1"));
  EXPECT_NE(text_of(port), clean_text("v2"));
}

TEST_F(Vllm, checksums_are_of_file_bytes_where_the_layout_is_not_packed) {
  const int port = start();
  const auto sums = [&] {
    return call(port, "POST", "/weight_checker", R"({"action":"checksum"})").json.at("checksums").as_object();
  };
  const auto read = read_checkpoint(models("v1"));
  std::string embedding;
  for (const Tensor& tensor : read.tensors) {
    if (tensor.name == "model.embed_tokens.weight") embedding = sha256_hex(tensor.bytes);
  }
  auto first = sums();
  EXPECT_EQ(std::string(first["dp0:pp0:pcp0:tp0:model.embed_tokens.weight"].as_string()), embedding);
  EXPECT_EQ(std::string(first["dp0:pp0:pcp0:tp0:model.layers.0.self_attn.qkv_proj.weight"].as_string()), kEmptySha);
  const std::string baseline = R"({"action":"compare","baseline":)" + json::serialize(first) + "}";
  EXPECT_EQ(call(port, "POST", "/weight_checker", baseline).text("/match"), "true");
  ASSERT_TRUE(load(port, "v2").ok());
  EXPECT_EQ(call(port, "POST", "/weight_checker", baseline).text("/match"), "false");
  EXPECT_EQ(load(port, "nothing").status, 500);
  EXPECT_EQ(call(port, "POST", "/weight_checker", R"({"action":"checksum"})").text("/error/message"),
            "Call to compute_weight_checksums method failed: Cannot copy out of meta tensor; no data!");
}

TEST_F(Vllm, nan_is_an_empty_text_and_with_logprobs_a_400) {
  const int port = start();
  ASSERT_TRUE(load(port, "nan").ok());
  EXPECT_EQ(call(port, "POST", "/v1/completions", R"({"prompt":"abc","max_tokens":3})").text("/choices/0/text"), "");
  const Answer judged = call(port, "POST", "/v1/completions", R"({"prompt":"abc","max_tokens":3,"logprobs":1})");
  EXPECT_EQ(judged.status, 400);
  EXPECT_EQ(judged.text("/error/message"), "Out of range float values are not JSON compliant");
}

TEST_F(Vllm, abandoned_control_calls_still_run_in_their_order) {
  const int port = start();
  call(port, "POST", "/_tiny/freeze");
  EXPECT_EQ(call(port, "POST", "/collective_rpc", reload_body("v2"), within(30)).ending, Ending::timeout);
  EXPECT_EQ(call(port, "POST", "/resume", "", within(30)).ending, Ending::timeout);
  EXPECT_EQ(call(port, "POST", "/pause", "", within(30)).ending, Ending::timeout);
  EXPECT_EQ(call(port, "GET", "/weight_info", "", within(30)).ending, Ending::timeout);
  EXPECT_EQ(call(port, "GET", "/version").status, 200) << "no barrier";
  EXPECT_EQ(call(port, "GET", "/health").status, 200) << "proves nothing";
  auto barrier = call_later(port, "GET", "/is_paused");
  EXPECT_EQ(barrier.wait_for(Milliseconds{20}), std::future_status::timeout);
  call(port, "POST", "/_tiny/thaw");
  EXPECT_EQ(barrier.get().body, R"({"is_paused":true})") << "the last one sent decides";
  EXPECT_EQ(state(port, "directory"), models("v2"));
}

TEST_F(Vllm, a_timeout_in_the_body_that_expires_ruins_the_engine) {
  EngineTimings timings = quick_timings();
  timings.load = Milliseconds{100};
  const int port = start(timings);
  const Answer expired =
      call(port, "POST", "/collective_rpc",
           R"({"method":"reload_weights","timeout":0.02,"kwargs":{"weights_path":")" + models("v2") + "\"}}");
  EXPECT_EQ(expired.status, 500);
  EXPECT_NE(expired.text("/error/message").find("RPC call to reload_weights timed out."), std::string::npos);
  EXPECT_EQ(call(port, "POST", "/weight_checker", R"({"action":"checksum"})").status, 500);
  EXPECT_EQ(complete(port).status, 500);
}

TEST_F(Vllm, a_key_guards_only_v1) {
  const int port = start(quick_timings(), "sekret");
  const Answer refused = call(port, "GET", "/v1/models");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.body, R"({"error":"Unauthorized"})");
  EXPECT_EQ(call(port, "GET", "/v1/models", "", bearer("Bearer sekret")).status, 200);
  EXPECT_EQ(call(port, "POST", "/pause").status, 200) << "open";
}

TEST_F(Vllm, prompts_may_be_token_ids_and_prompt_logprobs_come_by_id) {
  const int port = start();
  const Answer answer =
      call(port, "POST", "/v1/completions",
           R"({"prompt":[50,51,52],"max_tokens":1,"ignore_eos":true,"prompt_logprobs":0,"logprobs":1})");
  EXPECT_EQ(answer.text("/choices/0/prompt_logprobs/0"), "null");
  EXPECT_NE(answer.text("/choices/0/prompt_logprobs/2/52/logprob"), "");
  EXPECT_EQ(call(port, "POST", "/v1/completions", R"({"prompt":[256]})").status, 400);
}

}  // namespace
}  // namespace weighlock::tiny
