#include "tinytrainer/trainer.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tinyengine/engine/loader.hpp"
#include "tinyengine/model/checkpoint.hpp"
#include "tinyengine/testing/rig.hpp"

namespace weighlock::tiny {
namespace {

using Ending = Answer::Ending;
namespace fs = std::filesystem;

class TrainerTest : public testing::Test {
 protected:
  void start(TrainerSettings settings = {}) {
    rig.on_loop([&] {
      trainer = std::make_unique<Trainer>(rig.loop(), rig.pool(), settings);
      const Status started = trainer->start();
      ASSERT_TRUE(started) << started.error().text();
    });
  }
  ~TrainerTest() override {
    rig.on_loop([&] { trainer.reset(); });
  }
  // The body that AReaL's gateway sends.
  static std::string save_body(const std::string& path) {
    return R"({"args": [{"type": "dataclass", "class_path": "areal.api.io_struct.SaveLoadMeta", "data": {"path": ")" +
           path +
           R"(", "weight_format": "hf", "with_optim": false, "tokenizer": null, "processor": null, "base_model_path": null, "naive_distributed": false}}], "kwargs": {}})";
  }
  std::future<Answer> save_later(std::size_t rank, const std::string& name, const CallOptions& options = {}) {
    return call_later(trainer->port(rank), "POST", "/save", save_body(root / name), options);
  }
  // All ranks together; the answers.
  std::vector<Answer> save(const std::string& name, const CallOptions& options = {}) {
    std::vector<std::future<Answer>> calls;
    for (std::size_t rank = 0; rank < trainer->size(); ++rank) calls.push_back(save_later(rank, name, options));
    std::vector<Answer> answers;
    for (auto& one : calls) answers.push_back(one.get());
    return answers;
  }
  void set(std::size_t rank, const std::string& body) {
    ASSERT_EQ(call(trainer->port(rank), "POST", "/_tiny/faults", body).status, 200) << body;
  }
  bool waits(std::size_t rank) {
    return comes_true([&] { return call(trainer->port(rank), "GET", "/_tiny/state").text("/waiting") == "1"; });
  }
  std::string text_of(const std::string& name) {
    EngineSettings settings;
    settings.model_directory = root / name;
    settings.timings = quick_timings();
    const int port = rig.start(settings);
    return call(port, "POST", "/generate",
                R"({"text":"The weighlock","sampling_params":{"max_new_tokens":16,"ignore_eos":true}})")
        .text("/text");
  }

  TestDirectory root;
  Rig rig;
  std::unique_ptr<Trainer> trainer;
};

TEST_F(TrainerTest, a_save_is_a_collective_that_writes_one_shard_a_rank) {
  TrainerSettings settings;
  settings.ranks = 3;
  start(settings);
  auto first = save_later(0, "v1"), second = save_later(1, "v1");
  ASSERT_TRUE(waits(0));
  ASSERT_TRUE(waits(1));
  EXPECT_EQ(first.wait_for(Milliseconds{30}), std::future_status::timeout) << "rank 2 wasn't called";
  EXPECT_FALSE(fs::exists(root / "v1"));
  auto third = save_later(2, "v1");
  for (auto* one : {&first, &second, &third}) EXPECT_EQ(one->get().body, "{\"result\":null,\"status\":\"success\"}\n");
  for (const char* file : {"model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors",
                           "model.safetensors.index.json", "config.json", "tokenizer.json"}) {
    EXPECT_TRUE(fs::exists(root / (std::string("v1/") + file))) << file;
  }
  EXPECT_TRUE(load_at_start(root / "v1", "test"));
}

TEST_F(TrainerTest, greedy_text_changes_with_every_step) {
  start();
  std::set<std::string> texts;
  for (const std::string name : {"v1", "v2", "v3", "v4", "v5", "v6"}) {
    for (const Answer& answer : save(name)) ASSERT_TRUE(answer.ok());
    texts.insert(text_of(name));
  }
  EXPECT_EQ(texts.size(), 6u);
}

TEST_F(TrainerTest, the_same_seed_and_step_give_the_same_bytes) {
  TrainedModel one({}, 7, 1.0), other({}, 7, 1.0), another({}, 8, 1.0);
  const auto bytes = [](const TrainedModel& model) { return safetensors_bytes(model.tensors()); };
  const std::string start = bytes(one);
  one.advance();
  EXPECT_NE(bytes(one), start);
  other.advance();
  another.advance();
  EXPECT_EQ(bytes(one), bytes(other));
  EXPECT_NE(bytes(one), bytes(another));
}

