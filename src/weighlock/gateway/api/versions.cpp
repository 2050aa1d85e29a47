// /v1/pairs/{p}/versions: what is stored and who needs it; looking at one again; deleting what nobody needs.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/context.hpp"

namespace weighlock {
namespace {

using namespace protocol;

void list_versions(const ApiContext& context, const RouteRequest& request, const Responder& responder) {
  const Pair* pair = context.find_pair(request.parameter("pair"));
  if (!pair) return responder.respond(no_such("pair", request.parameter("pair"), request));
  responder.respond(json_answer(200, versions_view(context.view(), *pair)));
}

std::optional<std::int64_t> number_in(std::string_view text) {
  std::int64_t out = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return out;
}

// The newest of that number; a pair that was connected anew may have several.
const StoredVersion* find_stored(const Pair& pair, std::int64_t version, std::optional<std::int64_t> lineage) {
  const auto it = std::find_if(pair.stored.rbegin(), pair.stored.rend(), [&](const StoredVersion& stored) {
    return stored.version.version == version && (!lineage || stored.version.lineage == *lineage);
  });
  return it == pair.stored.rend() ? nullptr : &*it;
}

Seal seal_of(const Pair& pair, const StoredVersion& stored) {
  Seal out;
  out.pair = pair.spec.name;
  out.save_path = pair.spec.save_path;
  out.directory = stored.version.directory;
  out.foreign = stored.handed;
  out.lineage = stored.version.lineage;
  out.version = stored.version.version;
  out.stored = true;
  out.digest = stored.version.digest;
  out.digest_now = true;
  out.is_adapter = pair.spec.lora.has_value();
  return out;
}

void verify_version(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  const Pair* pair = context.find_pair(request.parameter("pair"));
  if (!pair) return responder.respond(no_such("pair", request.parameter("pair"), request));
  std::optional<std::int64_t> lineage;
  if (const auto text = request.query_value("lineage")) {
    lineage = number_in(*text);
    if (!lineage)
      return responder.respond(problem_answer(Error{ErrorCode::invalid_argument, "lineage: must be a whole number"},
                                              request.path, "lineage"));
  }
  const std::string& word = request.parameter("version");
  const std::optional<std::int64_t> number = number_in(word);
  const StoredVersion* stored = number ? find_stored(*pair, *number, lineage) : nullptr;
  if (!stored) return responder.respond(no_such("stored version", word, request));
  const auto pending = PendingAnswer::make(context, std::move(responder));
  auto made = std::make_shared<Result<std::string>>(Error{});
  const Seal seal = seal_of(*pair, *stored);
  context.storage_pool.run(
      [storage = &context.storage, seal, made] { *made = storage->verify(seal); },
      [pending, seal, made, alive = std::weak_ptr(context.alive), path = request.path] {
        if (alive.expired()) return;
        if (!*made) return pending->answer(problem_answer(made->error(), path));
        json::object out{
            {"lineage", seal.lineage}, {"version", seal.version}, {"directory", seal.directory}, {"ok", true}};
        // Without a digest only names, sizes and headers were compared.
        out["digest"] = (*made)->empty() ? json::value(nullptr) : json::value(**made);
        pending->answer(json_answer(200, out));
      });
  pending->deadline(context.settings.reply_by, [pending, path = request.path] {
    pending->answer(problem_answer(
        Error{ErrorCode::timed_out, "it is still being read; `weighlock ckpt verify` reads it where it lies"}, path));
  });
}

void collect_versions(ApiContext& context, const RouteRequest& request, Responder responder) {
  if (auto refusal = refuse_key(context, request)) return responder.respond(*std::move(refusal));
  Result<json::value> body = read_optional_body(request);
  if (!body) return responder.respond(problem_answer(body.error(), request.path));
  const json::object* object = body->if_object();
  const auto refuse = [&](std::string field, std::string what) {
    const Error error{ErrorCode::invalid_argument, fmt::format("{}: {}", field, what)};
    responder.respond(problem_answer(error, request.path, field));
  };
  if (!object) return refuse("body", "must be an object");
  if (auto unknown = unknown_key(*object, "", {"dry_run"}))
    return responder.respond(problem_answer(*unknown, request.path));
  CollectVersions event;
  event.pair = request.parameter("pair");
  if (const json::value* dry = object->if_contains("dry_run")) {
    if (!dry->is_bool()) return refuse("dry_run", "must be true or false");
    event.dry_run = dry->get_bool();
  }
  const auto pending = PendingAnswer::make(context, std::move(responder));
  event.token = pending->when_replied([pending, dry = event.dry_run, path = request.path](const Reply& reply) {
    if (reply.error) return pending->answer(problem_answer(*reply.error, path));
    pending->answer(json_answer(200, json::object{{"dry_run", dry}, {"directories", text_list(reply.collected)}}));
  });
  context.driver.post(std::move(event));
}

}  // namespace

void add_version_routes(Router& router, ApiContext& context) {
  router.add("GET", "/v1/pairs/{pair}/versions",
             [&context](const RouteRequest& r, const Responder& a) { list_versions(context, r, a); });
  router.add("POST", "/v1/pairs/{pair}/versions/{version}:verify",
             [&context](const RouteRequest& r, Responder a) { verify_version(context, r, std::move(a)); });
  router.add("POST", "/v1/pairs/{pair}/versions:collect",
             [&context](const RouteRequest& r, Responder a) { collect_versions(context, r, std::move(a)); });
}

}  // namespace weighlock
