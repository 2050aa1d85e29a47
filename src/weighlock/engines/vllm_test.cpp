#include "weighlock/engines/vllm.hpp"

#include <gtest/gtest.h>

#include "weighlock/engines/scripted_engine.hpp"

namespace weighlock {
namespace {

using enum OperationKind;
using Strings = std::vector<std::string>;

constexpr const char* kDigest = "50c9aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

EngineTask task(OperationKind kind) {
  return EngineTask{operation(kind), {}};
}

ScriptedEngine serving(const std::string& label) {
  ScriptedEngine engine;
  engine.on("GET /is_paused", answer(200, R"({"is_paused":true})"))
      .on("GET /weight_info", answer(200, R"({"weight_version":")" + label + R"("})"))
      .on("GET /metrics", answer(200,
                                 "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds_x 1\n"
                                 "process_start_time_seconds 1.76441234525e+09\r\nother 2\n"))
      .on("GET /v1/models",
          answer(
              200,
              R"({"data":[{"id":"a1","root":"/l","parent":"policy"},{"id":"policy","root":"m/v1","parent":null}]})"));
  return engine;
}

EngineTask verify_task(Evidence evidence) {
  EngineTask made = task(verify);
  made.operation.evidence = evidence;
  Expectations expected;
  expected.tensors = {{"model.norm.weight", "BF16", {4}, {}, true, kDigest}};
  made.expectations = std::make_shared<Expectations>(expected);
  return made;
}

std::string checksums(const std::string& digest) {
  return R"({"checksums":{"dp0:pp0:pcp0:tp0:model.norm.weight":")" + digest + R"("}})";
}

TEST(Vllm, brief_readings_leave_the_incarnation_out_and_a_brief_resume_ends_with_one) {
  EngineTask read = task(read_state);
  read.operation.brief = true;
  ScriptedEngine engine = serving("7");
  const Outcome state = engine.run(DialectKind::vllm, read);
  EXPECT_EQ(engine.routes(), (Strings{"GET /is_paused", "GET /weight_info"}));
  ASSERT_TRUE(state.reading);
  EXPECT_EQ(state.reading->label, "7");
  EXPECT_TRUE(state.reading->paused);

  EngineTask brief = task(resume);
  brief.operation.brief = true;
  ScriptedEngine running;
  running.on("POST /resume", answer(200, R"({"status":"resumed"})"))
      .on("GET /is_paused", answer(200, R"({"is_paused":false})"))
      .on("GET /weight_info", answer(200, R"({"weight_version":"7"})"));
  const Outcome resumed = running.run(DialectKind::vllm, brief);
  ASSERT_TRUE(resumed.ok() && resumed.reading);
  EXPECT_EQ(resumed.reading->label, "7");
  EXPECT_FALSE(resumed.reading->paused);

  ScriptedEngine silent;
  silent.on("POST /resume", answer(200, R"({"status":"resumed"})"));
  const Outcome without = silent.run(DialectKind::vllm, brief);
  EXPECT_TRUE(without.ok());
  EXPECT_FALSE(without.reading);
}

TEST(Vllm, load_asks_the_world_size_first_and_never_sends_a_timeout) {
  for (const OperationKind kind : {load, load_empty}) {
    ScriptedEngine engine;
    engine.on("GET /get_world_size", answer(200, R"({"world_size":2})"))
        .on("POST /collective_rpc", answer(200, R"({"results":[null,null]})"));
    EXPECT_TRUE(engine.run(DialectKind::vllm, task(kind)).ok());
    EXPECT_EQ(engine.routes(), (Strings{"GET /get_world_size", "POST /collective_rpc"}));
    EXPECT_EQ(engine.body(1),
              R"({"method":"reload_weights","kwargs":{"weights_path":"/w/v2","is_checkpoint_format":true}})");
    EXPECT_TRUE(engine.asked[1].recent_connection);
  }
}

TEST(Vllm, load_is_done_only_when_every_worker_answered_null) {
  const std::vector<std::pair<std::string, OutcomeKind>> answers = {
      {R"({"results":[null,null]})", OutcomeKind::ok},
      {R"({"results":[null]})", OutcomeKind::touched},
      {R"({"results":[null,null,null]})", OutcomeKind::touched},
      {R"({"results":[null,"failed"]})", OutcomeKind::touched},
      {R"({"results":[]})", OutcomeKind::touched},
      {R"({"results":null})", OutcomeKind::touched},
      {R"({})", OutcomeKind::unknown},
      {"not json", OutcomeKind::unknown}};
  for (const auto& [body, kind] : answers) {
    ScriptedEngine engine;
    engine.on("GET /get_world_size", answer(200, R"({"world_size":2})")).on("POST /collective_rpc", answer(200, body));
    EXPECT_EQ(name(engine.run(DialectKind::vllm, task(load)).kind), name(kind)) << body;
  }
}

TEST(Vllm, load_of_a_release_without_the_world_size_believes_one_or_more_nulls) {
  ScriptedEngine engine;
  engine.on("POST /collective_rpc", answer(200, R"({"results":[null]})"));
  EXPECT_TRUE(engine.run(DialectKind::vllm, task(load)).ok());
  ScriptedEngine none;
  none.on("POST /collective_rpc", answer(200, R"({"results":[]})"));
  EXPECT_EQ(none.run(DialectKind::vllm, task(load)).kind, OutcomeKind::touched);
}

TEST(Vllm, load_that_was_never_sent_touched_nothing) {
  ScriptedEngine hanging;
  hanging.on("GET /get_world_size", lost(TransportError::Kind::timeout));
  const Outcome outcome = hanging.run(DialectKind::vllm, task(load));
  EXPECT_EQ(outcome.kind, OutcomeKind::untouched);
  EXPECT_EQ(outcome.code, ErrorCode::timed_out);
  ScriptedEngine gone;
  gone.on("GET /get_world_size", lost(TransportError::Kind::refused, true));
  EXPECT_EQ(gone.run(DialectKind::vllm, task(load)).kind, OutcomeKind::not_sent);
}

TEST(Vllm, pause_and_flush_say_everything_in_the_query_and_have_a_json_body) {
  const std::vector<std::pair<PauseMode, std::string>> words = {
      {PauseMode::abort, "abort"}, {PauseMode::keep, "keep"}, {PauseMode::wait, "wait"}};
  for (const auto& [mode, word] : words) {
    ScriptedEngine engine;
    EngineTask pause_task = task(pause);
    pause_task.operation.pause_mode = mode;
    engine.on("POST /pause?mode=" + word + "&clear_cache=true", answer(200, R"({"status":"paused"})"));
    EXPECT_TRUE(engine.run(DialectKind::vllm, pause_task).ok());
    EXPECT_EQ(engine.body(0), "{}");

    EngineTask flush_task = task(flush);
    flush_task.operation.pause_mode = mode;
    const std::string running = mode == PauseMode::keep ? "true" : "false";
    engine.on("POST /reset_prefix_cache?reset_running_requests=" + running, answer(200, R"({"success":true})"));
    EXPECT_TRUE(engine.run(DialectKind::vllm, flush_task).ok());
  }
  EngineTask retract_task = task(pause);
  retract_task.operation.pause_mode = PauseMode::retract;
  EXPECT_EQ(ScriptedEngine().run(DialectKind::vllm, retract_task).code, ErrorCode::not_supported);
}

TEST(Vllm, label_carries_no_field_that_vllm_does_not_know) {
  ScriptedEngine engine;
  engine.on("POST /update_weight_version", answer(200, R"({"success":true,"new_version":"7"})"));
  EXPECT_TRUE(engine.run(DialectKind::vllm, task(set_label)).ok());
  EXPECT_EQ(engine.body(0), R"({"new_version":"7"})");
}

TEST(Vllm, state_is_read_behind_the_engine_core_and_a_barrier_does_so_on_a_fresh_connection) {
  for (const OperationKind kind : {read_state, barrier}) {
    ScriptedEngine engine = serving("7");
    const Outcome outcome = engine.run(DialectKind::vllm, task(kind));
    ASSERT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_EQ(outcome.reading->incarnation, "1.76441234525e+09");
    EXPECT_EQ(outcome.reading->label, "7");
    EXPECT_EQ(outcome.reading->model_path, "m/v1");
    EXPECT_TRUE(outcome.reading->paused);
    EXPECT_EQ(engine.routes()[0], "GET /is_paused");
    EXPECT_EQ(engine.routes()[1],
              kind == barrier ? "GET /is_paused" : "GET /weight_info");  // asked again behind its own answer
    EXPECT_EQ(engine.asked[0].fresh_connection, kind == barrier);
  }
}

TEST(Vllm, state_can_be_read_without_metrics_and_without_the_key_for_v1) {
  ScriptedEngine engine;
  engine.on("GET /is_paused", answer(200, R"({"is_paused":false})"))
      .on("GET /weight_info", answer(200, R"({"weight_version":"default"})"))
      .on("GET /v1/models", answer(401, R"({"error":"Unauthorized"})"));
  const Outcome outcome = engine.run(DialectKind::vllm, task(read_state));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.reading->incarnation, "");
  EXPECT_EQ(outcome.reading->model_path, "");
  EXPECT_EQ(outcome.reading->label, "default");
}

TEST(Vllm, adapter_is_loaded_and_unloaded_by_name_and_never_in_place) {
  ScriptedEngine engine;
  engine.on("POST /v1/load_lora_adapter", answer(200, "Success: LoRA adapter 'policy-v7' added successfully."))
      .on("POST /v1/unload_lora_adapter", answer(200, "Success: LoRA adapter 'policy-v7' removed successfully."));
  EXPECT_TRUE(engine.run(DialectKind::vllm, task(load_adapter)).ok());
  EXPECT_TRUE(engine.run(DialectKind::vllm, task(unload_adapter)).ok());
  EXPECT_EQ(engine.routes(), (Strings{"POST /v1/load_lora_adapter", "POST /v1/unload_lora_adapter"}));
  EXPECT_EQ(engine.body(0), R"({"lora_name":"policy-v7","lora_path":"/w/v2"})");
  EXPECT_EQ(engine.body(1), R"({"lora_name":"policy-v7"})");
}

TEST(Vllm, success_that_names_another_adapter_is_not_believed) {
  ScriptedEngine engine;
  engine.on("POST /v1/load_lora_adapter", answer(200, "Success: LoRA adapter 'policy-v70' added successfully."))
      .on("POST /v1/unload_lora_adapter", answer(200, "Success: LoRA adapter 'policy-v70' removed successfully."));
  EXPECT_EQ(engine.run(DialectKind::vllm, task(load_adapter)).kind, OutcomeKind::unknown);
  EXPECT_EQ(engine.run(DialectKind::vllm, task(unload_adapter)).kind, OutcomeKind::unknown);
}

TEST(Vllm, adapters_are_listed_behind_the_engine_core_and_their_list_is_needed) {
  ScriptedEngine engine = serving("7");
  const Outcome outcome = engine.run(DialectKind::vllm, task(list_adapters));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(engine.routes(), (Strings{"GET /is_paused", "GET /weight_info", "GET /metrics", "GET /v1/models"}));
  ASSERT_TRUE(outcome.reading->adapters);
  ASSERT_EQ(outcome.reading->adapters->size(), 1U);
  EXPECT_EQ(outcome.reading->adapters->front().name, "a1");
  EXPECT_EQ(outcome.reading->adapters->front().directory, "/l");
  EXPECT_EQ(outcome.reading->model_path, "m/v1");
  EXPECT_FALSE(outcome.reading->adapter_rank_max.has_value()) << "vLLM doesn't tell";

  const auto with_models = [](HttpResult models) {
    ScriptedEngine other;
    other.on("GET /is_paused", answer(200, R"({"is_paused":false})"))
        .on("GET /weight_info", answer(200, R"({"weight_version":"default"})"))
        .on("GET /v1/models", std::move(models));
    return other.run(DialectKind::vllm, task(list_adapters));
  };
  EXPECT_EQ(with_models(answer(401, R"({"error":"Unauthorized"})")).code, ErrorCode::permission_denied);
  EXPECT_EQ(with_models(answer(200, R"({"data":{}})")).kind, OutcomeKind::unknown);
  EXPECT_EQ(with_models(answer(500, "no")).kind, OutcomeKind::unknown);
  EXPECT_FALSE(serving("7").run(DialectKind::vllm, task(read_state)).reading->adapters.has_value());
}

TEST(Vllm, verify_reaches_checksum_when_a_differing_tensor_agrees) {
  ScriptedEngine engine = serving("7");
  engine.on("POST /weight_checker", answer(200, checksums(kDigest)));
  const Outcome outcome = engine.run(DialectKind::vllm, verify_task(Evidence::checksum));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(outcome.evidence, Evidence::checksum);
  EXPECT_EQ(engine.body(4), R"({"action":"checksum"})");
}

TEST(Vllm, verify_names_the_tensor_and_both_digests_that_differ) {
  ScriptedEngine engine = serving("7");
  engine.on("POST /weight_checker", answer(200, checksums("11")));
  const Outcome outcome = engine.run(DialectKind::vllm, verify_task(Evidence::checksum));
  EXPECT_EQ(outcome.kind, OutcomeKind::mismatch);
  EXPECT_NE(outcome.text.find("tensor 'model.norm.weight': its sha256 is 11, the version's is 50c9"), std::string::npos)
      << outcome.text;
}

TEST(Vllm, verify_of_a_dirty_engine_is_touched_and_of_one_without_a_checker_is_vacuous) {
  ScriptedEngine dirty = serving("7");
  dirty.on("POST /weight_checker", answer(500, R"({"error":{"message":"Cannot copy out of meta tensor; no data!"}})"));
  EXPECT_EQ(dirty.run(DialectKind::vllm, verify_task(Evidence::checksum)).kind, OutcomeKind::touched);

  ScriptedEngine old = serving("7");
  const Outcome outcome = old.run(DialectKind::vllm, verify_task(Evidence::checksum));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.evidence, Evidence::label);
  EXPECT_TRUE(outcome.vacuous);
}

