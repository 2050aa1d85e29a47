#include "weighlock/engines/sglang.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "weighlock/core/limits.hpp"
#include "weighlock/engines/adapters.hpp"
#include "weighlock/engines/evidence.hpp"
#include "weighlock/engines/exchange.hpp"

namespace weighlock::sglang {
namespace {

using enum OperationKind;

constexpr std::string_view word(PauseMode mode) {
  switch (mode) {
    case PauseMode::abort:
      return "abort";
    case PauseMode::keep:
      return "in_place";
    case PauseMode::retract:
      return "retract";
    case PauseMode::wait:
      return "";
  }
  return "";
}

// startup_time as a short text: only its being another one means something. In 0.5.23 it is an object of durations in
// nanoseconds, measured while the engine started; two starts don't have the same.
std::string as_text(const json::value* value) {
  if (!value || value->is_null()) return "";
  if (value->is_string()) return std::string(value->get_string().data(), value->get_string().size());
  if (const double* number = value->if_double()) return fmt::format("{}", *number);
  const std::string text = json::serialize(*value);
  return value->is_object() ? fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())) : text;
}

class Talk final : public Exchange {
 public:
  explicit Talk(EngineTask task) : Exchange(sglang_table(), std::move(task)) {}

 private:
  Turn start() override {
    switch (operation().kind) {
      case pause:
        return simple("/pause_generation", json::object{{"mode", word(operation().pause_mode)}});
      case set_label:
        return label();
      case load:
        return load_directory();
      case flush:
        return simple("/flush_cache?timeout=0", json::object());
      case resume:
        return resume_generation();
      case probe:
        return generate();
      case load_adapter:
        return change_adapter("/load_lora_adapter",
                              json::object{{"lora_name", operation().adapter}, {"lora_path", operation().directory}});
      case unload_adapter:
        return change_adapter("/unload_lora_adapter", json::object{{"lora_name", operation().adapter}});
      default:
        return read();
    }
  }

  Turn simple(std::string target, json::object body) {
    return ask(post(std::move(target), std::move(body), Key::admin, Effect::changes),
               [this](const Answer& answer) -> Turn { return judge(operation().kind, answer); });
  }

  Turn label() {
    json::object body{{"new_version", operation().label}, {"abort_all_requests", false}};  // its default, true, aborts
    return ask(post("/update_weight_version", std::move(body), Key::admin, Effect::changes),
               [this](const Answer& answer) -> Turn {
                 Outcome outcome = judge(set_label, answer);
                 if (!outcome.ok() || find_string(*answer.json, "new_version") == operation().label) return outcome;
                 return failed(
                     OutcomeKind::unknown, ErrorCode::bad_answer,
                     fmt::format("was sent the label '{}' and answered \"{}\"", operation().label, answer.words()));
               });
  }

  Turn load_directory() {
    // Every field is sent: defaults differ between releases. In mode keep running requests hold the caches, and a flush
    // that can't be done makes the engine answer 400 after it took the weights.
    json::object body{{"model_path", operation().directory},
                      {"load_format", nullptr},
                      {"abort_all_requests", false},
                      {"weight_version", operation().label},
                      {"is_async", false},
                      {"torch_empty_cache", false},
                      {"keep_pause", false},
                      {"recapture_cuda_graph", false},
                      {"token_step", 0},
                      {"flush_cache", operation().pause_mode != PauseMode::keep},
                      {"manifest", nullptr}};
    return simple("/update_weights_from_disk", std::move(body));
  }

  // Exactly these fields: what AReaL's gateway sends, and all releases know. A success lists what is loaded afterwards:
  // that must agree.
  Turn change_adapter(std::string target, json::object body) {
    return ask(
        post(std::move(target), std::move(body), Key::admin, Effect::changes), [this](const Answer& answer) -> Turn {
          Outcome outcome = judge(operation().kind, answer);
          if (!outcome.ok()) return outcome;
          const json::value* loaded = find(*answer.json, "loaded_adapters");
          const bool lists = loaded && loaded->is_object();
          const bool named = lists && loaded->get_object().contains(operation().adapter);
          if (operation().kind == load_adapter ? named : lists && !named) return outcome;
          return failed(
              OutcomeKind::unknown, ErrorCode::bad_answer,
              fmt::format("was asked to {} '{}' and answered \"{}\", which lists {}",
                          operation().kind == load_adapter ? "load" : "unload", operation().adapter, answer.words(),
                          !lists  ? "no adapters"
                          : named ? "it still"
                                  : "it not"));
        });
  }

  Turn resume_generation() {
    return ask(post("/continue_generation", json::object{{"torch_empty_cache", true}}, Key::admin, Effect::changes),
               [this](const Answer& answer) -> Turn {
                 Outcome outcome = judge(resume, answer);
                 if (!outcome.ok()) return outcome;
                 return check_ready(true);
               });
  }

