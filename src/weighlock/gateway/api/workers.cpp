// /v1/pairs/{p}/workers: the fleet, its changes, and the readiness URL for routers and orchestrators.
#include <fmt/format.h>

#include <algorithm>

#include "weighlock/core/limits.hpp"
#include "weighlock/core/words.hpp"
#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/context.hpp"
#include "weighlock/protocol/ownership.hpp"

namespace weighlock {
namespace {

using namespace protocol;

void list_workers(const ApiContext& context, const RouteRequest& request, const Responder& responder) {
  const Pair* pair = context.find_pair(request.parameter("pair"));
  if (!pair) return responder.respond(no_such("pair", request.parameter("pair"), request));
  json::array items;
  for (const WorkerSpec& spec : pair->spec.workers) {
    const auto it = context.state().workers.find(spec.url);
    if (it == context.state().workers.end()) continue;
    json::object view = worker_view(context.view(), it->second);
    const auto adapters = pair->adapters.find(spec.url);
    if (adapters != pair->adapters.end()) view["adapter"] = adapters_view(context.view(), adapters->second);
    items.push_back(std::move(view));
  }
  responder.respond(json_answer(200, json::object{{"items", std::move(items)}, {"next", nullptr}}));
}

HttpResponse readiness_answer(bool ready, const json::object& worker, std::string_view reason) {
  json::object out{{"ready", ready}, {"worker", worker}};
  out["reason"] = reason.empty() ? json::value(nullptr) : json::value(reason);
  return json_answer(ready ? 200 : 503, out);
}

// The worker's state is looked at before and after the read: an update may have decided about it meanwhile. A reading
// that began before the update wrote a label proves nothing against the worker, so it is read once more.
void answer_readiness(ApiContext& context, const std::string& url, Responder responder, bool again) {
  const auto found = context.state().workers.find(url);
  if (found == context.state().workers.end())
    return responder.respond(problem_answer(Error{ErrorCode::not_found, "the worker was removed meanwhile"}, url));
  const Worker& worker = found->second;
  json::object view = worker_view(context.view(), worker);
  if (!is_ready(worker)) {
    const std::optional<Cause> cause = cause_of(worker);
    const std::string why = cause ? cause->message : std::string(name(worker.state));
    return responder.respond(readiness_answer(false, view, why));
  }
  // Only LoRA pairs use it: it keeps its state, and was fenced (protocol/watch.cpp).
  if (worker.pair.empty() && worker.watch.failures >= limits::kSilentLooks)
    return responder.respond(
        readiness_answer(false, view, fmt::format("{} looks in a row had no answer", worker.watch.failures)));
  // One that only LoRA pairs use isn't asked what it is before their first update: there is no way to read it.
  if (!worker.dialect) return responder.respond(readiness_answer(true, view, ""));
  context.readiness.read(
      worker, [&context, url, responder = std::move(responder), again, incarnation = worker.incarnation,
               labels = worker.labels](const Readiness::Reading& reading) mutable {
        const auto now = context.state().workers.find(url);
        const bool changed = now == context.state().workers.end() || now->second.state != WorkerState::ready ||
                             now->second.incarnation != incarnation || now->second.labels != labels;
        if (changed && !again) return answer_readiness(context, url, std::move(responder), true);
        const std::string doubt =
            changed ? "its state changed while it was read; ask again" : doubt_of(now->second, reading);
        const json::object seen =
            now == context.state().workers.end() ? json::object{} : worker_view(context.view(), now->second);
        responder.respond(readiness_answer(doubt.empty(), seen, doubt));
      });
}

void readiness(ApiContext& context, const RouteRequest& request, Responder responder) {
  const Pair* pair = context.find_pair(request.parameter("pair"));
  const Worker* worker = pair ? find_worker(context.state(), *pair, request.parameter("worker")) : nullptr;
  if (!worker) return responder.respond(no_such("worker", request.parameter("worker"), request));
  answer_readiness(context, worker->url, std::move(responder), false);
}

// The words of an operator, for people who look at the worker later.
std::optional<FieldError> read_reason(const json::value& body, std::string& out) {
  const auto bad = [](std::string field, std::string what) {
    Error error{ErrorCode::invalid_argument, fmt::format("{}: {}", field, what)};
    return FieldError{std::move(field), std::move(error)};
  };
  const json::object* object = body.if_object();
  if (!object) return bad("body", "must be an object");
  if (auto unknown = unknown_key(*object, "", {"reason"})) return unknown;
  if (!object->contains("reason")) return std::nullopt;
  const auto reason = find_string(body, "reason");
  if (!reason || reason->size() > limits::kNameBytesMax)
    return bad("reason", fmt::format("must be a text of at most {} bytes", limits::kNameBytesMax));
  out = printable(*reason, limits::kNameBytesMax);
  return std::nullopt;
}

// The pair as it is now, and the worker; null once it has left.
HttpResponse changed_answer(const ApiContext& context, const std::string& name, const std::string& url,
                            const Reply& reply, const std::string& path) {
  if (reply.error) return problem_answer(*reply.error, path);
  const Pair* pair = context.find_pair(name);
  // Released from a pair that is gone, or the pair went meanwhile.
  json::object out = pair ? pair_view(context.view(), *pair) : json::object{{"name", name}};
  const Worker* worker = pair ? find_worker(context.state(), *pair, url) : nullptr;
  out["worker"] = worker ? json::value(worker_view(context.view(), *worker)) : json::value(nullptr);
  out["abandoned"] = text_list(reply.abandoned);
  return json_answer(200, out);
}

// `keys`: of a worker that is added.
void post_change(ApiContext& context, ChangeWorker event, std::optional<Credentials> keys, const std::string& path,
                 Responder responder) {
  const auto pending = PendingAnswer::make(context, std::move(responder));
  const std::string url = event.worker.url;
  // Its first call may come with the event, so its keys come before; those of a worker that is there stay until it is
  // this pair's.
  const bool is_new = keys && !context.state().workers.contains(url);
  if (is_new) context.credentials.set(url, *keys);
  event.token = pending->when_replied([pending, name = event.pair, url, keys, is_new, path](const Reply& reply) {
    ApiContext& here = pending->context();
    if (keys && !reply.error) here.credentials.set(url, *keys);
    if (is_new && reply.error) here.credentials.forget(url);
    pending->answer(changed_answer(here, name, url, reply, path));
  });
  pending->deadline(context.settings.reply_by, [pending, name = event.pair, path] {
    pending->answer(problem_answer(
        Error{ErrorCode::conflict,
              fmt::format("pair '{}': its running update is waited for; the change takes effect when it ends", name)},
        path));
  });
  std::string what = fmt::format("pair '{}': worker {}", event.pair, event.worker.url);
  post_event_unless_full(context, std::move(what), std::move(event));
}

// A worker of the pair's list, or one that was left behind when it went.
const Worker* find_of_pair(const ApiContext& context, const std::string& name, std::string_view id) {
  const Pair* pair = context.find_pair(name);
  if (const Worker* listed = pair ? find_worker(context.state(), *pair, id) : nullptr) return listed;
  const auto& all = context.state().workers;
  const auto it = std::find_if(all.begin(), all.end(), [&](const auto& entry) {
    return entry.second.pair == name && entry.second.state == WorkerState::abandoned &&
           (entry.first == id || worker_id(entry.first) == id);
  });
  return it == all.end() ? nullptr : &it->second;
}

// remove, drain, quarantine, release.
void change_worker(ApiContext& context, WorkerChange change, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const std::string& name = request.parameter("pair");
  const Worker* worker = find_of_pair(context, name, request.parameter("worker"));
  if (!worker) return responder.respond(no_such("worker", request.parameter("worker"), request));
  Result<json::value> body = read_optional_body(request);
  if (!body) return responder.respond(problem_answer(body.error(), request.path));
  ChangeWorker event;
  event.pair = name;
  event.change = change;
  event.worker.url = worker->url;
  if (auto failure = read_reason(*body, event.reason)) return responder.respond(problem_answer(*failure, request.path));
  post_change(context, std::move(event), std::nullopt, request.path, std::move(responder));
}

Error already_member(const std::string& url, const std::string& pair) {
  return Error{
      ErrorCode::conflict,
      fmt::format("worker {0} is already a member of pair '{1}': `weighlock workers release {1} {0}` brings one "
                  "that is held to the committed version, `weighlock workers set-key {1} {0} ...` gives it "
                  "other keys",
                  url, pair)};
}

void add_worker(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const Pair* pair = context.find_pair(request.parameter("pair"));
  if (!pair) return responder.respond(no_such("pair", request.parameter("pair"), request));
  Result<json::value> body = read_body(request);
  if (!body) return responder.respond(problem_answer(body.error(), request.path));
  PairBody changed;
  if (auto failure = read_worker(*body, "worker", context.confinement, changed))
    return responder.respond(problem_answer(*failure, request.path));
  const std::string url = changed.spec.workers.back().url;
  const std::vector<std::string> members = worker_urls(pair->spec);
  if (std::find(members.begin(), members.end(), url) != members.end())
    return responder.respond(problem_answer(already_member(url, pair->spec.name), request.path, "worker.url"));
  std::vector<DoubtfulHost> doubtful;
  find_doubtful(context.confinement, {url}, "worker.url", "", doubtful);
  look_outside(
      context, std::move(doubtful), std::move(changed),
      [&context, request, responder = std::move(responder)](std::optional<FieldError> failure, PairBody whole) {
        if (failure) return responder.respond(problem_answer(*failure, request.path));
        ChangeWorker event;
        event.pair = request.parameter("pair");
        event.change = WorkerChange::add;
        event.worker = whole.spec.workers.back();
        std::optional<Credentials> keys;
        if (const auto named = whole.credentials.find(event.worker.url); named != whole.credentials.end())
          keys = named->second;
        post_change(context, std::move(event), std::move(keys), request.path, responder);
      });
}

// The references of `worker` with those of `given` laid over them, read as they would be at a connect.
std::optional<FieldError> read_new_keys(const json::value& given, const WorkerSpec& worker,
                                        const Confinement& confinement, PairBody& out) {
  const json::object* object = given.if_object();
  const auto bad = [](std::string_view what) {
    return FieldError{"body", Error{ErrorCode::invalid_argument, fmt::format("body: {}", what)}};
  };
  if (!object || object->empty()) return bad("must be an object with \"admin_key\", \"api_key\" or both");
  if (auto unknown = unknown_key(*object, "", {"admin_key", "api_key"})) return unknown;
  json::object whole;
  if (!worker.key_references.empty()) {
    const Result<json::value> present = parse_json(worker.key_references, "key references");
    if (present && present->is_object()) whole = present->as_object();
  }
  for (const json::key_value_pair& member : *object) whole[member.key()] = member.value();
  whole["url"] = worker.url;
  return read_worker(whole, "worker", confinement, out);
}

// The pair connected once more, as it is, but for the keys of this worker: they hold from its next call on.
void post_new_keys(ApiContext& context, const RouteRequest& request, const PairBody& read, Responder responder) {
  const std::string name = request.parameter("pair");
  const WorkerSpec& worker = read.spec.workers.back();
  const Pair* pair = context.find_pair(name);
  if (!pair) return responder.respond(no_such("pair", name, request));
  if (pair->reconnect)
    return responder.respond(problem_answer(
        Error{ErrorCode::conflict, fmt::format("pair '{}' is being connected again; ask when that was answered", name)},
        request.path));
  // A connect would take the pair back from the gateway that has it now.
  if (is_superseded(*pair))
    return responder.respond(problem_answer(superseded_error(name, *pair->ownership.superseded_by), request.path));
  ConnectPair event;
  event.spec = pair->spec;
  event.new_lineage = false;
  for (WorkerSpec& one : event.spec.workers) {
    if (one.url == worker.url) one.key_references = worker.key_references;
  }
  const auto pending = PendingAnswer::make(context, std::move(responder));
  event.token = pending->when_replied(
      [pending, name, url = worker.url, keys = read.credentials, path = request.path](const Reply& reply) {
        ApiContext& here = pending->context();
        const auto own = keys.find(url);
        if (!reply.error && own != keys.end()) here.credentials.set(url, own->second);
        pending->answer(changed_answer(here, name, url, reply, path));
      });
  std::string what = fmt::format("pair '{}': worker {}", name, worker.url);
  post_event_unless_full(context, std::move(what), std::move(event));
}

void set_worker_key(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const Pair* pair = context.find_pair(request.parameter("pair"));
  const Worker* worker = pair ? find_worker(context.state(), *pair, request.parameter("worker")) : nullptr;
  if (!worker) return responder.respond(no_such("worker", request.parameter("worker"), request));
  Result<json::value> body = read_body(request);
  if (!body) return responder.respond(problem_answer(body.error(), request.path));
  const auto& list = pair->spec.workers;
  const auto spec = std::find_if(list.begin(), list.end(), [&](const auto& one) { return one.url == worker->url; });
  PairBody read;
  if (auto failure = read_new_keys(*body, *spec, context.confinement, read))
    return responder.respond(problem_answer(*failure, request.path));
  look_outside(
      context, {}, std::move(read),
      [&context, request, responder = std::move(responder)](std::optional<FieldError> failure, PairBody whole) {
        if (failure) return responder.respond(problem_answer(*failure, request.path));
        post_new_keys(context, request, whole, responder);
      });
}

}  // namespace

void add_worker_routes(Router& router, ApiContext& context) {
  router.add("GET", "/v1/pairs/{pair}/workers",
             [&context](const RouteRequest& r, const Responder& a) { list_workers(context, r, a); });
  router.add("GET", "/v1/pairs/{pair}/workers/{worker}/ready",
             [&context](const RouteRequest& r, Responder a) { readiness(context, r, std::move(a)); });
  router.add("POST", "/v1/pairs/{pair}/workers:add",
             [&context](const RouteRequest& r, Responder a) { add_worker(context, r, std::move(a)); });
  router.add("POST", "/v1/pairs/{pair}/workers/{worker}:set-key",
             [&context](const RouteRequest& r, Responder a) { set_worker_key(context, r, std::move(a)); });
  const auto add_change = [&](const char* verb, WorkerChange change) {
    router.add(
        "POST", fmt::format("/v1/pairs/{{pair}}/workers/{{worker}}:{}", verb),
        [&context, change](const RouteRequest& r, Responder a) { change_worker(context, change, r, std::move(a)); });
  };
  add_change("remove", WorkerChange::remove);
  add_change("drain", WorkerChange::drain);
  add_change("quarantine", WorkerChange::quarantine);
  add_change("release", WorkerChange::release);
}

}  // namespace weighlock
