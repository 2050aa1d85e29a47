// SGLang's LoRA as it was measured, over real sockets: names, the lock, what an unload waits for, what comes back.
#include <filesystem>

#include "tinyengine/testing/sglang_fixture.hpp"

namespace weighlock::tiny {
namespace {

using Ending = Answer::Ending;

class SglangLora : public SglangTest {
 protected:
  int start_lora(std::size_t loaded_max = 0, Milliseconds step_least = Milliseconds{0}) {
    EngineSettings settings;
    settings.model_directory = models("v1");
    settings.served_model_name = "policy";
    settings.timings = quick_timings();
    settings.timings.step_least = step_least;
    settings.adapters.rank_max = 8;
    settings.adapters.loaded_max = loaded_max;
    return rig.start(settings);
  }
  std::string load_body(const std::string& name, const std::string& directory) {
    return R"({"lora_name":")" + name + R"(","lora_path":")" + directory + R"("})";
  }
  Answer load_lora(int port, const std::string& name, const std::string& directory) {
    return call(port, "POST", "/load_lora_adapter", load_body(name, models(directory)));
  }
  Answer unload_lora(int port, const std::string& name, int timeout_ms = 5000) {
    return call(port, "POST", "/unload_lora_adapter", R"({"lora_name":")" + name + R"("})", within(timeout_ms));
  }
  std::string endless_body(const std::string& adapter) {
    return R"({"text":"weighlock","lora_path":")" + adapter +
           R"(","sampling_params":{"max_new_tokens":4000,"ignore_eos":true}})";
  }
  Answer generate(int port, const std::string& adapter) {
    return call(port, "POST", "/generate",
                R"({"text":"weigh","sampling_params":{"max_new_tokens":12,"ignore_eos":true},"return_logprob":true)" +
                    (adapter.empty() ? std::string() : R"(,"lora_path":")" + adapter + "\"") + "}");
  }
  std::string logprobs(int port, const std::string& adapter) {
    const Answer answer = generate(port, adapter);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.text("/meta_info/output_token_logprobs");
  }
  // "p-v1 p-v2", as /v1/models lists them.
  std::string listed(int port) {
    std::string names;
    const Answer answer = call(port, "GET", "/v1/models");
    for (const json::value& entry : answer.json.at("data").as_array()) {
      if (!entry.at("parent").is_null()) names += (names.empty() ? "" : " ") + std::string(entry.at("id").as_string());
    }
    return names;
  }
};

TEST_F(SglangLora, adapter_changes_what_is_computed_for_requests_that_name_it_and_for_no_other) {
  const int port = start_lora();
  const std::string base = logprobs(port, "");
  EXPECT_EQ(load_lora(port, "p-v1", "lora1").body,
            R"({"rid":null,"http_worker_ipc":null,"success":true,"error_message":"","loaded_adapters":{"p-v1":")" +
                models("lora1") + R"("}})");
  ASSERT_TRUE(load_lora(port, "p-v2", "lora2").ok());
  ASSERT_TRUE(load_lora(port, "q-v1", "lora1").ok());
  const std::string first = logprobs(port, "p-v1");
  EXPECT_NE(first, base);
  EXPECT_NE(logprobs(port, "p-v2"), first);
  EXPECT_EQ(logprobs(port, "q-v1"), first) << "the same bytes under another name";
  EXPECT_EQ(logprobs(port, ""), base);
  EXPECT_EQ(listed(port), "p-v1 p-v2 q-v1");
  const Answer info = call(port, "GET", "/server_info");
  EXPECT_EQ(info.text("/max_lora_rank"), "8");
}

TEST_F(SglangLora, taken_name_is_400_whatever_its_directory) {
  const int port = start_lora();
  ASSERT_TRUE(load_lora(port, "p-v1", "lora1").ok());
  const std::string first = logprobs(port, "p-v1");
  for (const char* directory : {"lora1", "lora2"}) {
    const Answer again = load_lora(port, "p-v1", directory);
    EXPECT_EQ(again.status, 400);
    EXPECT_EQ(again.text("/error_message"), "Failed to load LoRA adapter p-v1 because it is already loaded");
    EXPECT_EQ(again.text("/success"), "false");
  }
  EXPECT_EQ(logprobs(port, "p-v1"), first);
}

