// `weighlock update`, `rollback` and `cancel`: each waits for the end of an update.
#include <fmt/format.h>

#include <algorithm>
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

constexpr std::size_t kUpdatesRead = 50;  // those that run come first, and are fewer

enum class Asked { start, cancel };

// Of a cancel it is the wanted end that nothing was committed; workers that can't be brought back are told by 4.
int exit_code_of(const client::Update& update, Asked asked) {
  const bool cancelled =
      update.error && update.error->code == "cancelled" && (update.state == "aborted" || update.state == "rolled_back");
  if (asked != Asked::cancel || !cancelled) return exit_code(update);
  const bool whole = std::none_of(update.workers.begin(), update.workers.end(),
                                  [](const client::WorkerOutcome& worker) { return worker.cause.has_value(); });
  return whole ? 0 : info(ErrorCode::degraded).exit_code;
}

// Shows the update until it ends or the wait is over, and tells the outcome.
int follow(client::Client& gateway, const GatewayArguments& arguments, double wait_s, Result<client::Update> update,
           Terminal& terminal, Asked asked = Asked::start) {
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
    terminal.out << fmt::format("update {} of pair {} to v{} {}\n", update->id, update->pair, update->version,
                                asked == Asked::cancel ? "is being undone" : "has started");
  } else {
    terminal.out << explain(*update);
  }
  return update->running() ? 0 : exit_code_of(*update, asked);
}

// The oldest one that runs: those that wait behind it are younger.
Result<std::string> running_update(client::Client& gateway, const std::string& pair) {
  Result<std::vector<client::Update>> updates = gateway.updates(pair, kUpdatesRead);
  if (!updates) return std::move(updates).error();
  const auto runs = [](const client::Update& update) { return update.running(); };
  const auto it = std::find_if(updates->rbegin(), updates->rend(), runs);
  if (it == updates->rend())
    return Error{ErrorCode::conflict,
                 fmt::format("pair '{0}' has no running update to cancel; `weighlock history {0}` lists those that "
                             "ended, and `weighlock rollback {0}` goes back from a committed one",
                             pair)};
  return it->id;
}

}  // namespace

int run_cancel(const CancelArguments& arguments, Terminal& terminal) {
  client::Client gateway(client_settings(arguments.gateway));
  Result<std::string> id =
      arguments.update.empty() ? running_update(gateway, arguments.pair) : Result<std::string>(arguments.update);
  if (!id) return report(terminal, id.error(), arguments.gateway.json);
  return follow(gateway, arguments.gateway, arguments.wait_s, gateway.cancel_update(arguments.pair, *id), terminal,
                Asked::cancel);
}

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
