#include "weighlock/engines/sglang.hpp"

#include <gtest/gtest.h>

#include "weighlock/core/limits.hpp"
#include "weighlock/engines/scripted_engine.hpp"

namespace weighlock {
namespace {

using enum OperationKind;
using Strings = std::vector<std::string>;

EngineTask task(OperationKind kind) {
  return EngineTask{operation(kind), {}};
}

ScriptedEngine serving(std::string label, int ready = 503) {
  ScriptedEngine engine;
  engine
      .on("GET /server_info",
          answer(
              200,
              R"({"version":"0.5.23","startup_time":1764412345.25,"model_path":"/models/start","internal_states":[{}]})"))
      .on("GET /model_info", answer(200, R"({"model_path":"/w/v2","weight_version":")" + label + R"("})"))
      .on("GET /ready", answer(ready, ""));
  return engine;
}

std::shared_ptr<Expectations> expectations() {
  Expectations made;
  made.tensors = {{"model.norm.weight", "BF16", {4}, {1.0F, 0.5F, -2.0F, 0.25F}, true, ""},
                  {"model.layers.0.self_attn.q_proj.weight", "BF16", {4, 3}, {1, 2, 3, 4, 5}, true, ""}};
  return std::make_shared<Expectations>(made);
}

EngineTask verify_task(Evidence evidence) {
  EngineTask made = task(verify);
  made.operation.evidence = evidence;
  made.expectations = expectations();
  return made;
}

TEST(Sglang, load_sends_every_field_on_a_recent_connection_and_flushes_but_in_mode_keep) {
  for (const PauseMode mode : {PauseMode::abort, PauseMode::retract, PauseMode::keep}) {
    ScriptedEngine engine;
    engine.on("POST /update_weights_from_disk", answer(200, R"({"success":true,"message":"Succeeded"})"));
    EngineTask load_task = task(load);
    load_task.operation.pause_mode = mode;
    EXPECT_TRUE(engine.run(DialectKind::sglang, load_task).ok());
    ASSERT_EQ(engine.asked.size(), 1U);
    EXPECT_TRUE(engine.asked[0].recent_connection);
    EXPECT_EQ(
        engine.body(0),
        std::string(R"({"model_path":"/w/v2","load_format":null,"abort_all_requests":false,"weight_version":"7",)") +
            R"("is_async":false,"torch_empty_cache":false,"keep_pause":false,"recapture_cuda_graph":false,)" +
            R"("token_step":0,"flush_cache":)" + (mode == PauseMode::keep ? "false" : "true") + R"(,"manifest":null})");
  }
}

TEST(Sglang, a_brief_reading_leaves_the_incarnation_out) {
  ScriptedEngine engine = serving("7");
  EngineTask read = task(read_state);
  read.operation.brief = true;
  const Outcome outcome = engine.run(DialectKind::sglang, read);
  EXPECT_EQ(engine.routes(), (Strings{"GET /model_info", "GET /ready"}));
  ASSERT_TRUE(outcome.reading);
  EXPECT_EQ(outcome.reading->incarnation, "");
  EXPECT_EQ(outcome.reading->label, "7");
  EXPECT_TRUE(outcome.reading->paused);
}

TEST(Sglang, a_brief_resume_ends_with_a_reading_or_is_done_without_one) {
  EngineTask brief = task(resume);
  brief.operation.brief = true;
  ScriptedEngine engine = serving("7", 200);
  engine.on("POST /continue_generation", answer(200, R"({"status":"ok"})"));
  const Outcome outcome = engine.run(DialectKind::sglang, brief);
  EXPECT_EQ(engine.routes(), (Strings{"POST /continue_generation", "GET /ready", "GET /model_info"}));
  ASSERT_TRUE(outcome.ok() && outcome.reading);
  EXPECT_EQ(outcome.reading->label, "7");
  EXPECT_FALSE(outcome.reading->paused);

  ScriptedEngine silent;
  silent.on("POST /continue_generation", answer(200, R"({"status":"ok"})")).on("GET /ready", answer(200, ""));
  const Outcome without = silent.run(DialectKind::sglang, brief);
  EXPECT_TRUE(without.ok());
  EXPECT_FALSE(without.reading);
}

TEST(Sglang, each_post_has_a_json_body_and_its_content_type) {
  const std::vector<std::pair<OperationKind, std::string>> posts = {
      {pause, R"({"mode":"abort"})"},
      {resume, R"({"torch_empty_cache":true})"},
      {flush, "{}"},
      {set_label, R"({"new_version":"7","abort_all_requests":false})"}};
  for (const auto& [kind, body] : posts) {
    ScriptedEngine engine;
    engine.run(DialectKind::sglang, task(kind));
    ASSERT_FALSE(engine.asked.empty());
    EXPECT_EQ(engine.asked[0].request.method, "POST");
    EXPECT_EQ(engine.body(0), body);
    EXPECT_EQ(header(engine.asked[0].request.headers, "content-type"), "application/json");
    EXPECT_TRUE(engine.asked[0].recent_connection) << name(kind);
  }
}

TEST(Sglang, pause_modes_are_its_own_words_and_wait_is_refused_without_a_request) {
  const std::vector<std::pair<PauseMode, std::string>> words = {
      {PauseMode::abort, "abort"}, {PauseMode::keep, "in_place"}, {PauseMode::retract, "retract"}};
  for (const auto& [mode, word] : words) {
    ScriptedEngine engine;
    engine.on("POST /pause_generation", answer(200, R"({"message":"Generation paused successfully.","status":"ok"})"));
    EngineTask pause_task = task(pause);
    pause_task.operation.pause_mode = mode;
    EXPECT_TRUE(engine.run(DialectKind::sglang, pause_task).ok());
    EXPECT_EQ(engine.body(0), R"({"mode":")" + word + R"("})");
  }
  ScriptedEngine engine;
  EngineTask pause_task = task(pause);
  pause_task.operation.pause_mode = PauseMode::wait;
  const Outcome outcome = engine.run(DialectKind::sglang, pause_task);
  EXPECT_EQ(outcome.kind, OutcomeKind::untouched);
  EXPECT_EQ(outcome.code, ErrorCode::not_supported);
  EXPECT_TRUE(engine.asked.empty());
}

TEST(Sglang, label_that_comes_back_different_is_not_believed) {
  ScriptedEngine engine;
  engine.on("POST /update_weight_version", answer(200, R"({"success":true,"new_version":"6"})"));
  EXPECT_EQ(engine.run(DialectKind::sglang, task(set_label)).kind, OutcomeKind::unknown);
}

TEST(Sglang, resume_asks_health_once_and_only_if_ready_stays_503) {
  const HttpResult continued = answer(200, R"({"message":"Generation continued successfully.","status":"ok"})");
  ScriptedEngine well;
  well.on("POST /continue_generation", continued).on("GET /ready", answer(200, ""));
  EXPECT_TRUE(well.run(DialectKind::sglang, task(resume)).ok());
  EXPECT_EQ(well.routes(), (Strings{"POST /continue_generation", "GET /ready"}));

  ScriptedEngine trapped;
  trapped.on("POST /continue_generation", continued).on("GET /health", answer(200, ""));
  trapped.on("GET /ready", answer(503, "")).on("GET /ready", answer(200, ""));
  EXPECT_TRUE(trapped.run(DialectKind::sglang, task(resume)).ok());
  EXPECT_EQ(trapped.routes(), (Strings{"POST /continue_generation", "GET /ready", "GET /health", "GET /ready"}));

  ScriptedEngine sick;
  sick.on("POST /continue_generation", continued).on("GET /health", answer(200, "")).on("GET /ready", answer(503, ""));
  EXPECT_EQ(sick.run(DialectKind::sglang, task(resume)).kind, OutcomeKind::unknown);
  EXPECT_EQ(sick.asked.size(), 4U);
}

TEST(Sglang, no_operation_but_resume_ever_asks_health) {
  for (const OperationKind kind : {identify, read_state, pause, set_label, load, flush, verify, probe, barrier,
                                   load_adapter, unload_adapter, list_adapters}) {
    ScriptedEngine engine = serving("7");
    engine.run(DialectKind::sglang, task(kind));
    for (const std::string& route : engine.routes()) EXPECT_EQ(route.find("health"), std::string::npos) << name(kind);
  }
}

TEST(Sglang, engine_that_is_not_ready_though_nobody_paused_it_is_asked_for_a_token_and_paused_if_it_makes_none) {
  Operation doubting = operation(read_state);
  doubting.doubt_pause = true;
  const Strings asked_for_one{"GET /server_info", "GET /model_info", "GET /ready", "POST /generate"};
  const auto paused_after = [&](HttpResult generated) {
    ScriptedEngine engine = serving("7");
    engine.on("POST /generate", std::move(generated));
    const Outcome outcome = engine.run(DialectKind::sglang, {doubting, {}});
    EXPECT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_EQ(engine.routes(), asked_for_one);
    EXPECT_EQ(engine.asked.back().at_most, limits::kPauseDoubtAtMost);
    return !outcome.reading || outcome.reading->paused;
  };
  EXPECT_FALSE(paused_after(answer(200, R"({"text":"a","meta_info":{"id":"x"}})")));  // only unwell
  EXPECT_TRUE(paused_after(lost(TransportError::Kind::timeout)));
  EXPECT_TRUE(paused_after(lost(TransportError::Kind::reset)));
  EXPECT_TRUE(paused_after(answer(401, "")));
  EXPECT_TRUE(paused_after(answer(503, "")));
}

TEST(Sglang, engine_that_is_ready_or_was_paused_by_the_asker_is_not_asked_for_a_token) {
  Operation doubting = operation(read_state);
  doubting.doubt_pause = true;
  ScriptedEngine well = serving("7", 200);
  EXPECT_FALSE(well.run(DialectKind::sglang, {doubting, {}}).reading->paused);
  EXPECT_EQ(well.routes().size(), 3u);
  ScriptedEngine held = serving("7");
  EXPECT_TRUE(held.run(DialectKind::sglang, {operation(read_state), {}}).reading->paused);
  EXPECT_EQ(held.routes().size(), 3u);
}

TEST(Sglang, state_is_read_behind_the_scheduler_and_a_barrier_does_so_on_a_fresh_connection) {
  for (const OperationKind kind : {read_state, barrier}) {
    ScriptedEngine engine = serving("7");
    const Outcome outcome = engine.run(DialectKind::sglang, task(kind));
    ASSERT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_EQ(outcome.reading->incarnation, "1764412345.25");
    EXPECT_EQ(outcome.reading->label, "7");
    EXPECT_EQ(outcome.reading->model_path, "/models/start") << "and not what it loaded last";
    EXPECT_TRUE(outcome.reading->paused);
    Strings routes{"GET /server_info", "GET /model_info", "GET /ready"};
    if (kind == barrier) routes.insert(routes.begin(), "GET /server_info");  // asked again behind its own answer
    EXPECT_EQ(engine.routes(), routes);
    EXPECT_EQ(engine.asked[0].fresh_connection, kind == barrier);
  }
  ScriptedEngine running = serving("7", 200);
  EXPECT_FALSE(running.run(DialectKind::sglang, task(read_state)).reading->paused);
}

TEST(Sglang, start_time_that_is_an_object_is_told_by_a_short_text_of_its_own) {
  const auto incarnation = [](const std::string& startup_time) {
    ScriptedEngine engine;
    engine.on("GET /server_info", answer(200, R"({"startup_time":)" + startup_time + "}"))
        .on("GET /model_info", answer(200, R"({"weight_version":"7"})"))
        .on("GET /ready", answer(200, ""));
    return engine.run(DialectKind::sglang, task(read_state)).reading->incarnation;
  };
  EXPECT_EQ(incarnation(R"({"tokenizer_e2e":116.98})").size(), 16U);
  EXPECT_EQ(incarnation(R"({"tokenizer_e2e":116.98})"), incarnation(R"({ "tokenizer_e2e": 116.98 })"));
  EXPECT_NE(incarnation(R"({"tokenizer_e2e":116.98})"), incarnation(R"({"tokenizer_e2e":116.99})"));
  EXPECT_EQ(incarnation("\"2026-11-29\""), "2026-11-29");
  EXPECT_EQ(incarnation("null"), "");
}

TEST(Sglang, verify_reaches_spot_when_a_differing_tensor_agrees) {
  ScriptedEngine engine = serving("7");
  engine.on("POST /get_weights_by_name", answer(200, "[1.0,0.5,-2.0,0.25]"));
  engine.on("POST /get_weights_by_name", answer(400, R"({"error":{"message":"Get parameter by name failed"}})"));
  const Outcome outcome = engine.run(DialectKind::sglang, verify_task(Evidence::spot));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(outcome.evidence, Evidence::spot);
  EXPECT_FALSE(outcome.vacuous);
  EXPECT_EQ(engine.body(3), R"({"name":"model.norm.weight","truncate_size":4})");
  EXPECT_EQ(engine.body(4), R"({"name":"model.layers.0.self_attn.q_proj.weight","truncate_size":2})");
}

TEST(Sglang, verify_names_the_tensor_and_both_values_that_differ) {
  ScriptedEngine engine = serving("7");
  engine.on("POST /get_weights_by_name", answer(200, "[1.0,0.75,-2.0,0.25]"));
  const Outcome outcome = engine.run(DialectKind::sglang, verify_task(Evidence::spot));
  EXPECT_EQ(outcome.kind, OutcomeKind::mismatch);
  EXPECT_NE(outcome.text.find("tensor 'model.norm.weight': value 1 is 0.75, the version's is 0.5"), std::string::npos)
      << outcome.text;
  EXPECT_TRUE(outcome.reading->paused);
}

TEST(Sglang, verify_without_a_comparable_tensor_is_vacuous_and_counts_as_label) {
  ScriptedEngine engine = serving("7");
  engine.on("POST /get_weights_by_name", answer(400, R"({"error":{"message":"Get parameter by name failed"}})"));
  const Outcome outcome = engine.run(DialectKind::sglang, verify_task(Evidence::checksum));
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome.evidence, Evidence::label);
  EXPECT_TRUE(outcome.vacuous);
}

TEST(Sglang, verify_of_the_label_alone_compares_no_tensor_and_a_strange_label_is_a_mismatch) {
  ScriptedEngine engine = serving("7");
  const Outcome outcome = engine.run(DialectKind::sglang, verify_task(Evidence::label));
  EXPECT_EQ(outcome.evidence, Evidence::label);
  EXPECT_FALSE(outcome.vacuous);
  EXPECT_EQ(engine.asked.size(), 3U);

  ScriptedEngine strange = serving("6");
  const Outcome mismatch = strange.run(DialectKind::sglang, verify_task(Evidence::spot));
  EXPECT_EQ(mismatch.kind, OutcomeKind::mismatch);
  EXPECT_NE(mismatch.text.find("'6', which should be '7'"), std::string::npos) << mismatch.text;
  EXPECT_EQ(mismatch.reading->label, "6");
}

TEST(Sglang, probe_wants_a_token_with_a_finite_probability) {
  const std::vector<std::pair<std::string, OutcomeKind>> answers = {
      {R"({"text":"a","meta_info":{"output_token_logprobs":[[-1.5,68,null]]}})", OutcomeKind::ok},
      {R"({"text":"a","meta_info":{"output_token_logprobs":[[null,68,null]]}})", OutcomeKind::mismatch},
      {R"({"text":"","meta_info":{"output_token_logprobs":[]}})", OutcomeKind::mismatch},
      {R"({"text":"","meta_info":{}})", OutcomeKind::mismatch},
      {R"({"text":"","meta_info":null})", OutcomeKind::mismatch},
      {R"({"text":""})", OutcomeKind::unknown}};
  for (const auto& [body, kind] : answers) {
    ScriptedEngine engine;
    engine.on("POST /generate", answer(200, body));
    const Outcome outcome = engine.run(DialectKind::sglang, task(probe));
    EXPECT_EQ(name(outcome.kind), name(kind)) << body;
    EXPECT_EQ(outcome.evidence == Evidence::probe, kind == OutcomeKind::ok);
  }
}

TEST(Sglang, adapter_is_loaded_and_unloaded_with_the_fields_that_all_releases_know) {
  ScriptedEngine engine;
  engine
      .on("POST /load_lora_adapter",
          answer(200,
                 R"({"success":true,"error_message":null,"loaded_adapters":{"p-v6":"/w/v1","policy-v7":"/w/v2"}})"))
      .on("POST /unload_lora_adapter",
          answer(200, R"({"success":true,"error_message":"","loaded_adapters":{"p-v6":"/w/v1"}})"));
  EXPECT_TRUE(engine.run(DialectKind::sglang, task(load_adapter)).ok());
  EXPECT_TRUE(engine.run(DialectKind::sglang, task(unload_adapter)).ok());
  EXPECT_EQ(engine.routes(), (Strings{"POST /load_lora_adapter", "POST /unload_lora_adapter"}));
  EXPECT_EQ(engine.body(0), R"({"lora_name":"policy-v7","lora_path":"/w/v2"})");
  EXPECT_EQ(engine.body(1), R"({"lora_name":"policy-v7"})");
}

TEST(Sglang, success_that_does_not_list_the_loaded_adapter_or_lists_the_unloaded_one_is_not_believed) {
  for (const char* lists : {"null", "{}", R"({"policy-v70":"/w/v2"})", R"(["policy-v7"])"}) {
    ScriptedEngine engine;
    engine.on("POST /load_lora_adapter",
              answer(200, R"({"success":true,"error_message":"","loaded_adapters":)" + std::string(lists) + "}"));
    const Outcome outcome = engine.run(DialectKind::sglang, task(load_adapter));
    EXPECT_EQ(outcome.kind, OutcomeKind::unknown) << lists;
    EXPECT_EQ(outcome.code, ErrorCode::bad_answer) << lists;
  }
  for (const char* lists : {"null", R"({"policy-v7":"/w/v2"})"}) {
    ScriptedEngine engine;
    engine.on("POST /unload_lora_adapter",
              answer(200, R"({"success":true,"error_message":"","loaded_adapters":)" + std::string(lists) + "}"));
    EXPECT_EQ(engine.run(DialectKind::sglang, task(unload_adapter)).kind, OutcomeKind::unknown) << lists;
  }
}

TEST(Sglang, adapters_are_listed_behind_the_scheduler_with_their_directories_and_the_greatest_rank) {
  ScriptedEngine engine;
  engine.on("GET /server_info", answer(200, R"({"startup_time":1,"max_lora_rank":8})"))
      .on("GET /model_info", answer(200, R"({"model_path":"/w/v1","weight_version":"default"})"))
      .on("GET /ready", answer(200, ""))
      .on("GET /v1/models",
          answer(200, R"({"data":[{"id":"/w/v1","root":"/w/v1","parent":null},)"
                      R"({"id":"policy-v7","root":"/w/v7","parent":"/w/v1"},{"id":"other","parent":"/w/v1"}]})"));
  const Outcome outcome = engine.run(DialectKind::sglang, task(list_adapters));
  ASSERT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(engine.routes(), (Strings{"GET /server_info", "GET /model_info", "GET /ready", "GET /v1/models"}));
  ASSERT_TRUE(outcome.reading->adapters);
  ASSERT_EQ(outcome.reading->adapters->size(), 2U);
  EXPECT_EQ(outcome.reading->adapters->at(0).name, "policy-v7");
  EXPECT_EQ(outcome.reading->adapters->at(0).directory, "/w/v7");
  EXPECT_EQ(outcome.reading->adapters->at(1).directory, "");
  EXPECT_EQ(outcome.reading->adapter_rank_max, 8);
  EXPECT_EQ(outcome.reading->label, "default");
}

TEST(Sglang, list_of_adapters_that_is_none_is_not_taken_for_an_empty_one) {
  for (const HttpResult& models : {HttpResult(answer(200, R"({"data":null})")), HttpResult(answer(200, "{}")),
                                   HttpResult(answer(500, "no")), HttpResult(lost(TransportError::Kind::timeout))}) {
    ScriptedEngine engine = serving("7");
    engine.on("GET /v1/models", models);
    const Outcome outcome = engine.run(DialectKind::sglang, task(list_adapters));
    EXPECT_EQ(outcome.kind, OutcomeKind::unknown) << outcome.text;
    EXPECT_FALSE(outcome.reading.has_value());
  }
  ScriptedEngine none = serving("7");
  none.on("GET /v1/models", answer(200, R"({"data":[{"id":"/w/v1","parent":null}]})"));
  const Outcome outcome = none.run(DialectKind::sglang, task(list_adapters));
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome.reading->adapters && outcome.reading->adapters->empty());
  EXPECT_FALSE(outcome.reading->adapter_rank_max.has_value());
  EXPECT_FALSE(serving("7").run(DialectKind::sglang, task(read_state)).reading->adapters.has_value());
}

TEST(Sglang, empty_load_is_a_vllm_step) {
  ScriptedEngine engine;
  EXPECT_EQ(engine.run(DialectKind::sglang, task(load_empty)).code, ErrorCode::not_supported);
  EXPECT_TRUE(engine.asked.empty());
}

}  // namespace
}  // namespace weighlock