TEST_F(TrainerTest, a_step_changes_some_linear_values_and_bfloat16_swallows_others) {
  TrainedModel model({}, 7, 1.0);
  const auto before = model.tensors();
  model.advance();
  const auto after = model.tensors();
  std::size_t same = 0, changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i].name.find("_proj") == std::string::npos) continue;
    for (std::size_t at = 0; at < before[i].bytes.size(); at += 2) {
      (before[i].bytes.compare(at, 2, after[i].bytes, at, 2) == 0 ? same : changed)++;
    }
  }
  EXPECT_GT(same, 0u);
  EXPECT_GT(changed, 0u);
}

TEST_F(TrainerTest, a_failing_rank_leaves_the_others_in_the_collective) {
  TrainerSettings settings;
  settings.collective_timeout = Milliseconds{3000};  // both ranks of v2 must be in it within this
  start(settings);
  set(1, R"({"fault":"status_500","message":"No space left on device"})");
  const auto answers = save("v1");
  EXPECT_EQ(answers[1].body, "{\"error\":\"Internal server error: No space left on device\"}\n");
  EXPECT_EQ(answers[0].status, 500);
  EXPECT_NE(answers[0].body.find("timed out in the collective"), std::string::npos);
  EXPECT_FALSE(fs::exists(root / "v1"));
  for (const Answer& answer : save("v2")) EXPECT_TRUE(answer.ok()) << "the next one works";
}

TEST_F(TrainerTest, without_a_timeout_the_others_wait_until_the_peer_comes) {
  start();
  set(1, R"({"fault":"status_400","message":"Engine not created. Call /create_engine first."})");
  auto waiting = save_later(0, "v1");
  EXPECT_EQ(save_later(1, "v1").get().body, "{\"error\":\"Engine not created. Call /create_engine first.\"}\n");
  EXPECT_EQ(waiting.wait_for(Milliseconds{30}), std::future_status::timeout);
  EXPECT_TRUE(save_later(1, "v1").get().ok());
  EXPECT_TRUE(waiting.get().ok());
}

TEST_F(TrainerTest, what_the_engine_is_asked_during_a_save_is_answered_after_it) {
  start();
  EXPECT_EQ(call(trainer->port(0), "GET", "/get_version").status, 200);
  auto first = save_later(0, "v1");
  ASSERT_TRUE(waits(0));
  auto asked = call_later(trainer->port(0), "GET", "/get_version");
  EXPECT_EQ(call(trainer->port(1), "GET", "/get_version").status, 200) << "rank 1 is in no save";
  EXPECT_EQ(asked.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  EXPECT_EQ(save_later(1, "v1").get().status, 200);
  EXPECT_EQ(first.get().status, 200);
  EXPECT_EQ(asked.get().status, 200);
}

TEST_F(TrainerTest, faults_outside_the_collective_end_as_they_say) {
  start();
  set(1, R"({"fault":"hang"})");
  EXPECT_EQ(save_later(1, "v1", within(50)).get().ending, Ending::timeout);
  set(1, R"({"fault":"reset"})");
  EXPECT_EQ(save_later(1, "v1").get().ending, Ending::reset);
  set(1, R"({"fault":"garbage"})");
  EXPECT_TRUE(save_later(1, "v1").get().json.is_null());
  set(1, R"({"fault":"refuse","delay_ms":1000})");
  EXPECT_TRUE(comes_true([&] { return call(trainer->port(1), "GET", "/health").ending == Ending::refused; }));
  EXPECT_TRUE(comes_true([&] { return call(trainer->port(1), "GET", "/health").ok(); }));
}

TEST_F(TrainerTest, file_faults_damage_what_is_written_and_say_success) {
  start();
  const auto saved_with = [&](const std::string& word, std::size_t rank) {
    set(rank, R"({"fault":")" + word + "\"}");
    for (const Answer& answer : save(word)) EXPECT_TRUE(answer.ok()) << word;
    return root / word;
  };
  EXPECT_EQ(read_checkpoint(saved_with("silent", 1)).failure->kind, CheckpointFailure::Kind::missing_shard);
  EXPECT_EQ(read_checkpoint(saved_with("truncated", 1)).failure->kind, CheckpointFailure::Kind::bad_file);
  EXPECT_FALSE(load_at_start(saved_with("partial", 1), "x"));
  EXPECT_FALSE(load_at_start(saved_with("wrong_shape", 0), "x"));
  EXPECT_TRUE(fs::exists(saved_with("stray", 0) + "/old.safetensors"));
  EXPECT_FALSE(fs::exists(saved_with("no_index", 0) + "/model.safetensors.index.json"));
  EXPECT_TRUE(load_at_start(saved_with("slow", 0), "x")) << "late, but right";
}

TEST_F(TrainerTest, a_write_error_answers_500_and_the_others_never_leave_the_last_barrier) {
  start();
  set(0, R"({"fault":"write_error","message":"Input/output error"})");
  auto failing = save_later(0, "v1");
  EXPECT_EQ(save_later(1, "v1", within(200)).get().ending, Ending::timeout);
  EXPECT_EQ(failing.get().status, 500);
}