  // A /health that somebody sent during the pause leaves /ready at 503 until one succeeds. It is only sent here, after
  // the continue, because it hangs while the engine is paused.
  Turn check_ready(bool may_heal) {
    return ask(get("/ready", Key::api), [this, may_heal](const Answer& answer) -> Turn {
      // 200, or 404 in releases that don't have it
      if (answer.status != 503) return operation().brief ? read_label() : Turn(done());
      if (!may_heal)
        return failed(OutcomeKind::unknown, ErrorCode::worker_failed,
                      "answered 503 after the engine had continued and was healthy");
      return ask(get("/health", Key::api), [this](const Answer& health) -> Turn {
        if (health.status / 100 == 2) return check_ready(false);
        return failed(OutcomeKind::unknown, ErrorCode::worker_failed,
                      fmt::format("answered {} after the engine had continued", health.status));
      });
    });
  }

  static Ask one_token() {
    json::object body{{"input_ids", json::array{1}},
                      {"sampling_params", {{"max_new_tokens", 1}, {"temperature", 0.0}, {"ignore_eos", true}}},
                      {"return_logprob", true},
                      {"logprob_start_len", -1},
                      {"stream", false}};
    return post("/generate", std::move(body), Key::api, Effect::reads);
  }

  Turn generate() {
    return ask(one_token(), [this](const Answer& answer) -> Turn {
      Outcome outcome = judge(probe, answer);
      if (!outcome.ok()) return outcome;
      if (!token_is_sound(*answer.json))
        return failed(OutcomeKind::mismatch, ErrorCode::worker_failed,
                      fmt::format("generated no token with a finite probability: \"{}\"", answer.words()));
      outcome.evidence = Evidence::probe;
      return outcome;
    });
  }

  // meta_info.output_token_logprobs is [[logprob, id, text]]; NaN is printed as null.
  static bool token_is_sound(const json::value& body) {
    const json::value* logprobs = find(*find(body, "meta_info"), "output_token_logprobs");
    const json::array* tokens = logprobs ? logprobs->if_array() : nullptr;
    if (!tokens || tokens->empty()) return false;
    const json::array* token = tokens->front().if_array();
    if (!token || token->size() < 2 || !token->front().is_number()) return false;
    return std::isfinite(token->front().to_number<double>());
  }

  // /server_info first: it passes through the scheduler's queue, so what was sent earlier has ended when it answers,
  // and the two reads after it, which the HTTP process answers alone, see the effect. That makes the same reads a
  // barrier, if it is asked twice: what was sent on a connection that was reset since may still be delivered until a
  // later connection was answered, so only a request that is sent after that answer queues behind it for sure.
  Turn read() {
    if (operation().kind == read_state && operation().brief) return read_model();
    Ask info = get("/server_info", Key::api);
    info.fresh = operation().kind == barrier;
    return ask(std::move(info), [this](const Answer& answer) -> Turn {
      Outcome outcome = judge(read_state, answer);
      if (!outcome.ok()) return outcome;
      if (operation().kind == barrier && !std::exchange(asked_twice_, true)) return read();
      reading_.incarnation = as_text(find(*answer.json, "startup_time"));
      // Here it is what the process was started with; in /model_info, what it loaded last.
      reading_.model_path = find_string(*answer.json, "model_path").value_or("");
      if (operation().kind == list_adapters) reading_.adapter_rank_max = find_int(*answer.json, "max_lora_rank");
      return read_model();
    });
  }

  Turn read_model() {
    return ask(get("/model_info", Key::api), [this](const Answer& answer) -> Turn {
      Outcome outcome = take_label(answer);
      if (!outcome.ok()) return outcome;
      return ask(get("/ready", Key::api), [this](const Answer& ready) -> Turn {
        reading_.paused = ready.status == 503;
        if (reading_.paused && operation().doubt_pause) return make_sure();
        return operation().kind == list_adapters ? read_adapters() : have_reading();
      });
    });
  }

  // A 503 of /ready is also said by an engine whose last /health failed, until one succeeds. Asked for a token, such a
  // one makes it, and a paused one lets the request wait. (/health would tell too, but mark a paused engine as unwell.)
  Turn make_sure() {
    Ask token = one_token();
    token.at_most = limits::kPauseDoubtAtMost;
    token.if_unanswered = token.if_refused = [this] { return have_reading(); };
    return ask(std::move(token), [this](const Answer& answer) {
      if (answer.status / 100 == 2) reading_.paused = false;
      return have_reading();
    });
  }

