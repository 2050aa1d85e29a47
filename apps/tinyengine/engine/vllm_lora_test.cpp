// vLLM's LoRA as it was measured, over real sockets.
#include <gtest/gtest.h>

#include <filesystem>

#include "tinyengine/testing/rig.hpp"

namespace weighlock::tiny {
namespace {

using Ending = Answer::Ending;

class VllmLora : public testing::Test {
 protected:
  int start(std::size_t cached_max = 0, std::size_t rank_max = 16, Milliseconds step_least = Milliseconds{0}) {
    EngineSettings settings;
    settings.dialect = DialectKind::vllm;
    settings.model_directory = models("v1");
    settings.served_model_name = "policy";
    settings.timings = quick_timings();
    settings.timings.step_least = step_least;
    settings.adapters.rank_max = rank_max;
    settings.adapters.cached_max = cached_max;
    return rig.start(settings);
  }
  Answer load_lora(int port, const std::string& name, const std::string& directory, const std::string& more = "") {
    return call(port, "POST", "/v1/load_lora_adapter",
                R"({"lora_name":")" + name + R"(","lora_path":")" + directory + "\"" + more + "}");
  }
  Answer unload_lora(int port, const std::string& name) {
    return call(port, "POST", "/v1/unload_lora_adapter", R"({"lora_name":")" + name + R"("})");
  }
  Answer complete(int port, const std::string& model, int tokens = 12) {
    return call(port, "POST", "/v1/completions",
                R"({"prompt":"weigh","ignore_eos":true,"logprobs":1,"max_tokens":)" + std::to_string(tokens) +
                    R"(,"model":")" + model + R"("})");
  }
  std::string logprobs(int port, const std::string& model) {
    const Answer answer = complete(port, model);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.text("/choices/0/logprobs/token_logprobs");
  }
  std::string listed(int port) {
    std::string names;
    const Answer answer = call(port, "GET", "/v1/models");
    for (const json::value& entry : answer.json.at("data").as_array()) {
      if (!entry.at("parent").is_null()) names += (names.empty() ? "" : " ") + std::string(entry.at("id").as_string());
    }
    return names;
  }