TEST(Vllm, verify_of_a_strange_label_is_a_mismatch) {
  ScriptedEngine engine = serving("6");
  EXPECT_EQ(engine.run(DialectKind::vllm, verify_task(Evidence::label)).kind, OutcomeKind::mismatch);
}

TEST(Vllm, probe_asks_for_a_token_of_the_base_model_with_its_probability) {
  ScriptedEngine engine = serving("7");
  engine.on("POST /v1/completions", answer(200, R"({"choices":[{"text":"","logprobs":{"token_logprobs":[-2.5]}}]})"));
  const Outcome outcome = engine.run(DialectKind::vllm, task(probe));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(outcome.evidence, Evidence::probe);
  const Result<json::value> body = parse_json(engine.body(1), "body");
  ASSERT_TRUE(body);
  EXPECT_EQ(find_string(*body, "model"), "policy");
  EXPECT_EQ(json::serialize(*find(*body, "prompt")), "[1]");
  EXPECT_EQ(find_int(*body, "max_tokens"), 1);
}

TEST(Vllm, probe_that_gives_no_token_is_a_mismatch) {
  for (const char* body : {R"({"choices":[]})", R"({"choices":[{"text":""}]})", R"({"choices":null})",
                           R"({"choices":[{"text":"a","logprobs":{"token_logprobs":[null]}}]})"}) {
    ScriptedEngine engine = serving("7");
    engine.on("POST /v1/completions", answer(200, body));
    EXPECT_EQ(engine.run(DialectKind::vllm, task(probe)).kind, OutcomeKind::mismatch) << body;
  }
}

}  // namespace
}  // namespace weighlock
