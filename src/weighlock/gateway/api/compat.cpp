// The routes of AReaL's Python gateway, for its unmodified clients: same paths, bodies and statuses, more truth in the
// texts.
#include <fmt/format.h>

#include <chrono>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/url.hpp"
#include "weighlock/core/words.hpp"
#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/auth.hpp"
#include "weighlock/gateway/api/connect_body.hpp"
#include "weighlock/gateway/api/context.hpp"
#include "weighlock/gateway/api/lax_body.hpp"
#include "weighlock/gateway/api/meeting.hpp"
#include "weighlock/gateway/ended_text.hpp"
#include "weighlock/gateway/promises.hpp"

namespace weighlock {
namespace {

using namespace protocol;

// Bad bodies are told before bad keys, as FastAPI does.
std::optional<HttpResponse> refuse(std::string_view key, const LaxBody& body, const HttpRequest& request) {
  if (std::optional<HttpResponse> refusal = body.refusal()) return refusal;
  const AuthOutcome outcome = check_bearer(request, key);
  if (outcome != AuthOutcome::ok) return auth_refusal(outcome);
  return std::nullopt;
}

std::optional<HttpResponse> refuse(const ApiContext& context, const LaxBody& body, const HttpRequest& request) {
  return refuse(context.settings.admin_api_key, body, request);
}

HttpResponse pair_not_found(const std::string& name) {
  return error_answer(404, fmt::format("Pair '{}' not found", printable(name, limits::kEchoBytesMax)));
}

HttpResponse failure_answer(const Error& error) {
  const int status = info(error.code).http_status;
  return error_answer(status < 400 ? 500 : status, error.text());
}

// --- connect

struct ConnectBody {
  std::string pair_name;
  std::vector<std::string> train_worker_urls;
  std::vector<std::string> inference_worker_urls;
  std::string mode;
  std::string save_path;
  bool use_lora = false;
  std::string lora_name;
  std::int64_t lora_keep_versions = 0;
  std::string nccl_master_addr;
  std::int64_t nccl_master_port = 0;
  bool colocate = false;
  json::value settings;
};

ConnectBody read_connect(LaxBody& body) {
  ConnectBody out;
  out.pair_name = body.text("pair_name");
  out.train_worker_urls = body.texts("train_worker_urls");
  out.inference_worker_urls = body.texts("inference_worker_urls");
  out.mode = body.text("mode", "awex");
  out.save_path = body.text("save_path", "");
  out.use_lora = body.flag("use_lora", false);
  out.lora_name = body.text("lora_name", "");
  out.lora_keep_versions = body.whole("lora_keep_versions", 0);
  out.nccl_master_addr = body.text("nccl_master_addr", "");
  out.nccl_master_port = body.whole("nccl_master_port", 0);
  out.colocate = body.flag("colocate", false);
  if (const json::value* settings = body.any("settings")) out.settings = *settings;
  return out;
}

// The place of an address that is given with or without the brackets of IPv6.
std::string meeting_url(const std::string& address) {
  const bool is_six = address.find(':') != std::string::npos && !address.starts_with('[');
  return is_six ? fmt::format("http://[{}]:1", address) : fmt::format("http://{}:1", address);
}

// The Python gateway's own refusals, in its order and words, then ours.
std::optional<HttpResponse> refuse_connect(const ConnectBody& body) {
  if (body.colocate && body.mode != "awex") return error_answer(400, "colocate=True requires mode='awex'");
  if (body.colocate && body.use_lora) return error_answer(400, "AWEX colocation does not support LoRA weights");
  if (body.mode == "disk") {
    if (body.save_path.empty()) return error_answer(400, "save_path is required when mode='disk'");
    if (!body.save_path.starts_with('/'))
      return error_answer(400, "save_path must be an absolute path when mode='disk'");
    if (body.use_lora && body.lora_name.empty()) return error_answer(400, "lora_name is required when use_lora=True");
    return std::nullopt;
  }
  if (body.mode == "awex" && body.use_lora)
    return error_answer(400,
                        "awex weight update does not support LoRA; set actor.weight_update_mode=disk in your config.");
  if (body.mode == "awex" && !body.save_path.empty() && !body.save_path.starts_with('/'))
    return error_answer(400, "save_path must be an absolute path");
  constexpr std::int64_t kPortMax = 65'535;
  if (body.mode == "awex" && (body.nccl_master_port < 0 || body.nccl_master_port > kPortMax))
    return error_answer(400, fmt::format("nccl_master_port must be 0 (any) to 65535, not {}", body.nccl_master_port));
  if (body.mode == "awex" && !body.nccl_master_addr.empty()) {
    const Result<Url> address = parse_url(meeting_url(body.nccl_master_addr));
    if (!address || !address->path.empty())
      return error_answer(
          400, fmt::format("nccl_master_addr must be an address or a name by which all workers reach the first of "
                           "inference_worker_urls, and can be left out; not '{}'",
                           printable(body.nccl_master_addr, limits::kEchoBytesMax)));
  }
  if (body.mode == "awex") return std::nullopt;
  return error_answer(400, fmt::format("mode must be 'awex' or 'disk', not '{}'", body.mode.substr(0, 100)));
}

std::optional<FieldError> read_lora(const ConnectBody& body, PairSpec& spec) {
  if (!body.use_lora) return std::nullopt;
  if (auto failure = check_lora_name(body.lora_name, "lora_name")) return failure;
  if (body.lora_keep_versions < 0 || body.lora_keep_versions > limits::kAdapterWindowMax)
    return FieldError{"lora_keep_versions",
                      Error{ErrorCode::invalid_argument,
                            fmt::format("lora_keep_versions: must be 0 (all versions stay loaded) to {}, not {}",
                                        limits::kAdapterWindowMax, body.lora_keep_versions)}};
  spec.lora = LoraSpec{body.lora_name, body.lora_keep_versions};
  return std::nullopt;
}

std::optional<FieldError> make_spec(const Confinement& confinement, const Policy& defaults, const ConnectBody& body,
                                    PairSpec& spec) {
  if (auto failure = check_pair_name(body.pair_name)) return failure;
  spec.name = body.pair_name;
  spec.save_path = body.save_path;
  if (body.mode == "awex") {
    spec.awex.emplace();
    if (!body.nccl_master_addr.empty()) spec.awex->master_addr = parse_url(meeting_url(body.nccl_master_addr))->host;
    spec.awex->master_port = static_cast<int>(body.nccl_master_port);
    spec.awex->colocate = body.colocate;
  }
  const bool has_storage = !spec.awex || !body.save_path.empty();
  if (Status status = has_storage ? confinement.check_directory(body.save_path, "save_path") : Status(); !status)
    return FieldError{"save_path", status.error()};
  if (auto failure = read_urls(body.train_worker_urls, "train_worker_urls", limits::kTrainersPerPairMax, confinement,
                               spec.trainer_urls))
    return failure;
  std::vector<std::string> workers;
  if (auto failure = read_urls(body.inference_worker_urls, "inference_worker_urls", limits::kWorkersPerPairMax,
                               confinement, workers))
    return failure;
  Settings settings;
  settings.policy = defaults;
  if (body.use_lora) settings.policy.quorum.kind = Quorum::Kind::all;  // unless the settings say otherwise
  if (!body.settings.is_null()) {
    if (auto failure = read_settings(body.settings, "settings", SettingsPlace::compatible_connect, settings))
      return failure;
  }
  if (auto failure = read_lora(body, spec)) return failure;
  spec.policy = settings.policy;
  spec.save_trigger = settings.save_trigger.value_or(SaveTrigger::all);
  if (spec.awex && !workers.empty()) spec.awex->master_of = workers.front();
  if (auto failure = check_meeting(spec, workers)) return failure;
  for (std::string& url : workers) spec.workers.push_back(WorkerSpec{std::move(url), settings.dialect});
  return std::nullopt;
}

// What a connect or disconnect waits behind, for the answer when it took too long.
std::string blocker_text(const ApiContext& context, const std::string& name) {
  const Pair* pair = context.find_pair(name);
  const Update* update = pair ? context.find_update(pair->active) : nullptr;
  if (!update) return fmt::format("pair '{}' is still being changed", name);
  return fmt::format(
      "update {} of pair '{}' (v{}) is still in {}; it is waited for, and the change takes effect when it ends",
      update->id, name, update->version.version, protocol::name(update->state));
}

// A pair that transfers says what becomes of its workers if that fails.
HttpResponse connected_answer(const ApiContext& context, const std::string& name) {
  json::object out{{"pair_name", name}};
  const Pair* pair = context.find_pair(name);
  if (pair && pair->spec.awex) {
    out["rollback"] = pair->last_good ? "available" : "unavailable";
    if (!pair->last_good) out["rollback_reason"] = pair->rollback_reason;
  }
  return json_answer(200, out);
}

void apply_connect(ApiContext& context, PairSpec spec, Responder responder) {
  const auto pending = PendingAnswer::make(context, std::move(responder));
  ConnectPair event;
  event.token = pending->when_replied([pending, name = spec.name](const Reply& reply) {
    pending->answer(reply.error ? failure_answer(*reply.error) : connected_answer(pending->context(), name));
  });
  pending->deadline(context.settings.reply_by, [pending, name = spec.name] {
    pending->answer(error_answer(409, blocker_text(pending->context(), name)));
  });
  event.spec = std::move(spec);
  std::string what = fmt::format("pair '{}'", event.spec.name);
  post_event_unless_full(context, std::move(what), std::move(event));
}

void connect(ApiContext& context, RouteRequest request, Responder responder) {
  PairBody made;
  if (auto refusal = read_connect_request(request.http, context.settings.admin_api_key, context.confinement,
                                          context.settings.policy, made.spec))
    return responder.respond(*std::move(refusal));
  std::vector<DoubtfulHost> doubtful;
  find_doubtful(context.confinement, made.spec.trainer_urls, "train_worker_urls", "", doubtful);
  find_doubtful(context.confinement, worker_urls(made.spec), "inference_worker_urls", "", doubtful);
  look_outside(context, std::move(doubtful), std::move(made),
               [&context, responder = std::move(responder)](std::optional<FieldError> failure, PairBody looked_at) {
                 if (failure)
                   return responder.respond(error_answer(info(failure->error.code).http_status, failure->error.text()));
                 apply_connect(context, std::move(looked_at.spec), responder);
               });
}

// --- update_weights

struct Asked {
  std::string pair;
  std::int64_t version = 0;
  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();  // the client reads fractions of a ms
};

json::object outcome_body(const Asked& asked, bool ok, json::value error) {
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - asked.began;
  json::object out;
  out["status"] = ok ? "ok" : "error";
  out["version"] = asked.version;
  out["duration_ms"] = took.count();
  out["error"] = std::move(error);
  return out;
}

void tell_not_promised(json::object& out, const Update& update) {
  json::array texts = not_promised(update.policy);
  if (!texts.empty()) out["not_promised"] = std::move(texts);
}

HttpResponse transfer_error(const ApiContext& context, const Asked& asked, std::string_view text,
                            const Update* update) {
  json::object out = outcome_body(asked, false, json::string(text));
  if (update) {
    out["update_id"] = update->id;
    out["degraded"] = false;
    out["pause_ms"] = pause_of(*update, context.loop.now()).count();
    out["verdicts"] = verdicts_view(context.view(), *update);
    tell_not_promised(out, *update);
  }
  return json_answer(context.settings.compat_error_status, out);
}

HttpResponse ended_answer(const ApiContext& context, const Asked& asked, const UpdateId& id) {
  const Update* update = context.find_update(id);
  if (!update)
    return transfer_error(context, asked,
                          fmt::format("pair '{}' v{}: its outcome is no longer remembered", asked.pair, asked.version),
                          nullptr);
  const bool degraded = update->state == UpdateState::degraded;
  if (update->state != UpdateState::succeeded && !degraded)
    return transfer_error(context, asked, ended_text(context.state(), *update), update);
  json::object out = outcome_body(asked, true, nullptr);
  out["update_id"] = update->id;
  out["degraded"] = degraded;
  if (degraded) out["detail"] = ended_text(context.state(), *update);
  out["pause_ms"] = pause_of(*update, context.loop.now()).count();
  out["verdicts"] = verdicts_view(context.view(), *update);
  tell_not_promised(out, *update);
  return json_answer(200, out);
}

void accepted(const std::shared_ptr<PendingAnswer>& pending, const Asked& asked, const Reply& reply, UpdateId& id) {
  if (reply.error) return pending->answer(transfer_error(pending->context(), asked, reply.error->text(), nullptr));
  id = reply.update;
  pending->when_ended(reply.update, [pending, asked, ended = reply.update] {
    pending->answer(ended_answer(pending->context(), asked, ended));
  });
}

void update_weights(ApiContext& context, RouteRequest request, Responder responder) {
  LaxBody body(request.http);
  Asked asked;
  asked.pair = body.text("pair_name");
  asked.version = body.whole("version", 0);
  if (auto refusal = refuse(context, body, request.http)) return responder.respond(*std::move(refusal));
  const Pair* pair = context.find_pair(asked.pair);
  if (!pair) return responder.respond(pair_not_found(asked.pair));
  // Larger ones are taken by the body's reader as the nearest that fits.
  if (asked.version > limits::kVersionMagnitudeMax || asked.version < -limits::kVersionMagnitudeMax)
    return responder.respond(transfer_error(
        context, asked,
        fmt::format("pair '{}': the version doesn't fit in 64 bits with room to compare: from -2^62 to 2^62",
                    asked.pair),
        nullptr));
  const auto pending = PendingAnswer::make(context, std::move(responder));
  const auto id = std::make_shared<UpdateId>();
  RequestUpdate event;
  event.pair = asked.pair;
  event.version = asked.version;
  event.policy = pair->spec.policy;
  event.token =
      pending->when_replied([pending, asked, id](const Reply& reply) { accepted(pending, asked, reply, *id); });
  pending->deadline(context.settings.reply_by, [pending, asked, id] {
    const ApiContext& here = pending->context();
    const Update* update = here.find_update(*id);
    const std::string text =
        update ? running_text(*update, here.loop.now() - pending->began())
               : fmt::format("pair '{}' v{}: not accepted yet; committed: false", asked.pair, asked.version);
    pending->answer(transfer_error(here, asked, text, update));
  });
  request_update(context, std::move(event));
}

// --- disconnect

void disconnect(ApiContext& context, RouteRequest request, Responder responder) {
  LaxBody body(request.http);
  const std::string name = body.text("pair_name");
  if (auto refusal = refuse(context, body, request.http)) return responder.respond(*std::move(refusal));
  if (!context.find_pair(name)) return responder.respond(pair_not_found(name));
  const auto pending = PendingAnswer::make(context, std::move(responder));
  RemovePair event;
  event.pair = name;
  std::vector<std::string> trainers = context.find_pair(name)->spec.trainer_urls;
  event.token = pending->when_replied([pending, name, trainers](const Reply& reply) {
    if (reply.error && reply.error->code == ErrorCode::not_found) return pending->answer(pair_not_found(name));
    if (reply.error) return pending->answer(failure_answer(*reply.error));
    pending->context().meta.clear(name);
    json::object out{{"status", "ok"}, {"pair_name", name}};
    if (!reply.abandoned.empty()) out["abandoned"] = text_list(reply.abandoned);
    answer_when_left(pending, trainers, std::move(out));
  });
  pending->deadline(context.settings.reply_by,
                    [pending, name] { pending->answer(error_answer(409, blocker_text(pending->context(), name))); });
  std::string what = fmt::format("pair '{}'", name);
  post_event_unless_full(context, std::move(what), std::move(event));
}

}  // namespace

std::optional<HttpResponse> read_connect_request(const HttpRequest& request, std::string_view admin_api_key,
                                                 const Confinement& confinement, const Policy& defaults,
                                                 PairSpec& out) {
  LaxBody body(request);
  const ConnectBody read = read_connect(body);
  if (auto refusal = refuse(admin_api_key, body, request)) return refusal;
  if (auto refusal = refuse_connect(read)) return refusal;
  if (auto failure = make_spec(confinement, defaults, read, out))
    return error_answer(info(failure->error.code).http_status, failure->error.text());
  return std::nullopt;
}

void add_compat_routes(Router& router, ApiContext& context) {
  router.add("GET", "/health", [](const RouteRequest&, const Responder& responder) {
    responder.respond(json_answer(200, json::object{{"status", "healthy"}}));
  });
  router.add("POST", "/connect",
             [&context](RouteRequest r, Responder a) { connect(context, std::move(r), std::move(a)); });
  router.add("POST", "/update_weights",
             [&context](RouteRequest r, Responder a) { update_weights(context, std::move(r), std::move(a)); });
  router.add("POST", "/disconnect",
             [&context](RouteRequest r, Responder a) { disconnect(context, std::move(r), std::move(a)); });
}

}  // namespace weighlock