  TestModels& models = test_models();
  Rig rig;
};

TEST_F(VllmLora, adapter_is_a_model_of_its_name_and_the_base_stays) {
  const int port = start();
  const std::string base = logprobs(port, "policy");
  const Answer loaded = load_lora(port, "p-v1", models("lora1"));
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'p-v1' added successfully.");
  EXPECT_EQ(loaded.headers.find("ontent-type"), std::string::npos) << "no content type";
  ASSERT_TRUE(load_lora(port, "p-v2", models("lora2")).ok());
  ASSERT_TRUE(load_lora(port, "q-v1", models("lora1")).ok());
  EXPECT_NE(logprobs(port, "p-v1"), base);
  EXPECT_NE(logprobs(port, "p-v2"), logprobs(port, "p-v1"));
  EXPECT_EQ(logprobs(port, "q-v1"), logprobs(port, "p-v1"));
  EXPECT_EQ(logprobs(port, "policy"), base);
  EXPECT_EQ(listed(port), "p-v1 p-v2 q-v1");
  EXPECT_EQ(call(port, "GET", "/v1/models").text("/data/1/root"), models("lora1"));
}

TEST_F(VllmLora, what_it_refuses_has_the_status_that_was_measured_and_leaves_the_name_free) {
  const int port = start();
  struct Refused {
    std::string directory;
    int status;
    std::string words;
  };
  const std::vector<Refused> all = {
      {"nowhere", 404, "Loading lora p-v1 failed: No adapter found for " + models("nowhere")},
      {"nothing", 404, "Loading lora p-v1 failed: No adapter found for "},
      {"lora_noweights", 500, "Call to add_lora method failed: <path> doesn't contain tensors"},
      {"lora_cut", 500, "Call to add_lora method failed: Error while deserializing header"},
      {"lora64", 500, "Call to add_lora method failed: LoRA rank 64 is greater than max_lora_rank 16."},
      {"lora_dora", 500, "Call to add_lora method failed: vLLM does not yet support DoRA."},
      {"lora_saved", 500, "Call to add_lora method failed: vLLM only supports modules_to_save being either None"}};
  for (const Refused& refused : all) {
    const Answer answer = load_lora(port, "p-v1", models(refused.directory));
    EXPECT_EQ(answer.status, refused.status) << refused.directory;
    EXPECT_TRUE(answer.text("/error/message").starts_with(refused.words)) << answer.body;
  }
  EXPECT_EQ(listed(port), "");
  EXPECT_EQ(load_lora(port, "policy", models("lora1")).text("/error/message"),
            "The lora adapter 'policy' conflicts with a served base model.");
  EXPECT_EQ(load_lora(port, "", models("lora1")).status, 400);
  EXPECT_TRUE(load_lora(port, "p-v1", models("lora1")).ok());
  const Answer again = load_lora(port, "p-v1", models("lora2"));
  EXPECT_EQ(again.status, 400);
  EXPECT_TRUE(again.text("/error/message").starts_with("The lora adapter 'p-v1' has already been loaded."));
  EXPECT_EQ(unload_lora(port, "nope").status, 404);
  EXPECT_EQ(unload_lora(port, "nope").text("/error/message"), "The lora adapter 'nope' cannot be found.");
}

TEST_F(VllmLora, names_that_belong_to_no_module_are_loaded_in_silence_and_serve_the_base) {
  const int port = start();
  ASSERT_TRUE(load_lora(port, "p-v1", models("lora_prefix")).ok());
  EXPECT_EQ(logprobs(port, "p-v1"), logprobs(port, "policy"));
}

TEST_F(VllmLora, unload_takes_the_name_away_at_once_and_leaves_running_requests_alone) {
  const int port = start(0, 16, Milliseconds{4});
  ASSERT_TRUE(load_lora(port, "p-v1", models("lora1")).ok());
  auto running = call_later(port, "POST", "/v1/completions",
                            R"({"model":"p-v1","prompt":"weigh","max_tokens":300,"ignore_eos":true})", within(20'000));
  ASSERT_TRUE(comes_true([&] { return call(port, "GET", "/_tiny/state").text("/running") == "1"; }));
  EXPECT_TRUE(unload_lora(port, "p-v1").ok());
  EXPECT_EQ(listed(port), "");
  const Answer unknown = complete(port, "p-v1");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.text("/error/message"), "The model `p-v1` does not exist. Valid aliases: policy.");
  const Answer ended = running.get();
  EXPECT_EQ(ended.text("/choices/0/finish_reason"), "length") << ended.body;
}

TEST_F(VllmLora, second_load_of_a_name_waits_for_the_first_in_the_frozen_core) {
  const int port = start();
  ASSERT_TRUE(call(port, "POST", "/_tiny/freeze").ok());
  const std::string body = R"({"lora_name":"p-v1","lora_path":")" + models("lora1") + R"("})";
  EXPECT_EQ(call(port, "POST", "/v1/load_lora_adapter", body, within(300)).ending, Ending::timeout);
  auto second = call_later(port, "POST", "/v1/load_lora_adapter", body, within(20'000));
  auto barrier = call_later(port, "GET", "/is_paused", "", within(20'000));
  EXPECT_EQ(listed(port), "") << "the HTTP process answers alone";
  EXPECT_EQ(barrier.wait_for(std::chrono::milliseconds{200}), std::future_status::timeout);
  ASSERT_TRUE(call(port, "POST", "/_tiny/thaw").ok());
  EXPECT_EQ(second.get().status, 400) << "the abandoned load took effect";
  EXPECT_TRUE(barrier.get().ok());
  EXPECT_EQ(listed(port), "p-v1");
}

TEST_F(VllmLora, adapter_that_left_the_cache_is_read_again_and_a_missing_directory_then_kills_the_engine) {
  const int port = start(2);
  const std::string directory = models("lora_of_vllm");
  std::filesystem::copy(models("lora1"), directory);
  ASSERT_TRUE(load_lora(port, "p-v1", directory).ok());
  const std::string first = logprobs(port, "p-v1");
  ASSERT_TRUE(load_lora(port, "p-v2", models("lora2")).ok());
  ASSERT_TRUE(load_lora(port, "p-v3", models("lora3")).ok());
  EXPECT_EQ(logprobs(port, "p-v1"), first) << "read again";
  logprobs(port, "p-v2");
  logprobs(port, "p-v3");
  std::filesystem::remove_all(directory);
  EXPECT_EQ(listed(port), "p-v1 p-v2 p-v3");
  EXPECT_EQ(complete(port, "p-v1").status, 500);
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/health").ending == Ending::refused; }));
}

TEST_F(VllmLora, adapters_are_changed_while_paused_and_survive_a_new_base) {
  const int port = start();
  ASSERT_TRUE(load_lora(port, "p-v1", models("lora1")).ok());
  const std::string old = logprobs(port, "p-v1");
  ASSERT_TRUE(call(port, "POST", "/pause").ok());
  EXPECT_TRUE(load_lora(port, "p-v2", models("lora2")).ok());
  EXPECT_TRUE(unload_lora(port, "p-v2").ok());
  EXPECT_TRUE(load_lora(port, "p-v2", models("lora3")).ok());
  ASSERT_TRUE(call(port, "POST", "/collective_rpc",
                   R"({"method":"reload_weights","kwargs":{"weights_path":")" + models("v2") + R"("}})")
                  .ok());
  ASSERT_TRUE(call(port, "POST", "/resume").ok());
  EXPECT_NE(logprobs(port, "p-v1"), old);
  EXPECT_NE(logprobs(port, "p-v1"), logprobs(port, "policy"));
  EXPECT_EQ(listed(port), "p-v1 p-v2");
}

TEST_F(VllmLora, in_place_load_replaces_the_adapter_and_its_cached_prefixes) {
  const int port = start();
  ASSERT_TRUE(load_lora(port, "p-v1", models("lora1")).ok());
  logprobs(port, "p-v1");
  ASSERT_TRUE(load_lora(port, "p-v2", models("lora2")).ok());
  EXPECT_EQ(load_lora(port, "p-v1", models("nowhere"), R"(,"load_inplace":true)").status, 404);
  ASSERT_TRUE(load_lora(port, "p-v1", models("lora2"), R"(,"load_inplace":true)").ok());
  EXPECT_EQ(logprobs(port, "p-v1"), logprobs(port, "p-v2"));
}

TEST_F(VllmLora, without_lora_a_load_is_500_and_touches_nothing) {
  const int port = start(0, 0);
  EXPECT_EQ(load_lora(port, "p-v1", models("lora1")).text("/error/message"),
            "Call to add_lora method failed: LoRA is not enabled. Use --enable-lora to enable LoRA.");
  EXPECT_EQ(complete(port, "policy").status, 200);
}

}  // namespace
}  // namespace weighlock::tiny
