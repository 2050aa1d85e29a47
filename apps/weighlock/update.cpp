// `weighlock update` and `weighlock rollback`: both start an update and wait for its end.
#include <fmt/format.h>

#include <chrono>
#include <ostream>

#include "explain.hpp"
#include "progress.hpp"
#include "terminal.hpp"

namespace weighlock::cli {
namespace {

std::int64_t monotonic_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Shows the update until it ends or the wait is over, and tells the outcome.
int follow(client::Client& gateway, const GatewayArguments& arguments, double wait_s, Result<client::Update> update,
           Terminal& terminal) {
  if (!update) return report(terminal, update.error(), arguments.json);
  if (wait_s > 0 && update->running()) {
    Progress progress(terminal);
    progress.seen(*update, monotonic_ms());
    update = gateway.await_update(update->pair, update->id, Milliseconds(static_cast<std::int64_t>(wait_s * 1000)),
                                  [&](const client::Update& reading) { progress.seen(reading, monotonic_ms()); });
    progress.finish();
    if (!update) return report(terminal, update.error(), arguments.json);
  }
  if (arguments.json) {
    print_json(terminal, update->raw);
  } else if (update->running()) {
    terminal.out << fmt::format("update {} of pair {} to v{} has started\n", update->id, update->pair, update->version);
  } else {
    terminal.out << explain(*update);
  }
  return update->running() ? 0 : exit_code(*update);
}

}  // namespace

int run_update(const UpdateArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  client::UpdateRequest request;
  request.version = arguments.version;
  request.path = arguments.from;
  request.policy = arguments.policy;
  request.idempotency_key = arguments.key;
  return follow(gateway, arguments.gateway, arguments.wait_s, gateway.start_update(arguments.pair, request), terminal);
}

int run_rollback(const RollbackArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  client::RollbackRequest request;
  request.to = arguments.to;
  request.lineage = arguments.lineage;
  request.policy = arguments.policy;
  request.idempotency_key = arguments.key;
  return follow(gateway, arguments.gateway, arguments.wait_s, gateway.roll_back(arguments.pair, request), terminal);
}

}  // namespace weighlock::cli
