// /v1/pairs: what is connected, with its settings; changes are idempotent.
#include <fmt/format.h>

#include <charconv>

#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/context.hpp"

namespace weighlock {
namespace {

using namespace protocol;

void list_pairs(const ApiContext& context, const Responder& responder) {
  json::array items;
  for (const auto& [name, pair] : context.state().pairs) items.push_back(pair_view(context.view(), pair));
  responder.respond(json_answer(200, json::object{{"items", std::move(items)}, {"next", nullptr}}));
}

// A pair's view with what it was connected with: who asks for one pair may want to change it.
json::object connected_view(const ApiContext& context, const Pair& pair) {
  const PairSpec& spec = pair.spec;
  json::object out = pair_view(context.view(), pair);
  out["save_path"] = spec.save_path;
  out["trainer"] = {{"kind", spec.trainer_kind == TrainerKind::external ? "external" : "areal"},
                    {"save_trigger", spec.save_trigger == SaveTrigger::rank0 ? "rank0" : "all"}};
  return out;
}

// Answers when the pair's committed version has reached `least`, or with what there is when the wait is over.
void wait_for_version(ApiContext& context, const std::string& name, std::int64_t least, Milliseconds wait,
                      Responder responder, const std::string& path) {
  const auto pending = PendingAnswer::make(context, std::move(responder));
  pending->ends_with_client();
  const auto waiting = std::make_shared<Waiters::WaitId>(0);
  const auto look = [pending, waiting, name, least, path](bool give_up) {
    ApiContext& here = pending->context();
    const Pair* pair = here.find_pair(name);
    const bool reached = pair && pair->committed && pair->committed->version >= least;
    if (!reached && pair && !give_up) return;
    here.waiters.forget(*waiting);
    if (!pair)
      return pending->answer(
          problem_answer(Error{ErrorCode::not_found, fmt::format("pair '{}' was removed", name)}, path));
    pending->answer(json_answer(200, connected_view(here, *pair)));
  };
  look(false);
  if (pending->answered()) return;
  *waiting = context.waiters.on_change([look] { look(false); });
  pending->deadline(wait, [look] { look(true); });
}

void get_pair(ApiContext& context, const RouteRequest& request, Responder responder) {
  const std::string& name = request.parameter("pair");
  const Pair* pair = context.find_pair(name);
  if (!pair) return responder.respond(no_such("pair", name, request));
  const std::optional<std::string> least_text = request.query_value("committed_at_least");
  const WaitAsked asked = read_wait(request);
  if (asked.failure) return responder.respond(problem_answer(*asked.failure, request.path));
  if (!least_text || !asked.wait) return responder.respond(json_answer(200, connected_view(context, *pair)));
  std::int64_t least = 0;
  const auto [end, failure] = std::from_chars(least_text->data(), least_text->data() + least_text->size(), least);
  if (failure != std::errc{} || end != least_text->data() + least_text->size())
    return responder.respond(
        problem_answer(Error{ErrorCode::invalid_argument, "committed_at_least: must be a version number"}, request.path,
                       "committed_at_least"));
  wait_for_version(context, name, least, *asked.wait, std::move(responder), request.path);
}

void apply_pair(ApiContext& context, const RouteRequest& request, PairBody read, Responder responder) {
  const std::string& name = request.parameter("pair");
  const bool is_new = !context.find_pair(name);
  const auto pending = PendingAnswer::make(context, std::move(responder));
  ConnectPair event;
  event.spec = std::move(read.spec);
  event.new_lineage = is_new || read.new_lineage;
  event.token = pending->when_replied(
      [pending, is_new, name, keys = std::move(read.credentials), path = request.path](const Reply& reply) {
        ApiContext& here = pending->context();
        if (reply.error) return pending->answer(problem_answer(*reply.error, path));
        for (const auto& [url, credentials] : keys) here.credentials.set(url, credentials);
        const Pair* pair = here.find_pair(name);
        if (!pair)
          return pending->answer(
              problem_answer(Error{ErrorCode::not_found, fmt::format("pair '{}' was removed meanwhile", name)}, path));
        pending->answer(json_answer(is_new ? 201 : 200, connected_view(here, *pair)));
      });
  pending->deadline(context.settings.reply_by, [pending, name, path = request.path] {
    pending->answer(problem_answer(
        Error{ErrorCode::conflict,
              fmt::format("pair '{}': its running update is waited for; the change takes effect when it ends", name)},
        path));
  });
  std::string what = fmt::format("pair '{}'", name);
  post_event_unless_full(context, std::move(what), std::move(event));
}

void put_pair(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const std::string& name = request.parameter("pair");
  Result<json::value> body = read_body(request);
  if (!body) return responder.respond(problem_answer(body.error(), request.path));
  PairBody read;
  read.spec.policy = context.settings.policy;
  const Pair* present = context.find_pair(name);
  if (auto failure = read_pair_body(*body, name, context.confinement, present ? &present->spec : nullptr, read))
    return responder.respond(problem_answer(*failure, request.path));
  std::vector<DoubtfulHost> doubtful;
  find_doubtful(context.confinement, read.spec.trainer_urls, "trainers.urls", "", doubtful);
  find_doubtful(context.confinement, worker_urls(read.spec), "workers", ".url", doubtful);
  look_outside(
      context, std::move(doubtful), std::move(read),
      [&context, request, responder = std::move(responder)](std::optional<FieldError> failure, PairBody whole) {
        if (failure) return responder.respond(problem_answer(*failure, request.path));
        apply_pair(context, request, std::move(whole), responder);
      });
}

void delete_pair(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const auto pending = PendingAnswer::make(context, std::move(responder));
  RemovePair event;
  event.pair = request.parameter("pair");
  const Pair* pair = context.find_pair(event.pair);
  std::vector<std::string> trainers = pair ? pair->spec.trainer_urls : std::vector<std::string>();
  event.token = pending->when_replied([pending, trainers, name = event.pair, path = request.path](const Reply& reply) {
    if (reply.error) return pending->answer(problem_answer(*reply.error, path));
    pending->context().meta.clear(name);
    answer_when_left(pending, trainers, json::object{{"name", name}, {"abandoned", text_list(reply.abandoned)}});
  });
  pending->deadline(context.settings.reply_by, [pending, name = event.pair, path = request.path] {
    pending->answer(
        problem_answer(Error{ErrorCode::conflict,
                             fmt::format("pair '{}': its running update is waited for; then it is removed", name)},
                       path));
  });
  std::string what = fmt::format("pair '{}'", event.pair);
  post_event_unless_full(context, std::move(what), std::move(event));
}

}  // namespace

void add_pair_routes(Router& router, ApiContext& context) {
  router.add("GET", "/v1/pairs", [&context](const RouteRequest&, const Responder& a) { list_pairs(context, a); });
  router.add("GET", "/v1/pairs/{pair}",
             [&context](const RouteRequest& r, Responder a) { get_pair(context, r, std::move(a)); });
  router.add("PUT", "/v1/pairs/{pair}",
             [&context](const RouteRequest& r, Responder a) { put_pair(context, r, std::move(a)); });
  router.add("DELETE", "/v1/pairs/{pair}",
             [&context](const RouteRequest& r, Responder a) { delete_pair(context, r, std::move(a)); });
}

}  // namespace weighlock