TEST_F(TrainerTest, a_path_that_cant_be_made_is_500) {
  TrainerSettings settings;
  settings.ranks = 1;
  start(settings);
  ASSERT_TRUE(write_text(root / "file", "x"));
  EXPECT_EQ(save("file/v1")[0].status, 500);
  EXPECT_EQ(call(trainer->port(0), "POST", "/save", "{}").status, 500);
}

TEST_F(TrainerTest, paired_by_call_ranks_that_are_off_by_one_mix_their_directories) {
  TrainerSettings settings;
  settings.pairing = TrainerSettings::Pairing::call;
  start(settings);
  auto early = save_later(0, "a");
  ASSERT_TRUE(waits(0));
  EXPECT_TRUE(save_later(1, "b").get().ok());
  EXPECT_TRUE(early.get().ok());
  EXPECT_TRUE(fs::exists(root / "a/model-00001-of-00002.safetensors"));
  EXPECT_TRUE(fs::exists(root / "b/model-00002-of-00002.safetensors"));
  EXPECT_FALSE(fs::exists(root / "b/model-00001-of-00002.safetensors"));
}

TEST_F(TrainerTest, paired_by_path_different_paths_wait_for_their_own) {
  start();
  auto a = save_later(0, "a"), b = save_later(1, "b");
  ASSERT_TRUE(waits(0));
  ASSERT_TRUE(waits(1));
  EXPECT_TRUE(save_later(0, "b").get().ok());
  EXPECT_TRUE(b.get().ok());
  EXPECT_TRUE(save_later(1, "a").get().ok());
  EXPECT_TRUE(a.get().ok());
}

TEST_F(TrainerTest, the_log_tells_what_was_asked_and_answered) {
  start();
  save("v1");
  const Answer log = call(trainer->port(1), "GET", "/_tiny/log");
  EXPECT_EQ(log.text("/0/target"), "/save");
  EXPECT_EQ(log.text("/0/body"), save_body(root / "v1"));
  EXPECT_EQ(log.text("/0/status"), "200");
}

class AdapterTrainerTest : public TrainerTest {
 protected:
  void SetUp() override {
    TrainerSettings settings;
    settings.adapter = AdapterConfig{};
    start(settings);
  }
  std::shared_ptr<const Adapter> saved(const std::string& name) {
    for (const Answer& answer : save(name)) EXPECT_EQ(answer.status, 200) << answer.body;
    const AdapterContent content = read_adapter(root / name, ModelShape{}, AdapterNames::exact);
    EXPECT_NE(content.adapter, nullptr) << content.failure.text;
    return content.adapter ? content.adapter : std::make_shared<Adapter>();
  }
};

TEST_F(AdapterTrainerTest, saves_are_adapters_that_differ_with_each_step_and_hold_nothing_else) {
  const auto first = saved("a1"), second = saved("a2");
  EXPECT_EQ(first->modules.size(), 2 * ModelShape{}.layers);
  EXPECT_TRUE(first->unplaced.empty());
  EXPECT_FALSE(first->other_ranks);
  EXPECT_NE(first->sha256, second->sha256);
  std::set<std::string> files;
  for (const auto& entry : fs::directory_iterator(root / "a1")) files.insert(entry.path().filename().string());
  EXPECT_EQ(files, (std::set<std::string>{"adapter_config.json", "adapter_model.safetensors"}));
}

TEST_F(AdapterTrainerTest, damaged_adapters_are_saved_and_called_a_success) {
  set(0, R"({"fault":"wrong_prefix"})");
  EXPECT_TRUE(saved("prefix")->modules.empty());
  set(0, R"({"fault":"wrong_rank"})");
  EXPECT_TRUE(saved("rank")->other_ranks);
  set(0, R"({"fault":"modules_to_save"})");
  const auto whole = saved("whole");
  EXPECT_EQ(whole->config.modules_to_save, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(whole->unplaced, std::vector<std::string>{"base_model.model.lm_head.weight"});
  set(0, R"({"fault":"dora"})");
  EXPECT_TRUE(saved("dora")->config.dora);
  set(0, R"({"fault":"partial"})");
  EXPECT_EQ(saved("partial")->modules.size(), ModelShape{}.layers);
  set(0, R"({"fault":"wrong_shape"})");
  EXPECT_EQ(saved("shape")->unplaced.size(), 1U);
  set(0, R"({"fault":"truncated"})");
  for (const Answer& answer : save("cut")) EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(read_adapter(root / "cut", ModelShape{}, AdapterNames::exact).adapter, nullptr);
  set(0, R"({"fault":"silent"})");
  for (const Answer& answer : save("none")) EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(fs::exists(root / "none/adapter_model.safetensors"));
}

}  // namespace
}  // namespace weighlock::tiny
