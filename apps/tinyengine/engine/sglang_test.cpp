// SGLang's measured behaviour, over real sockets: what it answers, and what a load leaves behind.
#include <ctime>

#include "tinyengine/testing/sglang_fixture.hpp"

namespace weighlock::tiny {
namespace {

using Ending = Answer::Ending;

class Sglang : public SglangTest {};

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
  EXPECT_EQ(call(port, "POST", "/generate", kSglangShort).text("/meta_info/weight_version"), "2");
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

TEST_F(Sglang, without_a_flush_stale_prefixes_are_used) {
  const int port = start();
  const std::string old = text_of(port);
  ASSERT_TRUE(load(port, "v2", "2", R"(,"flush_cache":false)").ok());
  const Answer stale = call(port, "POST", "/generate", kSglangShort);
  EXPECT_NE(stale.text("/meta_info/cached_tokens"), "0");
  EXPECT_NE(stale.text("/meta_info/output_token_logprobs"), "");
  ASSERT_TRUE(call(port, "POST", "/flush_cache").ok());
  const Answer fresh = call(port, "POST", "/generate", kSglangShort);
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
  const Answer lost = load(port, "lost", "2");
  EXPECT_EQ(lost.status, 400);
  EXPECT_TRUE(lost.text("/message")
                  .starts_with("Failed to get weights iterator: model.safetensors.index.json references 1 shard "
                               "file(s) missing from " +
                               models("lost")))
      << lost.body;
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

TEST_F(Sglang, of_a_tensor_in_two_files_the_one_whose_file_sorts_last_is_served) {
  const int port = start();
  EXPECT_TRUE(load(port, "stray", "2").ok());  // v2 in model.safetensors, v3 in old.safetensors
  EXPECT_EQ(text_of(port), clean_text("v3"));
}

TEST_F(Sglang, an_unknown_tensor_is_left_out_and_a_file_without_tensors_moves_only_the_label) {
  const int port = start();
  EXPECT_TRUE(load(port, "extra", "2").ok());
  EXPECT_EQ(text_of(port), clean_text("v2"));
  EXPECT_TRUE(load(port, "empty", "3").ok());
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "3");
  EXPECT_EQ(text_of(port), clean_text("v2"));
}

TEST_F(Sglang, nan_is_null_in_values_and_log_probabilities_and_health_is_200) {
  const int port = start();
  ASSERT_TRUE(load(port, "nan", "2").ok());
  EXPECT_EQ(call(port, "POST", "/get_weights_by_name", R"({"name":"model.norm.weight"})").text("/0"), "null");
  const Answer answer = call(port, "POST", "/generate", kSglangShort);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.text("/text"), "");
  EXPECT_EQ(answer.text("/meta_info/output_token_logprobs/0/0"), "null");
  EXPECT_EQ(call(port, "GET", "/health").status, 200);
}

TEST_F(Sglang, versions_are_strings_and_update_weight_version_moves_both_labels) {
  const int port = start();
  EXPECT_EQ(load(port, "v2", "", R"(,"weight_version":2)").status, 400);
  EXPECT_EQ(call(port, "POST", "/update_weight_version", R"({"new_version":7})").status, 400);
  EXPECT_EQ(call(port, "POST", "/update_weight_version", R"({"new_version":"7","abort_all_requests":false})").body,
            R"({"success":true,"message":"Weight version updated to 7","new_version":"7"})");
  EXPECT_EQ(call(port, "GET", "/model_info").text("/weight_version"), "7");
  EXPECT_EQ(call(port, "POST", "/generate", kSglangShort).text("/meta_info/weight_version"), "7");
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
  const Answer answer = call(port, "POST", "/generate",
                             R"({"input_ids":[50,51,52,53],"sampling_params":{"max_new_tokens":3,"ignore_eos":true},)"
                             R"("return_logprob":true,"logprob_start_len":1,"top_logprobs_num":2})");
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
  const Answer stream = call(port, "POST", "/generate",
                             R"({"text":"a longer prompt that is worth caching","stream":true,)"
                             R"("sampling_params":{"max_new_tokens":12,"ignore_eos":true}})");
  EXPECT_EQ(stream.status, 200);
  ASSERT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
  const std::size_t last = stream.body.rfind("data: {");
  auto event = parse_json(stream.body.substr(last + 6, stream.body.find('\n', last) - last - 6), "event");
  ASSERT_TRUE(event);
  EXPECT_EQ(std::string(*find_string(*event, "text")), text_of(port));
}

TEST_F(Sglang, generation_is_fast_enough_for_the_demo) {
  const int port = start();
  // CPU of this process, the engine is in it: what a crowded machine gives it doesn't count.
  const std::clock_t began = std::clock();
  ASSERT_TRUE(
      call(port, "POST", "/generate", R"({"text":"w","sampling_params":{"max_new_tokens":200,"ignore_eos":true}})")
          .ok());
  const double took = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  RecordProperty("tokens_per_cpu_second", static_cast<int>(200 / took));
  EXPECT_LT(took, 1.0);
}

}  // namespace
}  // namespace weighlock::tiny