TEST_F(SglangLora, what_it_refuses_leaves_the_name_free) {
  const int port = start_lora();
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"nowhere", "Repo id must be in the form"},
      {"nothing", "[Errno 2] No such file or directory: '" + models("nothing/adapter_config.json") + "'"},
      {"lora_noweights", "Cannot find any model weights with"},
      {"lora_cut", "Error while deserializing header"},
      {"lora64", "LoRA adapter p-v1 with rank 64 is incompatible with the current LoRA memory pool configuration."},
      {"lora_dora", "Failed to load p-v1 because LoRA serving currently doesn't support DoRA adapters"}};
  for (const auto& [directory, words] : refused) {
    const Answer answer = load_lora(port, "p-v1", directory);
    EXPECT_EQ(answer.status, 400) << directory;
    EXPECT_TRUE(answer.text("/error_message").starts_with(words)) << answer.body;
    EXPECT_EQ(listed(port), "");
  }
  EXPECT_TRUE(load_lora(port, "p-v1", "lora1").ok());
  EXPECT_EQ(call(port, "POST", "/load_lora_adapter", R"({"lora_name":"x"})").text("/object"), "error");
}

TEST_F(SglangLora, names_of_modules_are_taken_by_layer_and_whole_modules_are_left_out_in_silence) {
  const int port = start_lora();
  ASSERT_TRUE(load_lora(port, "p-v1", "lora1").ok());
  ASSERT_TRUE(load_lora(port, "prefix", "lora_prefix").ok());
  ASSERT_TRUE(load_lora(port, "saved", "lora_saved").ok());
  EXPECT_EQ(logprobs(port, "prefix"), logprobs(port, "p-v1"));
  EXPECT_EQ(logprobs(port, "saved"), logprobs(port, "p-v1"));
}

TEST_F(SglangLora, ranks_other_than_the_config_says_kill_it_with_the_first_request) {
  const int port = start_lora();
  ASSERT_TRUE(load_lora(port, "p-v1", "lora_rank").ok()) << "taken in silence";
  EXPECT_EQ(generate(port, "").status, 200);
  EXPECT_EQ(generate(port, "p-v1").ending, Ending::reset);
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/model_info").ending == Ending::refused; }));
}

