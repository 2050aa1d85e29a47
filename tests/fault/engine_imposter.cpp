#include "engine_imposter.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "weighlock/store/checkpoint_fixture.hpp"

namespace weighlock::fault {
namespace {

HttpResponse text(int status, std::string body) {
  return HttpResponse{status, {}, std::move(body)};
}

// A version's number as its seed: two versions differ in every tensor, and a version saved again has the same bytes.
unsigned seed_of(const std::string& directory) {
  const std::string name = std::filesystem::path(directory).filename().string();
  return static_cast<unsigned>(std::stoul(name.substr(name.find("_v") + 2))) + 1;
}

}  // namespace

EngineImposter::EngineImposter(Loop& loop, const std::string& start_directory)
    : Imposter(loop),
      directory(start_directory),
      start_directory_(start_directory),
      weights_(std::make_unique<Weights>(start_directory)) {}

bool EngineImposter::take(const std::string& new_directory) {
  const bool sealed = std::filesystem::exists(new_directory + "/weighlock.manifest.json");
  auto read = std::make_unique<Weights>(new_directory);
  if (read->readable() && read->has_tensors() && !sealed && new_directory != start_directory_)
    violation("told to load " + new_directory + ", which isn't sealed");
  if (!read->readable()) return false;
  if (ignores_loads) return true;
  weights_ = std::move(read);
  directory = new_directory;
  torn = false;
  return true;
}

void EngineImposter::set_paused(bool now) {
  if (!now && torn) violation("continued on torn weights");
  if (!now && label.starts_with("loading:")) violation("continued under the label " + label);
  paused = now;
}

void EngineImposter::must_be_paused(const std::string& what) {
  if (!paused) violation(what + " while it was running");
}

std::unique_ptr<EngineImposter> make_engine(DialectKind kind, Loop& loop, const std::string& start_directory) {
  if (kind == DialectKind::sglang) return std::make_unique<SglangImposter>(loop, start_directory);
  return std::make_unique<VllmImposter>(loop, start_directory);
}

// --- SGLang

Imposter::Action SglangImposter::act(const Seen& request) {
  const std::string& route = request.route;
  const auto at_once = [](auto run) { return Action{run, false}; };
  if (route == "/server_info")
    return {[this] {
      return reply(200, {{"version", "0.5.23"}, {"startup_time", startup_time}, {"model_path", start_directory_}});
    }};
  if (route == "/model_info")
    return at_once([this] { return reply(200, {{"model_path", directory}, {"weight_version", label}}); });
  if (route == "/ready") return at_once([this] { return text(paused || unwell_ ? 503 : 200, ""); });
  if (route == "/health") {
    return {[this] {
      if (paused) violation("/health of a paused engine");
      if (is_sick) return text(503, "");
      unwell_ = false;
      return text(200, "");
    }};
  }
  if (route == "/pause_generation") return at_once([this, request] { return change_pause(request, true); });
  if (route == "/continue_generation") return at_once([this, request] { return change_pause(request, false); });
  if (route == "/flush_cache") {
    return {[this] {
      if (!held_.empty()) return text(400, "Flush cache failed.\n");
      return text(200,
                  "Cache flushed.\nPlease check backend logs for more details. "
                  "(When there are running or waiting requests, the operation will not be performed.)\n");
    }};
  }
  if (route == "/update_weight_version") return {[this, request] { return set_label(request); }};
  if (route == "/update_weights_from_disk") return {[this, request] { return load(request); }};
  if (route == "/get_weights_by_name") {
    return {[this, request] {
      const json::value found =
          weights().leading(find_string(request.body, "name").value_or(""),
                            static_cast<std::size_t>(find_int(request.body, "truncate_size").value_or(100)));
      if (found.is_null()) return reply(400, {{"error", {{"message", "Get parameter by name failed"}}}});
      return reply(200, found);
    }};
  }
  if (route == "/generate") {
    return {[this] {
      if (torn) violation("generated on torn weights");
      json::array tokens;
      tokens.emplace_back(json::array{-0.5, 3, nullptr});  // braces around braces are one array to clang, two to gcc
      return reply(200, {{"text", "a"}, {"meta_info", {{"output_token_logprobs", std::move(tokens)}}}});
    }};
  }
  return at_once([] { return reply(404, {{"detail", "Not Found"}}); });
}

void SglangImposter::damage(const Seen& request, Fault) {
  if (request.route == "/update_weights_from_disk") torn = true;
}

HttpResponse SglangImposter::change_pause(const Seen& request, bool pause) {
  if (!request.body.is_object() || (pause && refuses_bodies))
    return text(422, R"({"detail":[{"type":"missing","loc":["body"],"msg":"Field required"}]})");
  set_paused(pause);
  if (!pause) end_held("length");
  if (pause && find_string(request.body, "mode") == "abort") end_held("abort");
  unwell_ = !pause && stale_health;
  return reply(200, {{"message", pause ? "Generation paused successfully." : "Generation continued successfully."},
                     {"status", "ok"}});
}

// A client's own request, left open: over an in_place pause it goes on, an abort ends it.
bool SglangImposter::takes_itself(const Seen& request, const Responder& responder) {
  if (request.route != "/generate" || find_bool(request.body, "held") != true) return false;
  held_.push_back(responder);
  return true;
}

void SglangImposter::end_held(const std::string& outcome) {
  for (const Responder& one : std::exchange(held_, {}))
    one.respond(reply(200, {{"text", "a"}, {"meta_info", {{"finish_reason", {{"type", outcome}}}}}}));
}

HttpResponse SglangImposter::set_label(const Seen& request) {
  const auto version = find_string(request.body, "new_version");
  if (!version)
    return reply(400,
                 {{"object", "error"}, {"message", "new_version is required"}, {"type", "Bad Request"}, {"code", 400}});
  if (find_bool(request.body, "abort_all_requests") != false) violation("a label change that aborts all requests");
  label = *version;
  const std::string text = "Weight version updated to " + std::string(*version);
  return reply(200, {{"success", true}, {"message", text}, {"new_version", *version}});
}

HttpResponse SglangImposter::load(const Seen& request) {
  must_be_paused("a load");
  const std::string path(find_string(request.body, "model_path").value_or(""));
  if (!take(path)) {
    return reply(400,
                 {{"success", false},
                  {"message", "Failed to get weights iterator: Cannot find any model weights with `" + path + "`."},
                  {"num_paused_requests", 0}});
  }
  if (!held_.empty() && find_bool(request.body, "flush_cache").value_or(true)) {
    return reply(400, {{"success", false},
                       {"message",
                        "Weights were updated, but the cache was not flushed because requests are still running or "
                        "queued. Retract or finish them, then call /flush_cache."},
                       {"num_paused_requests", held_.size()}});
  }
  if (const auto version = find_string(request.body, "weight_version"); version && !ignores_labels) label = *version;
  if (load_answer) return *std::exchange(load_answer, std::nullopt);
  return reply(200, {{"success", true},
                     {"message", "Succeeded to update model weights. Weight version updated to " + label + "."},
                     {"num_paused_requests", 0}});
}

// --- vLLM

Imposter::Action VllmImposter::act(const Seen& request) {
  const std::string& route = request.route;
  const auto at_once = [](auto run) { return Action{run, false}; };
  if (route == "/version") return at_once([] { return reply(200, {{"version", "0.32.0"}}); });
  if (route == "/get_world_size") return at_once([] { return reply(200, {{"world_size", 1}}); });
  if (route == "/metrics")
    return at_once([this] { return text(200, "process_start_time_seconds " + std::to_string(startup_time) + "\n"); });
  if (route == "/v1/models") {
    return at_once([this] {
      return reply(200, {{"object", "list"},
                         {"data", json::array{{{"id", "policy"}, {"root", start_directory_}, {"parent", nullptr}}}}});
    });
  }
  if (route == "/is_paused") return {[this] { return reply(200, {{"is_paused", paused}}); }};
  if (route == "/weight_info") return {[this] { return reply(200, {{"weight_version", label}}); }};
  if (route == "/pause") return {[this] { return set_paused(true), reply(200, {{"status", "paused"}}); }};
  if (route == "/resume") return {[this] { return set_paused(false), reply(200, {{"status", "resumed"}}); }};
  if (route == "/reset_prefix_cache") {
    return {[this] {
      const bool refused = flush_refusals > 0;
      if (refused) --flush_refusals;
      return reply(200, {{"success", !refused}});
    }};
  }
  if (route == "/collective_rpc") return {[this, request] { return load(request); }};
  if (route == "/update_weight_version") {
    return {[this, request] {
      label = find_string(request.body, "new_version").value_or("");
      return reply(200, {{"success", true}, {"new_version", label}});
    }};
  }
  if (route == "/weight_checker") {
    return {[this] {
      if (torn) return reply(500, {{"error", {{"message", "Cannot copy out of meta tensor; no data!"}}}});
      return reply(200, {{"checksums", weights().checksums()}});
    }};
  }
  if (route == "/v1/completions") {
    return {[this] {
      if (torn) violation("generated on torn weights");
      return reply(200,
                   {{"choices", json::array{{{"text", "a"}, {"logprobs", {{"token_logprobs", json::array{-0.5}}}}}}}});
    }};
  }
  return at_once([] { return reply(404, {{"detail", "Not Found"}}); });
}

// A reload that fails leaves layers half made, whatever it was told to load. The worst kind needs the empty checkpoint
// first.
void VllmImposter::damage(const Seen& request, Fault fault) {
  if (request.route != "/collective_rpc" || fault == Fault::status_400) return;  // 400 is its refusal of a body
  torn = true;
  needs_empty_ = true;
}

HttpResponse VllmImposter::load(const Seen& request) {
  must_be_paused("a load");
  if (request.body.is_object() && request.body.as_object().contains("timeout"))
    violation("a collective call with a time-out");
  const json::value* arguments = find(request.body, "kwargs");
  const std::string path(arguments ? find_string(*arguments, "weights_path").value_or("") : "");
  const auto failed = [this](const std::string& why) {
    torn = true;
    return reply(500, {{"error",
                        {{"message", "Call to collective_rpc method failed: " + why},
                         {"type", "InternalServerError"},
                         {"code", 500}}}});
  };
  const Weights asked(path);
  if (!asked.readable()) return failed("Cannot find any model weights with `<path>`");
  if (!asked.has_tensors()) {
    needs_empty_ = false;
    return reply(200, {{"results", json::array{nullptr}}});
  }
  if (needs_empty_) return failed("'Parameter' object has no attribute 'weight_loader'");
  take(path);
  return reply(200, {{"results", json::array{nullptr}}});
}

// --- trainer

Imposter::Action TrainerImposter::act(const Seen& request) {
  if (request.route != "/save" || !request.body.is_object()) return {[] { return reply(404, {{"error", "no"}}); }};
  const std::string directory(request.body.at("args").at(0).at("data").at("path").as_string());
  if (std::find(directories_.begin(), directories_.end(), directory) != directories_.end())
    violation("a second /save into " + directory);
  directories_.push_back(directory);
  return {[this, directory] {
    if (writes_) write_single(directory, tiny_tensors(), seed_of(directory));
    if (spoil) spoil(directory);
    return reply(200, {{"result", nullptr}, {"status", "success"}});
  }};
}

}  // namespace weighlock::fault
