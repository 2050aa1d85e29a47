#include "weighlock/engines/vllm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "weighlock/engines/adapters.hpp"
#include "weighlock/engines/evidence.hpp"
#include "weighlock/engines/exchange.hpp"

namespace weighlock::vllm {
namespace {

using enum OperationKind;

constexpr std::string_view word(PauseMode mode) {
  switch (mode) {
    case PauseMode::abort:
      return "abort";
    case PauseMode::keep:
      return "keep";
    case PauseMode::wait:
      return "wait";
    case PauseMode::retract:
      return "";
  }
  return "";
}

// The value of a Prometheus sample without labels, as it is printed.
std::string sample(std::string_view metrics, std::string_view name) {
  for (std::size_t at = 0; at < metrics.size();) {
    const std::size_t end = std::min(metrics.find('\n', at), metrics.size());
    const std::string_view line = metrics.substr(at, end - at);
    if (line.size() > name.size() && line.substr(0, name.size()) == name && line[name.size()] == ' ') {
      const std::string_view value = line.substr(name.size() + 1);
      return std::string(value.substr(0, value.find_first_of(" \r")));
    }
    at = end + 1;
  }
  return "";
}

class Talk final : public Exchange {
 public:
  explicit Talk(EngineTask task) : Exchange(vllm_table(), std::move(task)) {}

 private:
  Turn start() override {
    switch (operation().kind) {
      // clear_cache in every mode: without it a new request is answered from prefixes of the old weights.
      case pause:
        return simple(fmt::format("/pause?mode={}&clear_cache=true", word(operation().pause_mode)), json::object());
      case set_label:
        return label();
      case load:
      case load_empty:
        return ask_world_size();
      case flush:
        return reset_caches();
      case resume:
        return resume_generation();
      case probe:
        return ask_model();
      case load_adapter:
        return change_adapter("/v1/load_lora_adapter",
                              json::object{{"lora_name", operation().adapter}, {"lora_path", operation().directory}});
      case unload_adapter:
        return change_adapter("/v1/unload_lora_adapter", json::object{{"lora_name", operation().adapter}});
      default:
        return read();
    }
  }

  Turn simple(std::string target, json::object body) {
    return ask(post(std::move(target), std::move(body), Key::admin, Effect::changes),
               [this](const Answer& answer) -> Turn { return judge(operation().kind, answer); });
  }

  // A brief one ends with a reading. The resume is done whatever that answers; without it the protocol reads again.
  Turn resume_generation() {
    return ask(post("/resume", json::object(), Key::admin, Effect::changes), [this](const Answer& answer) -> Turn {
      Outcome outcome = judge(resume, answer);
      if (!outcome.ok() || !operation().brief) return outcome;
      return ask(get("/is_paused", Key::admin), [this](const Answer& paused) -> Turn {
        if (!take_pause(paused).ok()) return done();
        return ask(get("/weight_info", Key::admin), [this](const Answer& info) -> Turn {
          Outcome resumed = done();
          if (take_label(info).ok()) resumed.reading = reading_;
          return resumed;
        });
      });
    });
  }

  Turn label() {
    json::object body{{"new_version", operation().label}};
    return ask(post("/update_weight_version", std::move(body), Key::admin, Effect::changes),
               [this](const Answer& answer) -> Turn {
                 Outcome outcome = judge(set_label, answer);
                 if (!outcome.ok() || find_string(*answer.json, "new_version") == operation().label) return outcome;
                 return failed(
                     OutcomeKind::unknown, ErrorCode::bad_answer,
                     fmt::format("was sent the label '{}' and answered \"{}\"", operation().label, answer.words()));
               });
  }

  // Never with load_inplace: the engine would remember it and read the directory again later. The answer is a text,
  // without a content type, that names the adapter in quotes.
  Turn change_adapter(std::string target, json::object body) {
    return ask(
        post(std::move(target), std::move(body), Key::api, Effect::changes), [this](const Answer& answer) -> Turn {
          Outcome outcome = judge(operation().kind, answer);
          const bool named = body::contains(answer, fmt::format("'{}'", operation().adapter));
          if (!outcome.ok() || named) return outcome;
          return failed(OutcomeKind::unknown, ErrorCode::bad_answer,
                        fmt::format("was asked for '{}' and answered \"{}\"", operation().adapter, answer.words()));
        });
  }

  // Requests that mode keep leaves running would make the reset a refusal: they are preempted, and computed again.
  Turn reset_caches() {
    const bool running = operation().pause_mode == PauseMode::keep;
    return simple(fmt::format("/reset_prefix_cache?reset_running_requests={}", running), json::object());
  }

