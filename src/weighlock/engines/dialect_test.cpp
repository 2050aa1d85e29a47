#include "weighlock/engines/dialect.hpp"

#include <gtest/gtest.h>

#include "weighlock/engines/scripted_engine.hpp"

namespace weighlock {
namespace {

using enum OperationKind;
using enum TransportError::Kind;

constexpr DialectKind kBoth[] = {DialectKind::sglang, DialectKind::vllm};
constexpr OperationKind kChanging[] = {pause, set_label, load, flush, resume, load_adapter, unload_adapter};

EngineTask task(OperationKind kind, Credentials credentials = {}) {
  return EngineTask{operation(kind), std::move(credentials)};
}

// An engine of either kind that answers the reads a load begins with, and `result` to each change.
ScriptedEngine answering_changes(const HttpResult& result) {
  ScriptedEngine engine;
  engine.on("GET /get_world_size", answer(200, R"({"world_size":1})"));
  for (const char* route :
       {"/pause_generation", "/continue_generation", "/flush_cache?timeout=0", "/update_weights_from_disk",
        "/update_weight_version", "/pause?mode=abort&clear_cache=true", "/resume", "/collective_rpc",
        "/reset_prefix_cache?reset_running_requests=false", "/load_lora_adapter", "/unload_lora_adapter",
        "/v1/load_lora_adapter", "/v1/unload_lora_adapter"})
    engine.on(std::string("POST ") + route, result);
  return engine;
}

TEST(Dialect, change_that_was_never_sent_happened_not_and_any_other_lost_one_is_unknown) {
  for (const DialectKind dialect : kBoth) {
    for (const OperationKind kind : kChanging) {
      EXPECT_EQ(answering_changes(lost(refused, true)).run(dialect, task(kind)).kind, OutcomeKind::not_sent)
          << name(kind);
      for (const auto error : {reset, timeout, malformed, too_large, cancelled}) {
        const Outcome outcome = answering_changes(lost(error)).run(dialect, task(kind));
        EXPECT_EQ(outcome.kind, OutcomeKind::unknown) << name(dialect) << " " << name(kind) << " " << name(error);
        EXPECT_NE(outcome.text.find(name(error)), std::string::npos) << outcome.text;
      }
    }
  }
}

TEST(Dialect, read_after_the_change_that_was_never_sent_does_not_undo_the_change) {
  ScriptedEngine engine;
  engine.on("POST /continue_generation", answer(200, R"({"status":"ok"})")).on("GET /ready", lost(refused, true));
  EXPECT_EQ(engine.run(DialectKind::sglang, task(resume)).kind, OutcomeKind::unknown);
}

TEST(Dialect, refused_key_is_final_names_the_key_and_never_its_value) {
  for (const DialectKind dialect : kBoth) {
    for (const int status : {401, 403}) {
      ScriptedEngine engine = answering_changes(answer(status, R"({"error":"Unauthorized: Bearer sekret-admin"})"));
      const Outcome outcome = engine.run(dialect, task(pause, {"sekret-admin", "sekret-api"}));
      EXPECT_EQ(outcome.kind, OutcomeKind::untouched);
      EXPECT_EQ(outcome.code, ErrorCode::permission_denied);
      EXPECT_EQ(engine.asked.size(), 1U) << "not repeated";
      EXPECT_NE(outcome.text.find("admin_key"), std::string::npos) << outcome.text;
      EXPECT_EQ(outcome.text.find("sekret"), std::string::npos) << outcome.text;
    }
  }
  ScriptedEngine engine;
  engine.on("GET /server_info", answer(401, R"({"error":"Unauthorized"})"));
  const Outcome outcome = engine.run(DialectKind::sglang, task(read_state));
  EXPECT_EQ(outcome.code, ErrorCode::permission_denied);
  EXPECT_NE(outcome.text.find("asks for a key: set the worker's api_key"), std::string::npos) << outcome.text;
}

TEST(Dialect, text_of_an_engine_that_echoes_a_key_is_cleaned) {
  ScriptedEngine engine = answering_changes(answer(500, "headers: Bearer sekret-admin"));
  EXPECT_EQ(engine.run(DialectKind::sglang, task(pause, {"sekret-admin", ""})).text.find("sekret"), std::string::npos);
}

TEST(Dialect, control_calls_take_the_admin_key_reads_and_generation_the_api_key_and_one_key_alone_serves_both) {
  struct Case {
    Credentials given;
    std::string control;
    std::string read;
  };
  const Case cases[] = {{{"ak", "nk"}, "Bearer ak", "Bearer nk"},
                        {{"ak", ""}, "Bearer ak", "Bearer ak"},
                        {{"", "nk"}, "Bearer nk", "Bearer nk"},
                        {{"", ""}, "", ""}};
  for (const Case& c : cases) {
    for (const OperationKind kind : kChanging) {
      ScriptedEngine engine;
      engine.run(DialectKind::sglang, task(kind, c.given));
      EXPECT_EQ(engine.authorization(0), c.control) << name(kind);
    }
    for (const OperationKind kind : {read_state, probe, list_adapters}) {
      ScriptedEngine engine;
      engine.run(DialectKind::sglang, task(kind, c.given));
      EXPECT_EQ(engine.authorization(0), c.read) << name(kind);
    }
    ScriptedEngine engine;
    engine.run(DialectKind::vllm, task(probe, c.given));
    EXPECT_EQ(engine.authorization(0), c.read);
  }
}

TEST(Dialect, changing_request_is_asked_for_on_a_recent_connection) {
  for (const DialectKind dialect : kBoth) {
    for (const OperationKind kind : kChanging) {
      ScriptedEngine engine = answering_changes(answer(500, ""));
      engine.run(dialect, task(kind));
      EXPECT_TRUE(engine.asked.back().recent_connection) << name(dialect) << " " << name(kind);
    }
  }
}

TEST(Dialect, identify_tells_the_engines_apart_by_reads_only) {
  ScriptedEngine sglang;
  sglang.on("GET /model_info", answer(200, R"({"model_path":"/w/v1","weight_version":"default"})"))
      .on("GET /server_info", answer(200, R"({"startup_time":12.5})"))
      .on("GET /ready", answer(200, ""));
  const Outcome first = sglang.run(*start_identify({}));
  ASSERT_TRUE(first.ok()) << first.text;
  EXPECT_EQ(first.dialect, DialectKind::sglang);
  EXPECT_EQ(first.reading->label, "default");

  ScriptedEngine vllm;
  vllm.on("GET /version", answer(200, R"({"version":"0.32.0"})"))
      .on("GET /is_paused", answer(200, R"({"is_paused":false})"))
      .on("GET /weight_info", answer(200, R"({"weight_version":"default"})"));
  const Outcome second = vllm.run(*start_identify({}));
  ASSERT_TRUE(second.ok()) << second.text;
  EXPECT_EQ(second.dialect, DialectKind::vllm);

  for (const ScriptedEngine* engine : {&sglang, &vllm}) {
    for (const Step& step : engine->asked) EXPECT_EQ(step.request.method, "GET");
  }
}

TEST(Dialect, identify_of_a_vllm_without_its_control_routes_says_how_to_start_it) {
  ScriptedEngine engine;
  engine.on("GET /version", answer(200, R"({"version":"0.32.0"})"));
  const Outcome outcome = engine.run(*start_identify({}));
  EXPECT_EQ(outcome.code, ErrorCode::not_supported);
  EXPECT_EQ(outcome.dialect, DialectKind::vllm);
  EXPECT_NE(outcome.text.find("VLLM_SERVER_DEV_MODE=1"), std::string::npos) << outcome.text;
}

TEST(Dialect, identify_of_a_keyed_sglang_needs_no_key_for_the_route_that_it_does_not_know) {
  ScriptedEngine engine;
  engine.on("GET /version", answer(401, R"({"error":"Unauthorized"})"))
      .on("GET /model_info", answer(401, R"({"error":"Unauthorized"})"));
  const Outcome outcome = engine.run(*start_identify({}));
  EXPECT_EQ(outcome.code, ErrorCode::permission_denied);
  EXPECT_FALSE(outcome.dialect.has_value());
}

TEST(Dialect, identify_of_a_stranger_names_no_dialect) {
  ScriptedEngine engine;
  engine.on("GET /version", answer(200, "v1")).on("GET /model_info", answer(404, "no"));
  const Outcome outcome = engine.run(*start_identify({}));
  EXPECT_EQ(outcome.kind, OutcomeKind::untouched);
  EXPECT_FALSE(outcome.dialect.has_value());
  EXPECT_NE(outcome.text.find("neither SGLang nor vLLM"), std::string::npos);
}

TEST(Dialect, barriers_cover_what_was_measured_and_not_the_drain_of_wait) {
  EXPECT_TRUE(traits(DialectKind::sglang).has_barrier(load, PauseMode::retract));
  EXPECT_TRUE(traits(DialectKind::vllm).has_barrier(load_empty, PauseMode::keep));
  EXPECT_TRUE(traits(DialectKind::vllm).has_barrier(pause, PauseMode::abort));
  EXPECT_FALSE(traits(DialectKind::vllm).has_barrier(pause, PauseMode::wait));
  EXPECT_FALSE(traits(DialectKind::sglang).has_barrier(load_empty, PauseMode::abort));
}

}  // namespace
}  // namespace weighlock