TEST_F(SglangLora, unload_waits_for_the_requests_that_use_it_and_all_others_behind_it) {
  const int port = start_lora(0, Milliseconds{4});
  ASSERT_TRUE(load_lora(port, "p-v1", "lora1").ok());
  auto running = call_later(port, "POST", "/generate", endless_body("p-v1"), within(30'000));
  ASSERT_TRUE(runs(port, "1"));
  EXPECT_EQ(unload_lora(port, "p-v1", 300).ending, Ending::timeout);
  EXPECT_EQ(listed(port), "") << "the name is gone at once";
  auto other = call_later(port, "POST", "/load_lora_adapter", load_body("p-v2", models("lora2")), within(20'000));
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds{300}), std::future_status::timeout) << "it waits for the lock";
  EXPECT_EQ(generate(port, "").status, 200);
  EXPECT_EQ(call(port, "POST", "/abort_request", R"({"abort_all":true})").status, 200);
  EXPECT_EQ(running.get().text("/meta_info/finish_reason/type"), "abort");
  EXPECT_TRUE(other.get().ok()) << "the abandoned unload took effect";
  EXPECT_EQ(unload_lora(port, "p-v1").text("/error_message"),
            "LoRA with name p-v1 does not exist. Loaded LoRAs: odict_keys(['p-v2'])");
}

TEST_F(SglangLora, half_unloaded_name_is_refused_until_the_unload_is_repeated) {
  const int port = start_lora();
  ASSERT_TRUE(load_lora(port, "p-v1", "lora1").ok());
  ASSERT_TRUE(call(port, "POST", "/_tiny/faults", R"({"route":"/unload_lora_adapter","fault":"half_unload"})").ok());
  EXPECT_EQ(unload_lora(port, "p-v1").status, 400);
  EXPECT_EQ(listed(port), "");
  EXPECT_EQ(load_lora(port, "p-v1", "lora1").text("/error_message"),
            "LoRA adapter 'p-v1' has an incomplete unload. Retry the unload before loading it again.");
  EXPECT_TRUE(unload_lora(port, "p-v1").ok());
  EXPECT_TRUE(load_lora(port, "p-v1", "lora1").ok());
}

TEST_F(SglangLora, request_that_names_an_unloaded_adapter_loads_it_again_from_its_directory) {
  const int port = start_lora();
  const std::string directory = models("lora_short_lived");
  std::filesystem::copy(models("lora1"), directory);
  ASSERT_TRUE(call(port, "POST", "/load_lora_adapter", load_body("p-v1", directory)).ok());
  const std::string first = logprobs(port, "p-v1");
  EXPECT_TRUE(unload_lora(port, "p-v1").ok());
  EXPECT_EQ(logprobs(port, "p-v1"), first);
  EXPECT_EQ(listed(port), "p-v1") << "it is back";
  EXPECT_TRUE(unload_lora(port, "p-v1").ok());
  std::filesystem::remove_all(directory);
  const Answer gone = generate(port, "p-v1");
  EXPECT_EQ(gone.status, 400);
  EXPECT_TRUE(gone.text("/error/message").starts_with("Failed to implicitly load LoRA adapter p-v1: Repo id must"))
      << gone.body;
  EXPECT_TRUE(
      generate(port, "never").text("/error/message").starts_with("Got LoRA adapter that has never been loaded"));
}

TEST_F(SglangLora, above_its_limit_the_least_recently_used_adapter_is_unloaded) {
  const int port = start_lora(2);
  ASSERT_TRUE(load_lora(port, "p-v1", "lora1").ok());
  ASSERT_TRUE(load_lora(port, "p-v2", "lora2").ok());
  logprobs(port, "p-v1");
  const Answer third = load_lora(port, "p-v3", "lora3");
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third.text("/loaded_adapters/p-v2"), "");
  EXPECT_EQ(listed(port), "p-v1 p-v3");
}

TEST_F(SglangLora, adapters_are_loaded_while_paused_and_survive_a_new_base) {
  const int port = start_lora();
  ASSERT_TRUE(load_lora(port, "p-v1", "lora1").ok());
  const std::string old_base = logprobs(port, ""), old = logprobs(port, "p-v1");
  ASSERT_TRUE(call(port, "POST", "/pause_generation", "{}").ok());
  EXPECT_TRUE(load_lora(port, "p-v2", "lora2").ok());
  EXPECT_TRUE(load(port, "v2", "2").ok());
  ASSERT_TRUE(call(port, "POST", "/continue_generation", "{}").ok());
  EXPECT_EQ(listed(port), "p-v1 p-v2");
  const std::string base = logprobs(port, ""), now = logprobs(port, "p-v1");
  EXPECT_NE(base, old_base);
  EXPECT_NE(now, old);
  EXPECT_NE(now, base);
}

TEST_F(SglangLora, without_lora_every_route_says_how_to_start_it) {
  const int port = start();
  EXPECT_EQ(load_lora(port, "p-v1", "lora1").text("/error_message"),
            "LoRA is not enabled. Please set `--enable-lora` to enable LoRA.");
  EXPECT_EQ(unload_lora(port, "p-v1").status, 400);
  EXPECT_EQ(generate(port, "p-v1").status, 400);
}

TEST_F(SglangLora, lost_answer_leaves_the_adapter_loaded_and_a_restart_forgets_it) {
  const int port = start_lora();
  ASSERT_TRUE(call(port, "POST", "/_tiny/faults", R"({"route":"/load_lora_adapter","fault":"reset_after"})").ok());
  EXPECT_EQ(load_lora(port, "p-v1", "lora1").ending, Ending::reset);
  EXPECT_EQ(listed(port), "p-v1");
  EXPECT_EQ(load_lora(port, "p-v1", "lora1").status, 400);
  ASSERT_TRUE(call(port, "POST", "/_tiny/restart").ok());
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/_tiny/state").text("/lives") == "2"; }));
  EXPECT_EQ(listed(port), "");
}

TEST_F(SglangLora, adapters_of_the_start_are_there_in_every_life) {
  EngineSettings settings;
  settings.model_directory = models("v1");
  settings.timings = quick_timings();
  settings.adapters.rank_max = 8;
  settings.adapters.at_start = {{"p-v0", models("lora1")}};
  const int port = rig.start(settings);
  EXPECT_EQ(listed(port), "p-v0");
  ASSERT_TRUE(call(port, "POST", "/_tiny/restart").ok());
  EXPECT_TRUE(comes_true([&] { return call(port, "GET", "/_tiny/state").text("/lives") == "2"; }));
  EXPECT_EQ(listed(port), "p-v0");
}

}  // namespace
}  // namespace weighlock::tiny