  // How many workers must have answered. Releases that don't have the route are trusted to list all.
  Turn ask_world_size() {
    return ask(get("/get_world_size", Key::admin), [this](const Answer& answer) -> Turn {
      if (answer.status == 200 && answer.json) world_size_ = find_int(*answer.json, "world_size");
      return reload();
    });
  }

  Turn reload() {
    // Never with "timeout": when it expires the engine's replies are off by one from then on. Deadlines are ours.
    json::object body{{"method", "reload_weights"},
                      {"kwargs", {{"weights_path", operation().directory}, {"is_checkpoint_format", true}}}};
    return ask(post("/collective_rpc", std::move(body), Key::admin, Effect::changes),
               [this](const Answer& answer) -> Turn {
                 Outcome outcome = judge(operation().kind, answer);
                 return outcome.ok() ? Turn(all_loaded(answer)) : Turn(std::move(outcome));
               });
  }

  // One null for each worker; anything else is a worker that didn't load.
  Outcome all_loaded(const Answer& answer) const {
    const json::array* results = find(*answer.json, "results")->if_array();
    const std::string expected = world_size_ ? fmt::format("{}", *world_size_) : "one or more";
    const bool all_null =
        results && std::all_of(results->begin(), results->end(), [](const auto& r) { return r.is_null(); });
    const bool count_fits =
        results && !results->empty() && (!world_size_ || results->size() == static_cast<std::size_t>(*world_size_));
    if (all_null && count_fits) return done();
    return failed(OutcomeKind::touched, ErrorCode::worker_failed,
                  fmt::format("answered \"{}\": {} workers should each have answered null", answer.words(), expected));
  }

  Turn ask_model() {
    return ask(get("/v1/models", Key::api), [this](const Answer& answer) -> Turn {
      Outcome outcome = judge(read_state, answer);
      if (!outcome.ok()) return outcome;
      const json::value* model = base_model_of(*answer.json);
      if (!model) return failed(OutcomeKind::unknown, ErrorCode::bad_answer, "lists no model");
      return complete(std::string(*find_string(*model, "id")));
    });
  }

  Turn complete(std::string model) {
    // With logprobs a NaN is an error; without, an empty text.
    json::object body{{"model", std::move(model)},
                      {"prompt", json::array{1}},
                      {"max_tokens", 1},
                      {"temperature", 0.0},
                      {"ignore_eos", true},
                      {"logprobs", 1},
                      {"stream", false}};
    return ask(post("/v1/completions", std::move(body), Key::api, Effect::reads), [this](const Answer& answer) -> Turn {
      Outcome outcome = judge(probe, answer);
      if (!outcome.ok()) return outcome;
      if (!token_is_sound(*answer.json))
        return failed(OutcomeKind::mismatch, ErrorCode::worker_failed,
                      fmt::format("generated no token with a finite probability: \"{}\"", answer.words()));
      outcome.evidence = Evidence::probe;
      return outcome;
    });
  }

  static bool token_is_sound(const json::value& body) {
    const json::array* choices = find(body, "choices")->if_array();
    if (!choices || choices->empty()) return false;
    const json::value* logprobs = find(choices->front(), "logprobs");
    const json::value* values = logprobs ? find(*logprobs, "token_logprobs") : nullptr;
    const json::array* list = values ? values->if_array() : nullptr;
    return list && !list->empty() && list->front().is_number() && std::isfinite(list->front().to_number<double>());
  }

  // /is_paused first: the engine core serves control calls in the order they came, so what was sent earlier has ended
  // when it answers. That makes the same reads a barrier, if it is asked twice: what was sent on a connection that was
  // reset since may still be delivered until a later connection was answered.
  Turn read() {
    Ask paused = get("/is_paused", Key::admin);
    paused.fresh = operation().kind == barrier;
    return ask(std::move(paused), [this](const Answer& answer) -> Turn {
      Outcome outcome = take_pause(answer);
      if (!outcome.ok()) return outcome;
      if (operation().kind == barrier && !std::exchange(asked_twice_, true)) return read();
      return read_label();
    });
  }

  Turn read_label() {
    return ask(get("/weight_info", Key::admin), [this](const Answer& answer) -> Turn {
      Outcome outcome = take_label(answer);
      if (!outcome.ok()) return outcome;
      const bool brief = operation().kind == read_state && operation().brief;
      return brief ? have_reading() : read_start_time();
    });
  }

