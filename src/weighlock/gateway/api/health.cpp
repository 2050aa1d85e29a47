// Liveness, readiness and metrics of the gateway itself.
#include "weighlock/gateway/api/answer.hpp"
#include "weighlock/gateway/api/context.hpp"

namespace weighlock {

void add_health_routes(Router& router, ApiContext& context) {
  router.add("GET", "/healthz", [](const RouteRequest&, const Responder& responder) {
    responder.respond(json_answer(200, json::object{{"status", "ok"}}));
  });
  router.add("GET", "/readyz", [&context](const RouteRequest&, const Responder& responder) {
    responder.respond(
        json_answer(context.stopping ? 503 : 200, json::object{{"status", context.stopping ? "stopping" : "ready"}}));
  });
  router.add("GET", "/metrics", [&context](const RouteRequest&, const Responder& responder) {
    HttpResponse out;
    out.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
    out.body = context.metrics.text(context.state(), context.journal.last_number());
    responder.respond(std::move(out));
  });
}

}  // namespace weighlock