  Outcome take_label(const Answer& answer) {
    Outcome outcome = judge(read_state, answer);
    if (!outcome.ok()) return outcome;
    const auto label = find_string(*answer.json, "weight_version");
    if (!label)
      return failed(OutcomeKind::unknown, ErrorCode::bad_answer, fmt::format("answered \"{}\"", answer.words()));
    reading_.label = *label;
    return outcome;
  }

  // After a resume that was answered and seen in /ready: the rest of a brief reading. The resume is done whatever
  // comes; without a reading the protocol reads again.
  Turn read_label() {
    return ask(get("/model_info", Key::api), [this](const Answer& answer) -> Turn {
      Outcome outcome = done();
      if (take_label(answer).ok()) outcome.reading = reading_;
      return outcome;
    });
  }

  // Last: behind /server_info, what was loaded or unloaded before is in it.
  Turn read_adapters() {
    return ask(get("/v1/models", Key::api), [this](const Answer& answer) -> Turn {
      Outcome outcome = judge(list_adapters, answer);
      if (!outcome.ok()) return outcome;
      reading_.adapters = adapters_of(*answer.json);
      if (reading_.adapters) return have_reading();
      return failed(OutcomeKind::unknown, ErrorCode::bad_answer, fmt::format("answered \"{}\"", answer.words()));
    });
  }

  Turn have_reading() {
    Outcome outcome = done();
    outcome.reading = reading_;
    if (operation().kind == identify) outcome.dialect = DialectKind::sglang;
    if (operation().kind != verify) return outcome;
    if (!operation().label.empty() && reading_.label != operation().label) {
      outcome = failed(OutcomeKind::mismatch, ErrorCode::worker_failed,
                       fmt::format("and /model_info answered, but the label is '{}', which should be '{}'",
                                   reading_.label, operation().label));
      outcome.reading = reading_;
      return outcome;
    }
    return compare_next();
  }

  Turn compare_next() {
    const bool wanted = operation().evidence >= Evidence::spot && expectations() != nullptr;
    while (wanted && next_tensor_ < expectations()->tensors.size() && asked_ < limits::kSpotTensorsMax) {
      const TensorExpectation& tensor = expectations()->tensors[next_tensor_++];
      if (tensor.leading.empty()) continue;
      ++asked_;
      const std::size_t count = tensor.shape.size() == 1 ? tensor.leading.size() : rows_needed(tensor);
      json::object body{{"name", tensor.name}, {"truncate_size", count}};
      return ask(post("/get_weights_by_name", std::move(body), Key::admin, Effect::reads),
                 [this, &tensor](const Answer& answer) {
                   // Any other answer means that this tensor can't be had (fused, renamed), which isn't a fault.
                   if (answer.status == 200 && answer.json) compare_leading(tensor, *answer.json, findings_);
                   return compare_next();
                 });
    }
    return verdict();
  }

  Turn verdict() {
    Outcome outcome = done();
    if (!findings_.mismatch.empty())
      outcome = failed(OutcomeKind::mismatch, ErrorCode::worker_failed, "answered, but " + findings_.mismatch);
    outcome.reading = reading_;
    outcome.evidence = operation().label.empty() ? Evidence::acknowledged : Evidence::label;
    if (operation().evidence >= Evidence::spot && outcome.ok()) {
      if (findings_.differing > 0) outcome.evidence = Evidence::spot;
      outcome.vacuous = findings_.differing == 0;
    }
    return outcome;
  }

  StateReading reading_;
  bool asked_twice_ = false;
  std::size_t next_tensor_ = 0;
  std::size_t asked_ = 0;
  Findings findings_;
};

DialectTraits make_traits() {
  DialectTraits made;
  made.kind = DialectKind::sglang;
  made.pause_modes = {PauseMode::abort, PauseMode::keep, PauseMode::retract};
  made.load_sets_label = true;
  made.load_flushes = true;
  made.missing_directory_harmless = true;
  made.heal_needs_empty_load = false;
  made.evidence_best = Evidence::spot;
  // Loads, flushes and label changes pass through the scheduler's queue as /server_info does. A pause and a continue
  // take effect in the HTTP process as soon as they arrive, before it reads a request of a later connection.
  made.barriers = {load, set_label, flush, pause, resume};
  made.load_barrier_needs_pause = true;  // docs/engines.md
  return made;
}

}  // namespace

const DialectTraits& traits() {
  static const DialectTraits kTraits = make_traits();
  return kTraits;
}

std::unique_ptr<Conversation> start(EngineTask task) {
  const Operation& operation = task.operation;
  const auto& modes = traits().pause_modes;
  const bool mode_known = std::find(modes.begin(), modes.end(), operation.pause_mode) != modes.end();
  if (operation.kind == load_empty || (operation.kind == pause && !mode_known))
    return not_supported(DialectKind::sglang, operation);
  return std::make_unique<Talk>(std::move(task));
}

}  // namespace weighlock::sglang