  Outcome take_pause(const Answer& answer) {
    Outcome outcome = judge(read_state, answer);
    if (!outcome.ok()) return outcome;
    const std::optional<bool> is_paused = find_bool(*answer.json, "is_paused");
    if (!is_paused)
      return failed(OutcomeKind::unknown, ErrorCode::bad_answer, fmt::format("answered \"{}\"", answer.words()));
    reading_.paused = *is_paused;
    return outcome;
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

  // Metrics can be switched off, and /v1/models can ask for a key that control calls don't need: what these two tell is
  // wanted, not needed, but for the list of adapters.
  Turn read_start_time() {
    Ask metrics = get("/metrics", Key::api);
    metrics.if_refused = [this] { return read_path(); };
    return ask(std::move(metrics), [this](const Answer& answer) -> Turn {
      if (answer.status == 200) reading_.incarnation = sample(answer.body, "process_start_time_seconds");
      return read_path();
    });
  }

  Turn read_path() {
    Ask models = get("/v1/models", Key::api);
    const bool wanted_only = operation().kind != list_adapters;
    if (wanted_only) models.if_refused = [this] { return have_reading(); };
    return ask(std::move(models), [this, wanted_only](const Answer& answer) -> Turn {
      if (!wanted_only) {
        Outcome outcome = judge(list_adapters, answer);
        if (!outcome.ok()) return outcome;
        reading_.adapters = adapters_of(*answer.json);
        if (!reading_.adapters)
          return failed(OutcomeKind::unknown, ErrorCode::bad_answer, fmt::format("answered \"{}\"", answer.words()));
      }
      const json::value* model = answer.status == 200 && answer.json ? base_model_of(*answer.json) : nullptr;
      if (model) reading_.model_path = find_string(*model, "root").value_or("");
      return have_reading();
    });
  }

  Turn have_reading() {
    Outcome outcome = done();
    outcome.reading = reading_;
    if (operation().kind == identify) outcome.dialect = DialectKind::vllm;
    if (operation().kind != verify) return outcome;
    outcome.evidence = operation().label.empty() ? Evidence::acknowledged : Evidence::label;
    if (!operation().label.empty() && reading_.label != operation().label)
      return mismatch(
          fmt::format("the engine's label is '{}', which should be '{}'", reading_.label, operation().label));
    if (operation().evidence < Evidence::spot) return outcome;
    outcome.vacuous = true;
    return expectations() ? ask_checksums() : Turn(outcome);
  }

  Turn ask_checksums() {
    return ask(post("/weight_checker", json::object{{"action", "checksum"}}, Key::admin, Effect::reads),
               [this](const Answer& answer) -> Turn {
                 Outcome outcome = judge(verify, answer);
                 if (!outcome.ok() && outcome.code != ErrorCode::not_supported) {
                   outcome.reading = reading_;
                   return outcome;
                 }
                 Findings findings;
                 const json::value* checksums = answer.json ? find(*answer.json, "checksums") : nullptr;
                 if (checksums && checksums->is_object())
                   compare_checksums(*expectations(), checksums->get_object(), findings);
                 if (!findings.mismatch.empty()) return mismatch(findings.mismatch);
                 outcome = done();
                 outcome.reading = reading_;
                 outcome.evidence = operation().label.empty() ? Evidence::acknowledged : Evidence::label;
                 if (findings.differing > 0) outcome.evidence = Evidence::checksum;
                 outcome.vacuous = findings.differing == 0;
                 return outcome;
               });
  }

  Outcome mismatch(std::string_view what) const {
    Outcome outcome = failed(OutcomeKind::mismatch, ErrorCode::worker_failed, fmt::format("answered, but {}", what));
    outcome.reading = reading_;
    return outcome;
  }

  std::optional<std::int64_t> world_size_;
  StateReading reading_;
  bool asked_twice_ = false;
};

DialectTraits make_traits() {
  DialectTraits made;
  made.kind = DialectKind::vllm;
  made.pause_modes = {PauseMode::abort, PauseMode::keep, PauseMode::wait};
  made.load_sets_label = false;
  made.load_flushes = false;
  made.missing_directory_harmless = false;
  made.heal_needs_empty_load = true;
  made.evidence_best = Evidence::checksum;
  made.barriers = {load, load_empty, set_label, flush, pause, resume};
  made.barrier_covers_pause_wait = false;
  return made;
}

}  // namespace

const DialectTraits& traits() {
  static const DialectTraits kTraits = make_traits();
  return kTraits;
}

std::unique_ptr<Conversation> start(EngineTask task) {
  const auto& modes = traits().pause_modes;
  const bool mode_known = std::find(modes.begin(), modes.end(), task.operation.pause_mode) != modes.end();
  if (task.operation.kind == pause && !mode_known) return not_supported(DialectKind::vllm, task.operation);
  return std::make_unique<Talk>(std::move(task));
}

}  // namespace weighlock::vllm
