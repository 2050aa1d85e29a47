// Liveness, readiness and metrics of the gateway itself.
#include <algorithm>

#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/context.hpp"

namespace weighlock {
namespace {

// An update of the process before isn't at its end yet: its pair's workers may be paused.
bool recovering(const ApiContext& context) {
  const auto& pairs = context.state().pairs;
  return std::any_of(pairs.begin(), pairs.end(), [&](const auto& entry) {
    const protocol::UpdateId& active = entry.second.active;
    return !active.empty() && !active.starts_with(context.state().boot + "-");
  });
}

}  // namespace

void add_health_routes(Router& router, ApiContext& context) {
  router.add("GET", "/healthz", [](const RouteRequest&, const Responder& responder) {
    responder.respond(json_answer(200, json::object{{"status", "ok"}}));
  });
  router.add("GET", "/readyz", [&context](const RouteRequest&, const Responder& responder) {
    const std::string_view status = context.stopping              ? "stopping"
                                    : context.journal.space_low() ? "storage_full"
                                    : recovering(context)         ? "recovering"
                                                                  : "ready";
    responder.respond(json_answer(status == "ready" ? 200 : 503, json::object{{"status", status}}));
  });
  router.add("GET", "/metrics", [&context](const RouteRequest&, const Responder& responder) {
    HttpResponse out;
    out.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
    out.body = context.metrics.text(context.state(), context.journal.last_number(), context.journal.space_low());
    responder.respond(std::move(out));
  });
}

}  // namespace weighlock
