#include "scenario.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "checkpoint.hpp"
#include "weighlock/core/json.hpp"
#include "weighlock/core/words.hpp"

namespace weighlock::contract {
namespace {

const json::value* at(const json::value* value, std::string_view key) {
  return value ? find(*value, key) : nullptr;
}

const json::array* list_at(const json::value* value, std::string_view key) {
  const json::value* member = at(value, key);
  return member ? member->if_array() : nullptr;
}

std::string token_text(const json::value& token) {
  return token.is_string() ? std::string(token.get_string().data(), token.get_string().size()) : json::serialize(token);
}

void read_sglang(const json::value& body, Generation& out) {
  const json::value* meta = find(body, "meta_info");
  const json::value* reason = at(meta, "finish_reason");
  if (const auto type = reason ? find_string(*reason, "type") : std::nullopt) out.finish = *type;
  const json::array* tokens = list_at(meta, "output_token_logprobs");
  if (!tokens) return;
  for (const json::value& token : *tokens) {
    const json::array* pair = token.if_array();
    if (!pair || pair->size() < 2) continue;
    out.logprobs.push_back(pair->at(0).is_number() ? pair->at(0).to_number<double>() : 0.0);
    out.tokens.push_back(token_text(pair->at(1)));
  }
}

void read_vllm(const json::value& body, Generation& out) {
  const json::array* choices = list_at(&body, "choices");
  if (!choices || choices->empty()) return;
  const json::value& choice = choices->front();
  if (const auto finish = find_string(choice, "finish_reason")) out.finish = *finish;
  const json::value* logprobs = find(choice, "logprobs");
  if (const json::array* tokens = list_at(logprobs, "tokens")) {
    for (const json::value& token : *tokens) out.tokens.push_back(token_text(token));
  }
  if (const json::array* values = list_at(logprobs, "token_logprobs")) {
    for (const json::value& value : *values)
      out.logprobs.push_back(value.is_number() ? value.to_number<double>() : 0.0);
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Generation& generation) {
  out << generation.status << " " << generation.finish << " " << generation.words;
  for (std::size_t i = 0; i < generation.tokens.size() && i < 8; ++i)
    out << " " << generation.tokens[i] << ":" << (i < generation.logprobs.size() ? generation.logprobs[i] : 0.0);
  return out;
}

void Scenario::SetUp() {
  engine_ = LiveEngine::from_environment();
  if (!engine_) GTEST_SKIP() << "WEIGHLOCK_ENGINE_URL names no engine";
  const char* models = std::getenv("WEIGHLOCK_ENGINE_MODELS");
  ASSERT_TRUE(models) << "WEIGHLOCK_ENGINE_MODELS names no directory";
  models_ = models;
  const char* good = std::getenv("WEIGHLOCK_ENGINE_GOOD");
  const std::string pair = good && *good ? good : "v1,v2";
  first_ = pair.substr(0, pair.find(','));
  second_ = pair.substr(pair.find(',') + 1);
  ASSERT_TRUE(has_model(first_) && has_model(second_)) << models_ << " has no " << pair;
  bring_to(first_);
}

void Scenario::TearDown() {
  if (!engine_ || IsSkipped()) return;
  bring_to(first_);
}

std::string Scenario::path(const std::string& model) const {
  return models_ + "/" + model;
}

bool Scenario::has_model(const std::string& model) const {
  return std::filesystem::is_directory(path(model));
}

EngineTask Scenario::task(OperationKind kind) const {
  EngineTask made;
  made.operation.kind = kind;
  return made;
}

EngineTask Scenario::load_task(const std::string& model, PauseMode mode) const {
  EngineTask made = task(OperationKind::load);
  made.operation.directory = path(model);
  made.operation.label = "label of " + model;
  made.operation.pause_mode = mode;
  return made;
}

Outcome Scenario::pause(PauseMode mode) {
  EngineTask made = task(OperationKind::pause);
  made.operation.pause_mode = mode;
  return engine_->run(made);
}

Outcome Scenario::resume() {
  return engine_->run(task(OperationKind::resume));
}

Outcome Scenario::load(const std::string& model, PauseMode mode) {
  return engine_->run(load_task(model, mode));
}

Outcome Scenario::set_label(const std::string& label) {
  EngineTask made = task(OperationKind::set_label);
  made.operation.label = label;
  return engine_->run(made);
}

Outcome Scenario::flush(PauseMode mode) {
  EngineTask made = task(OperationKind::flush);
  made.operation.pause_mode = mode;
  return engine_->run(made);
}

Outcome Scenario::verify(const std::string& model, Evidence evidence) {
  EngineTask made = task(OperationKind::verify);
  made.operation.directory = path(model);
  made.operation.evidence = evidence;
  made.operation.label = "label of " + model;
  made.expectations = expectations_of(path(model));
  return engine_->run(made);
}

StateReading Scenario::read() {
  const Outcome outcome = engine_->run(task(OperationKind::read_state));
  EXPECT_TRUE(outcome.ok()) << told(outcome);
  return outcome.reading.value_or(StateReading{});
}

Outcome Scenario::barrier() {
  return engine_->run(task(OperationKind::barrier));
}

Outcome Scenario::switch_to(const std::string& model, PauseMode mode) {
  Outcome outcome = load(model, mode);
  if (outcome.ok() && !engine_->can().load_sets_label) outcome = set_label("label of " + model);
  if (outcome.ok() && !engine_->can().load_flushes && mode != PauseMode::keep) outcome = flush(mode);
  if (!outcome.ok()) return outcome;
  return verify(model, engine_->can().evidence_best);
}

Outcome Scenario::heal_to(const std::string& model) {
  Outcome outcome = switch_to(model);
  if (outcome.ok() || outcome.needs_restart || !engine_->can().heal_needs_empty_load) return outcome;
  EngineTask empty = load_task("empty");
  empty.operation.kind = OperationKind::load_empty;
  outcome = engine_->run(empty);
  return outcome.ok() ? switch_to(model) : outcome;
}

void Scenario::bring_to(const std::string& model) {
  const Outcome settled = barrier();
  ASSERT_TRUE(settled.ok()) << told(settled);
  const Outcome paused = pause();
  ASSERT_TRUE(paused.ok()) << told(paused);
  const Outcome healed = heal_to(model);
  ASSERT_TRUE(healed.ok()) << told(healed);
  const Outcome resumed = resume();
  ASSERT_TRUE(resumed.ok()) << told(resumed);
}

std::unique_ptr<Wire::Call> Scenario::begin_generation(int tokens, const std::string& adapter) {
  const json::array prompt{5, 40, 77};
  HttpRequest request{"POST", "", {{"Content-Type", "application/json"}}, ""};
  if (is(DialectKind::sglang)) {
    request.target = "/generate";
    json::object body{{"input_ids", prompt},
                      {"sampling_params", {{"max_new_tokens", tokens}, {"temperature", 0.0}, {"ignore_eos", true}}},
                      {"return_logprob", true}};
    if (!adapter.empty()) body["lora_path"] = adapter;
    request.body = json::serialize(body);
  } else {
    request.target = "/v1/completions";
    request.body = json::serialize(json::object{{"model", adapter.empty() ? "policy" : adapter},
                                                {"prompt", prompt},
                                                {"max_tokens", tokens},
                                                {"temperature", 0.0},
                                                {"ignore_eos", true},
                                                {"logprobs", 1}});
  }
  return engine_->send(std::move(request));
}

Generation Scenario::read_generation(const HttpResult& result) const {
  Generation out;
  if (const TransportError* error = std::get_if<TransportError>(&result)) {
    out.words = error->text;
    return out;
  }
  const HttpResponse& response = std::get<HttpResponse>(result);
  out.status = response.status;
  const Result<json::value> body = parse_json(response.body, "generation");
  if (response.status != 200 || !body) {
    out.words = words_of(response.body, 200);
    return out;
  }
  is(DialectKind::sglang) ? read_sglang(*body, out) : read_vllm(*body, out);
  return out;
}

Generation Scenario::fingerprint(const std::string& adapter) {
  const Outcome flushed = flush();
  EXPECT_TRUE(flushed.ok()) << told(flushed);
  return read_generation(begin_generation(4, adapter)->wait());
}

std::unique_ptr<Wire::Call> Scenario::begin_running(int tokens, const std::string& adapter) {
  for (int i = 0; i < 20; ++i) {
    auto generation = begin_generation(tokens, adapter);
    // The flush is refused while a request runs; that is the only sign that both dialects give.
    while (!generation->wait(Milliseconds(0))) {
      if (!flush().ok()) return generation;
    }
  }
  ADD_FAILURE() << "no generation of " << tokens
                << " tokens was seen running: each had ended before a flush was refused";
  return nullptr;
}

void Scenario::measured(const std::string& what, const std::string& value) {
  RecordProperty(what, value);
  std::cout << "measured: " << what << ": " << value << std::endl;
}

std::string Scenario::told(const Outcome& outcome) {
  return fmt::format("{}{} evidence={}{} \"{}\"", name(outcome.kind), outcome.needs_restart ? ", needs a restart" : "",
                     name(outcome.evidence), outcome.vacuous ? " (vacuous)" : "", outcome.text);
}

}  // namespace weighlock::contract
